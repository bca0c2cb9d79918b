"""The import direction of docs/architecture.md: a pure core in one order, a shell around it, and instant help."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from planner.cli import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted((REPOSITORY / "planner").rglob("*.py"))

# Each room imports only those left of it, and itself; what stands beside them is for all.
ROOMS = ("inputs", "models", "spot", "search", "probing", "plan", "outside", "provider", "cli")
CORE = ROOMS[: ROOMS.index("outside")]
BESIDE = ("errors", "units", "contract", "columns")
PACKAGE = ("__init__", "__main__")
IMPURE_MODULES = {
    *("os", "pathlib", "time", "random", "socket", "subprocess", "shutil", "tempfile", "io", "sys", "secrets", "uuid"),
    *("boto3", "botocore", "requests", "urllib", "http", "threading", "multiprocessing", "logging", "locale"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
IMPURE_METHODS = {"now", "utcnow", "today", "read_text", "write_text", "read_bytes", "write_bytes", "fromtimestamp"}
MOST_LINES = 400


def room_of(path: Path) -> str:
    """`planner/models/memory.py` is in models; `planner/units.py` stands beside the rooms, under its own name."""
    return path.relative_to(REPOSITORY / "planner").with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module with its line; `from planner import units` counts as planner.units."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            whole = node.module == "planner"
            yield from ((f"planner.{a.name}" if whole else str(node.module), node.lineno) for a in node.names)


def imported_rooms(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for module, line in imports(tree):
        if module.startswith("planner.") and module != "planner.__version__":
            yield module.split(".")[1], line


def exports(package: str) -> set[str]:
    """The names in a package's `__all__`."""
    tree = parsed(REPOSITORY.joinpath(*package.split("."), "__init__.py"))
    assigned = [
        node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return set(ast.literal_eval(assigned[0].value)) if assigned else set()


def is_door(module: str) -> bool:
    """Whether other rooms may import from here: a room itself, or a module that the shell exports."""
    parts = module.split(".")
    if parts[1] in {"outside", "provider"}:
        return len(parts) == 2 or (len(parts) == 3 and parts[2] in exports(".".join(parts[:2])))
    return len(parts) == 2


def around_the_door(tree: ast.AST, room: str) -> Iterator[str]:
    """Imports from other rooms that do not go through what these export."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("planner."):
            continue
        module = str(node.module)
        if module.split(".")[1] in {room, *BESIDE}:
            continue
        if not is_door(module):
            yield f"line {node.lineno} imports from {module}"
        elif REPOSITORY.joinpath(*module.split(".")).is_dir():
            hidden = {alias.name for alias in node.names} - exports(module)
            yield from (f"line {node.lineno}: {module} does not export {name}" for name in sorted(hidden))


def impurities(tree: ast.AST) -> Iterator[str]:
    for module, line in imports(tree):
        if module.partition(".")[0] in IMPURE_MODULES:
            yield f"line {line} imports {module}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
            yield f"line {node.lineno} calls {called.id}()"
        if isinstance(called, ast.Attribute) and called.attr in IMPURE_METHODS:
            yield f"line {node.lineno} calls .{called.attr}()"


def imports_at_top(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What importing the module imports: neither the bodies of functions nor `if TYPE_CHECKING`."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def core_files() -> list[Path]:
    return [path for path in SOURCES if room_of(path) in {*CORE, *BESIDE}]


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_the_package_holds_rooms_and_what_all_of_them_use():
    entries = {path.stem for path in (REPOSITORY / "planner").iterdir() if path.name not in {"__pycache__", "py.typed"}}
    assert entries == {*ROOMS, *BESIDE, *PACKAGE}


def test_a_room_imports_only_what_stands_left_of_it():
    wrong = [
        f"{name(path)}:{line} imports {found}"
        for path in SOURCES
        if (room := room_of(path)) not in PACKAGE
        for found, line in imported_rooms(parsed(path))
        if found not in {*(ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else ()), *BESIDE}
    ]
    assert wrong == []


def test_rooms_meet_only_through_what_they_export():
    around = [
        f"{name(path)} {found}"
        for path in SOURCES
        if room_of(path) not in PACKAGE
        for found in around_the_door(parsed(path), room_of(path))
    ]
    assert around == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for(room):
    assert ast.get_docstring(parsed(REPOSITORY / "planner" / room / "__init__.py"))


def test_a_room_exports_only_what_another_room_uses():
    used: dict[str, set[str]] = {room: set() for room in CORE}
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            room = str(node.module).removeprefix("planner.") if isinstance(node, ast.ImportFrom) else ""
            if room in used and room != room_of(path):
                used[room] |= {alias.name for alias in node.names}
    assert {room: exports(f"planner.{room}") for room in CORE} == used


def test_core_has_no_clock_network_environment_or_files():
    assert [f"{name(path)} {found}" for path in core_files() for found in impurities(parsed(path))] == []


def test_no_two_classes_share_a_name():
    found = Counter(node.name for path in SOURCES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))
    assert [name for name, count in found.items() if count > 1] == []


def test_probes_never_import_the_planner():
    for path in (REPOSITORY / "probes").rglob("*.py"):
        assert not [module for module, _ in imports(parsed(path)) if module.partition(".")[0] == "planner"], path


def command_modules() -> list[Path]:
    """What `scav --help` imports: a module per command, and what these import at their top from beside them."""
    pending, found = ["planner.cli", *(f"planner.cli.{name}" for name in COMMANDS)], set()
    while pending:
        place = REPOSITORY.joinpath(*pending.pop().split("."))
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if path not in found:
            found.add(path)
            pending += [module for module, _ in imports_at_top(parsed(path)) if module.startswith("planner.cli")]
    return sorted(found)


def test_commands_import_only_click_at_their_top_so_that_help_is_instant():
    light = {"click", "planner.errors", "planner.__version__"}
    heavy = [
        f"{name(path)}:{line} imports {module}"
        for path in command_modules()
        for module, line in imports_at_top(parsed(path))
        if module not in light
        and module.partition(".")[0] not in sys.stdlib_module_names
        and not module.startswith("planner.cli")
    ]
    assert heavy == []


@pytest.mark.parametrize("folder", ["planner", "probes", "tests", "benchmarks"])
def test_no_file_outgrows_one_idea(folder):
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (REPOSITORY / folder).rglob("*.py")}
    assert {path.name: size for path, size in sizes.items() if size > MOST_LINES} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from planner import models", "models"),
        ("import planner.models", "models"),
        ("def f():\n    from planner.models.memory import model_bytes", "models"),
    ],
)
def test_an_import_in_any_disguise_is_seen(source, found):
    assert [room for room, _ in imported_rooms(ast.parse(source))] == [found]


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("from planner.models import Configurations", True),
        ("from planner.models import matern", False),
        ("from planner.models.memory import model_bytes", False),
        ("from planner.outside import store", True),
        ("from planner.outside.store import load_text", True),
        ("from planner.outside.terraform.process import Ended", False),
        ("from planner.units import format_usd", True),
    ],
)
def test_an_import_around_the_door_is_seen(source, allowed):
    assert (list(around_the_door(ast.parse(source), "cli")) == []) is allowed


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "from pathlib import Path",
        "open('x')",
        "datetime.date.today()",
        "import urllib.request",
        "print(1)",
    ],
)
def test_what_the_core_must_not_do_is_seen(source):
    assert list(impurities(ast.parse(source)))


def test_type_checking_blocks_and_functions_are_not_imported_with_the_module():
    source = "if TYPE_CHECKING:\n    import numpy\nelse:\n    import scipy\ndef f():\n    import yaml\nimport click\n"
    assert {module for module, _ in imports_at_top(ast.parse(source))} == {"click", "scipy"}
