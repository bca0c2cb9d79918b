"""The documentation is what the program does: the README's output, every --help, every name that a page mentions.

`pytest tests/cli/test_docs.py --update-golden` rewrites docs/commands.md and the outputs in README.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from planner.cli import cli

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
COMMANDS_PAGE = REPOSITORY / "docs" / "commands.md"
SHOWING = (README, REPOSITORY / "docs" / "large-models.md")  # pages with outputs
PAGES = sorted([README, REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md")])
CONSOLE = re.compile(r"(?ms)^```console\n(.*?)^```$")
# What a page may show but this test does not run: itself, what needs a network, and what tests/terraform runs.
NOT_RUN = (
    "make test",
    "make quick",
    "make lint",
    "make bench",
    "git ",
    "cd ",
    "terraform ",
    "tofu ",
    "pip ",
    "export ",
)
SETTING_UP = "Setting up .venv (once)"


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of a console block and the output that stands below it."""

    command: str
    output: str

    @property
    def runs(self) -> bool:
        return not f"{self.command} ".startswith(NOT_RUN)


def shown_in(block: str) -> list[Shown]:
    parts = re.split(r"(?m)^\$ ", block)
    assert not parts[0].strip(), f"a console block starts with output: {parts[0]!r}"
    return [Shown(command.strip(), output) for command, _, output in (part.partition("\n") for part in parts[1:])]


@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page, fresh_copy, update_golden):
    text = page.read_text(encoding="utf-8")
    commands = [shown for block in CONSOLE.findall(text) for shown in shown_in(block)]
    assert [shown for shown in commands if shown.runs], f"{page.name} has no ```console block with a command to run"

    def as_run(match: re.Match[str]) -> str:
        return "```console\n" + "".join(f"$ {s.command}\n{printed(s, fresh_copy)}" for s in shown_in(match[1])) + "```"

    renewed = CONSOLE.sub(as_run, text)
    if update_golden:
        page.write_text(renewed, encoding="utf-8")
    assert renewed == text or update_golden, difference(text, renewed)


def printed(shown: Shown, folder: Path) -> str:
    """Both streams, as a terminal shows them; setting up .venv happens once and so only sometimes."""
    if not shown.runs:
        return shown.output
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "SCAV_"))}
    environment = {**inherited, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        ["bash", "-c", shown.command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = result.stdout.decode().splitlines(keepends=True)
    kept = f"{SETTING_UP}\n" if shown.output.startswith(SETTING_UP) else ""
    return kept + "".join(line for line in lines if line.rstrip() != SETTING_UP)


@pytest.fixture
def fresh_copy(tmp_path):
    """Like a clone, so that no scav-plan/ of the developer is in the way; with the .venv that there is."""
    copy = tmp_path / "scav"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "scav-plan", "build", "dist")
    shutil.copytree(REPOSITORY, copy, ignore=ignored)
    for name in ("pyproject.toml", "requirements/dev.lock"):
        os.utime(copy / name, (0, 0))  # older than the .venv, or make would install the copy into it
    environment = Path(sys.executable).parents[1]
    (copy / ".venv").symlink_to(environment)
    stamps = [environment / ".installed-base", environment / ".installed-dev"]
    if not any(stamp.exists() for stamp in stamps):
        (copy / "Makefile").write_text(
            (copy / "Makefile").read_text(encoding="utf-8").replace("plan: $(or $(wildcard $(DEV)),$(BASE))", "plan:"),
            encoding="utf-8",
        )
    return copy


def difference(before: str, after: str) -> str:
    import difflib

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "as written", "as run", lineterm="", n=1)
    return "\n".join(["`pytest tests/cli/test_docs.py --update-golden` renews it:", *lines])


# docs/commands.md


