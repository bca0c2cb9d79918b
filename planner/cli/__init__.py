"""The command `scav`: thin commands over the library, and the one place where errors become text.

Command modules import nothing but click at their top, so that `scav --help` is instant.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
from typing import Any

import click

from planner import __version__
from planner.errors import ScavError, printable_lines

COMMANDS = (
    *("init", "probe", "fit", "predict", "plan", "simulate", "review", "check", "policy", "adopt", "catalog", "schema"),
    "doctor",
)


class ScavGroup(click.Group):
    """Shows a ScavError as one line on stderr; anything else is our bug, so it tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"planner.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ScavError as error:
            _say(f"Error: {printable_lines(str(error))}")
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            _say("Interrupted")
            ctx.exit(130)


# Of a write to stdout or stderr: files are written in `planner.outside.store`, which says which one it was.
_OUTPUT_ERRORS = {errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT}


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody can read it; the exit code still says it
        click.echo(line, err=True)


def _give_up_stdout() -> None:
    """What is left in its buffer would fail again at the end, with a traceback."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.close()


# A fixed width: help reads the same in every terminal, in a pipe and in docs/commands.md.
CONTEXT = {"auto_envvar_prefix": "SCAV", "help_option_names": ["-h", "--help"], "terminal_width": 100}


@click.group(cls=ScavGroup, context_settings=CONTEXT)
# Not from the environment: pipelines keep the version to install in SCAV_VERSION.
@click.version_option(__version__, prog_name="scav", allow_from_autoenv=False)
def cli() -> None:
    """Choose the cloud GPU cluster that trains a network cheapest or fastest, and write it as Terraform.

    Start with `scav init`, describe the job in scav.yaml, then run `scav plan`.
    """


def main() -> None:
    """Output that cannot be written (a full disk) is one line, too: also that of `--help`, which no command prints."""
    try:
        cli(prog_name="scav")
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        _say(f"Error: cannot write the output: {(error.strerror or str(error)).lower()}")
        _give_up_stdout()
        sys.exit(1)
