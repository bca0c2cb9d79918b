"""The command `scav`: thin commands over the library, and the one place where errors become text.

`scav --help` imports no command, and command modules import nothing but click at their top: help is instant.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
from typing import Any, TextIO

import click

from planner import __version__
from planner.errors import ScavError, did_you_mean, printable_lines

# Each is a module of this folder; beside it the first sentence of its help, so that listing them imports none of them.
COMMANDS = {
    "init": "Write a commented scav.yaml into DIR (default: here).",
    "inspect": "Report what the steps of a training script take, without a GPU.",
    "probe": "Measure the training of JOB and append to its measurements.jsonl.",
    "tune": "Measure JOB where that is worth most, until no probe repays its price.",
    "measurements": "What was measured of a job: list it, drop some of it, import logs of other tools.",
    "fit": "Fit the models of JOB to its measurements and say how good they are.",
    "predict": "Predict hours and dollars of JOB on a cluster, with 90 % intervals.",
    "memory": "Say what training JOB holds of a GPU's memory, and what would make it fit.",
    "plan": "Choose a cluster for JOB and write its Terraform workspace.",
    "simulate": "Simulate the plan in DIR: hours, dollars, lost spot nodes and missed deadlines.",
    "review": "Review the cost of the plan in DIR.",
    "check": "Compare a Terraform plan with what scav planned in DIR; exit 4 when they differ.",
    "permissions": "Print the IAM policy that applying DIR takes, and nothing beyond.",
    "actuals": "Compare what was predicted in DIR with what its run took, by its log.",
    "history": "What finished jobs took beside what was planned of them.",
    "policy": "Say whether DIR's cluster should run on spot or on-demand nodes now.",
    "spot": "What can be known of spot capacity without renting any.",
    "watch": "Watch the run of DIR: nodes, steps, hours and dollars beside what was planned.",
    "logs": "Print what the job of DIR has printed on its nodes.",
    "stop": "Stop the run of DIR now; checkpoints and logs stay.",
    "adopt": "Finish an apply in DIR during which Terraform was killed.",
    "provider": "Install scav as a Terraform provider, whose plan is a resource.",
    "external": 'Answer Terraform\'s `data "external"` with a plan.',
    "catalog": "GPU machines, their prices and where the numbers come from.",
    "schema": "Print the JSON Schema of a file that scav reads or writes.",
    "doctor": "Report what scav finds on this machine, and what is missing.",
}


class ScavGroup(click.Group):
    """Shows a ScavError as one line on stderr; anything else is our bug, so it tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"planner.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message.rstrip('.')}{did_you_mean(args[0], COMMANDS)}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ScavError as error:
            if error.said_before:
                _say(printable_lines(error.said_before))
            _say(f"Error: {printable_lines(str(error))}")
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # whoever read our output has seen enough: `| head`
            _give_up(sys.stdout)
            ctx.exit(0)
        except KeyboardInterrupt:
            _say("Interrupted")
            ctx.exit(130)


# Of a write to stdout or stderr: files are written in `planner.outside.store`, which says which one it was.
_OUTPUT_ERRORS = {errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT}


def _say(line: str) -> None:
    try:
        click.echo(line, err=True)
    except OSError:  # nobody can read it; the exit code still says it
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """What is left in its buffer would fail again at the end, with a traceback and another exit code."""
    with contextlib.suppress(OSError, ValueError):
        stream.close()


# A fixed width: help reads the same in every terminal, in a pipe and in docs/commands.md.
CONTEXT = {"auto_envvar_prefix": "SCAV", "help_option_names": ["-h", "--help"], "terminal_width": 100}


@click.group(cls=ScavGroup, context_settings=CONTEXT)
# Not from the environment: SCAV_VERSION is what a pipeline may well call the version it installs.
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
        _give_up(sys.stdout)
        sys.exit(1)