def every_command(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from every_command(child, (*path, name))


def help_of(path: tuple[str, ...]) -> str:
    result = CliRunner().invoke(cli, [*path, "--help"], prog_name="scav", catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def commands_page() -> str:
    sections = [f"## {' '.join(('scav', *path))}\n\n```text\n{help_of(path)}```\n" for path, _ in every_command(cli)]
    introduction = (
        "# Commands\n\nWhat each command's `--help` prints; a test keeps this page the same. Every option can also\n"
        "be set in the environment: `SCAV_PLAN_DEADLINE=24h` is `scav plan --deadline 24h`.\n"
    )
    return "\n".join([introduction, *sections])


def test_the_commands_page_is_what_help_prints(update_golden):
    if update_golden:
        COMMANDS_PAGE.write_text(commands_page(), encoding="utf-8")
    text = COMMANDS_PAGE.read_text(encoding="utf-8") if COMMANDS_PAGE.exists() else ""
    assert text == commands_page(), difference(text, commands_page())


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_help_is_as_wide_in_every_terminal(monkeypatch, columns):
    before = {path: help_of(path) for path, _ in every_command(cli)}
    monkeypatch.setenv("COLUMNS", columns)
    assert {path: help_of(path) for path in before} == before
    assert max(len(line) for text in before.values() for line in text.splitlines()) <= 100


def test_every_command_and_option_is_explained():
    for path, command in every_command(cli):
        assert command.help, path
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, (path, parameter.name)


def test_every_option_can_come_from_the_environment(run_scav, write_job, monkeypatch):
    write_job()
    monkeypatch.setenv("SCAV_PLAN_DEADLINE", "soon")
    assert "'soon' is not a duration" in run_scav("plan").stderr


# Every name on every page

COMMAND_OPTIONS = {
    path: {name for p in command.params for name in p.opts + p.secondary_opts} for path, command in every_command(cli)
}
ALL_OPTIONS = set().union(*COMMAND_OPTIONS.values(), {"--help", "-h", "--update-golden"})
MAKE_TARGETS = set(re.findall(r"(?m)^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8")))
TOP_FOLDERS = {path.name for path in REPOSITORY.iterdir() if path.is_dir() and not path.name.startswith(".")} - {
    "scav-plan"
}


def pieces(text: str) -> Iterator[str]:
    """What a page sets in code: commands of console blocks, and the words between backticks."""
    for block in re.findall(r"(?ms)^```(?:console|bash|sh)\n(.*?)^```$", text):
        yield from (line.removeprefix("$ ") for line in block.splitlines() if line.startswith(("$ ", "scav ", "make ")))
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))


def fault_of(piece: str) -> str | None:
    """Why what `piece` names does not exist; None if it does, or if it is something else."""
    words = _words(piece)
    if words[:1] == ["make"] and len(words) > 1 and "=" not in words[1] and words[1] not in MAKE_TARGETS:
        return f"no make target {words[1]}"
    if words[:1] == ["scav"] and len(words) > 1:
        return _command_fault(words[1:])
    if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", words[0] if words else ""):
        return None if words[0].partition("=")[0] in ALL_OPTIONS else f"no option {words[0]}"
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", piece) and piece.split("/")[0] in TOP_FOLDERS:
        return None if (REPOSITORY / piece).exists() else f"no file {piece}"
    return None


def _words(piece: str) -> list[str]:
    try:
        return shlex.split(piece.split("|")[0], comments=True)
    except ValueError:
        return piece.split()


def _command_fault(words: list[str]) -> str | None:
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in COMMAND_OPTIONS:
        path, words = (*path, words[0]), words[1:]
    if not path and words and not words[0].startswith("-"):
        return f"no command scav {words[0]}"
    known = COMMAND_OPTIONS[path] | {"--help", "-h"}
    words = words[: words.index("--")] if "--" in words else words  # what follows is somebody else's
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"scav {' '.join(path)} has no {unknown[0]}" if unknown else None


def test_every_table_of_the_accuracy_page_says_which_command_does_what_it_measures():
    page = (REPOSITORY / "docs" / "accuracy.md").read_text(encoding="utf-8")
    for section in page.split("\n## ")[1:]:
        title, _, command, *_ = section.splitlines()
        assert command.startswith("Command: "), title
        assert re.search(r"`scav (\w+)", command), title


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_option_and_path_on_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    assert [f"`{piece}`: {fault}" for piece in pieces(text) if (fault := fault_of(piece))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("piece", "wrong"),
    [
        ("scav plan --deadline 24h", False),
        ("scav catalog show g5.xlarge", False),
        ("scav --version", False),
        ("scav fly", True),
        ("scav plan --fly", True),
        ("scav catalog list --deadline 1h", True),
        ("--deadline", False),
        ("--fly", True),
        ("make plan", False),
        ("make coffee", True),
        ("planner/outside/store.py", False),
        ("planner/shop.py", True),
        ("us-east-1/2", False),
    ],
)
def test_a_name_that_does_not_exist_is_seen(piece, wrong):
    assert bool(fault_of(piece)) is wrong
