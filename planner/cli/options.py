"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import click

PRECISIONS = click.Choice(["fp32", "tf32", "fp16", "bf16", "fp8"])  # test_help compares them with the catalogue's
job_argument = click.argument("job", type=click.Path(path_type=Path), default=".", required=False)
workspace_argument = click.argument("workspace", metavar="DIR", type=click.Path(path_type=Path))
catalog_option = click.option(
    "--catalog",
    "catalog_file",
    type=click.Path(path_type=Path),
    help="Snapshot to take prices from. [default: the newest catalog-DATE.json beside the job, else the embedded one]",
)
history_option = click.option(
    "--history",
    type=click.Path(path_type=Path),
    envvar="SCAV_HISTORY",
    help="Folder of other jobs, scav.yaml and measurements.jsonl each: what they show of machines and of such jobs.",
)
spot_history_option = click.option(
    "--spot-history",
    type=click.Path(path_type=Path),
    envvar="SCAV_SPOT_HISTORY",
    help="Folder with recordings of spot capacity, as g5.xlarge@use1-az4.json. [default: spot-history beside the job]",
)
spot_history_age_option = click.option(
    "--spot-history-age", help="How long before the run they end, 3d: the older, the less they say."
)


def _git_module(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """It becomes code, the one such option: nothing that HCL would evaluate, and pinned."""
    if value is not None and not re.fullmatch(r"git::(https|ssh|file)://[\w.@:/~+-]+\?ref=[\w./+-]+", value, re.ASCII):
        raise click.BadParameter("must be git::https://HOST/PATH.git//modules/gpu-cluster?ref=TAG_OR_COMMIT")
    return value


module_source_option = click.option(
    "--module-source",
    metavar="GIT_URL",
    envvar="SCAV_MODULE_SOURCE",
    callback=_git_module,
    help="The module from git::https://...//modules/gpu-cluster?ref=..., of this version of scav, instead of a copy.",
)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="For a terminal, a pull request, or a program such as a policy gate.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Also show the evidence, and what is assumed of losing spot nodes."
)


def refuse_options_of_other_places(places_of_option: Mapping[str, Collection[str]], place: str) -> None:
    """Of the running command: an option that has no meaning there would be ignored without a word."""
    from planner.errors import InputError

    context = click.get_current_context()
    for name, places in places_of_option.items():
        if place not in places and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise InputError(f"has no meaning with --on {place}, only with --on {' or '.join(places)}", key=option)


class ScriptCommand(click.Command):
    """What follows `--` is a script and its arguments, whatever of our own arguments was left out before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        left = super().parse_args(ctx, args[:end])
        ctx.params["script"] = (*ctx.params["script"], *args[end + 1 :])
        if (job := str(ctx.params.get("job", ""))).endswith(".py"):
            raise click.UsageError(f"{job} is a script and no job: write {ctx.command_path} -- {job}", ctx)
        return left


def inspection_options(function: Callable[..., None]) -> Callable[..., None]:
    """How the first steps of a script are run."""
    options = (
        click.option(
            "--gpu-batch",
            type=click.IntRange(1, 2**24),
            help="Hand this batch over, by placeholders, SCAV_GPU_BATCH or adapters. [default: the script's own]",
        ),
        click.option(
            "--samples-per-step",
            type=click.IntRange(1, 2**24),
            help="Where samples cannot be counted: those of one process in one optimizer step.",
        ),
        click.option(
            "--max-duration", default="10min", show_default=True, help="Report what was found by then and end it."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
