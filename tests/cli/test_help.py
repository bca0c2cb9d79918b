"""`scav --help` is instant: it lists every command with its own first sentence and imports none of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest
from click.shell_completion import ShellComplete

from planner.cli import COMMANDS, CONTEXT, cli
from planner.cli.options import PRECISIONS
from planner.inputs import Precision

REPOSITORY = Path(__file__).resolve().parents[2]
PRINT_IMPORTED = """
import sys
from planner.cli import main
try:
    main()
finally:
    print(*sorted(name for name in sys.modules if name.partition(".")[0] == "planner"), file=sys.stderr)
"""
WIDEST = int(CONTEXT["terminal_width"]) - 6 - max(len(name) for name in COMMANDS)  # as click would leave it


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_first_sentence_of_its_own_help(name):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert COMMANDS[name] == command.get_short_help_str(WIDEST)
    assert not COMMANDS[name].endswith("..."), "too long for one line"


def test_a_module_that_defines_a_command_is_listed():
    modules = (REPOSITORY / "planner" / "cli").glob("*.py")
    defining = {path.stem for path in modules if "\ndef command(" in path.read_text(encoding="utf-8")}
    assert defining == set(COMMANDS)


def test_help_imports_no_command():
    result = subprocess.run(
        [sys.executable, "-c", PRINT_IMPORTED, "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert re.search(r"\nCommands:\n  init +Write a commented scav\.yaml", result.stdout)
    assert result.stderr.split() == ["planner", "planner.cli", "planner.errors"]


@pytest.mark.parametrize(
    ("typed", "offered"), [("", set(COMMANDS)), ("pr", {"probe", "predict", "provider"}), ("fly", set())]
)
def test_shells_complete_the_names_of_commands(typed, offered):
    completions = ShellComplete(cli, {}, "scav", "_SCAV_COMPLETE").get_completions([], typed)
    assert {item.value for item in completions} == offered
    assert all(item.help for item in completions)


def test_shells_complete_the_options_of_a_command():
    completions = ShellComplete(cli, {}, "scav", "_SCAV_COMPLETE").get_completions(["plan"], "--dead")
    assert [item.value for item in completions] == ["--deadline"]


def test_a_precision_that_an_option_takes_is_one_that_the_catalogue_knows():
    assert tuple(PRECISIONS.choices) == get_args(Precision)
