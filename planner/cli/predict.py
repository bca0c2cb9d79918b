"""`scav predict`: hours and dollars of a configuration that the user names, or of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.inputs import load_inputs, warn
from planner.cli.options import (
    catalog_option,
    history_option,
    job_argument,
    json_option,
    spot_history_age_option,
    spot_history_option,
)

if TYPE_CHECKING:
    from planner.inputs import CountRange, PlanInputs
    from planner.plan import ForecastRequest
    from planner.search import Survey

MOST_NODES = 1024  # as in the job file


@click.command("predict")
@job_argument
@click.option("--instance-type", help="What to predict for. [default: what scav plan would choose]")
@click.option("--nodes", help="How many machines; for --sweep nodes a range: 1..16. [default: as planned, or 1]")
@click.option("--gpu-batch", help="Samples per GPU and micro-step. [default: what suits the objective best]")
@click.option("--global-batch", help="Samples per step on all GPUs; for --sweep batch a range: 256..4096.")
@click.option(
    "--strategy",
    metavar="SHARDING[,KEY=N…]",
    help="How a transformer is spread: ddp, zero1, zero2, fsdp or hsdp, and tensor_parallel=2, pipeline=2, "
    "recompute=full. [default: what suits the objective best]",
)
@click.option(
    "--spot/--on-demand",
    default=None,
    help="Spot nodes have one on-demand node among several. [default: as planned, or on-demand]",
)
@click.option("--sweep", type=click.Choice(["nodes", "batch"]), help="A row for each number of nodes or global batch.")
@click.option(
    "--mixed",
    is_flag=True,
    help="The best gang of two instance types, where it beats one type: under quotas. Told only; plans rent one type.",
)
@catalog_option
@history_option
@spot_history_option
@spot_history_age_option
@json_option
@click.option("--plot", is_flag=True, help="Draw the sweep in the terminal.")
@click.option(
    "--plot-file",
    type=click.Path(path_type=Path),
    help="Draw the sweep to a file, .svg or .png. Needs scav-planner[report].",
)
def command(
    job: Path,
    catalog_file: Path | None,
    history: Path | None,
    spot_history: Path | None,
    spot_history_age: str | None,
    as_json: bool,
    plot: bool,
    plot_file: Path | None,
    sweep: str | None,
    mixed: bool,
    **options: str | bool | None,
) -> None:
    """Predict hours and dollars of JOB on a cluster, with 90 % intervals.

    Without --instance-type, for the cluster that `scav plan` would choose. Beside them stand step time, samples
    to the target, parallel and statistical efficiency, and whether anything like it was ever measured.
    """
    from planner.cli import sweep_plot
    from planner.plan import (
        forecast_mixed,
        forecast_text,
        format_forecasts,
        mixed_json,
        mixed_text,
        predict_one,
        sweep_batch,
        sweep_nodes,
        sweep_text,
    )
    from planner.search import take_survey

    if mixed:
        _refuse_beside_mixed(sweep=sweep, **options)
    if plot or plot_file:
        _check_plot(sweep, plot_file)
    inputs = load_inputs(
        job, {}, catalog_file, history=history, spot_history=spot_history, spot_history_age=spot_history_age
    )
    survey = take_survey(inputs)
    warn(survey.models.warnings)
    if mixed:
        found = forecast_mixed(inputs, survey)
        click.echo(mixed_json(inputs, found) + "\n" if as_json else mixed_text(found), nl=False)
        return
    request = _request(inputs, survey, sweep, options)
    if sweep is None:
        rows = [predict_one(inputs, survey, request)]
    else:
        rows = (sweep_nodes if sweep == "nodes" else sweep_batch)(inputs, survey, request)
    if plot_file:
        sweep_plot.write_sweep_plot(plot_file, rows, sweep or "")
    if as_json:
        click.echo(format_forecasts(inputs, rows))
        return
    click.echo(sweep_text(rows) if sweep else forecast_text(rows[0]), nl=False)
    if plot:
        click.echo("\n" + sweep_plot.sweep_plot(rows, sweep or ""), nl=False)


def _refuse_beside_mixed(**options: str | bool | None) -> None:
    from planner.errors import InputError

    named = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if named:
        raise InputError(f"looks for the best by itself: leave out {', '.join(named)}", key="--mixed")


def _check_plot(sweep: str | None, file: Path | None) -> None:
    from planner.errors import InputError

    if sweep is None:
        raise InputError("a plot shows a sweep: add --sweep nodes or --sweep batch")
    if file is not None and file.suffix not in {".svg", ".png"}:
        raise InputError("must end in .svg or .png", key="--plot-file")


def _request(
    inputs: PlanInputs, survey: Survey, sweep: str | None, options: dict[str, str | bool | None]
) -> ForecastRequest:
    """The options as numbers."""
    from planner.errors import InputError
    from planner.inputs import LARGEST_BATCH, parse_strategy
    from planner.plan import Named, forecast_request

    gpu_batch = _counts("--gpu-batch", options["gpu_batch"], LARGEST_BATCH, swept=False)
    if sweep == "batch" and gpu_batch:
        raise InputError("is what --sweep batch varies; give one of them", key="--gpu-batch")
    named = Named(
        instance_type=None if options["instance_type"] is None else str(options["instance_type"]),
        nodes=_counts("--nodes", options["nodes"], MOST_NODES, swept=sweep == "nodes"),
        gpu_batch=gpu_batch.low if gpu_batch else None,
        global_batch=_counts("--global-batch", options["global_batch"], LARGEST_BATCH, swept=sweep == "batch"),
        spot=None if options["spot"] is None else bool(options["spot"]),
        strategy=None if options["strategy"] is None else parse_strategy(str(options["strategy"])),
    )
    return forecast_request(inputs, survey, named, sweep=sweep)


def _counts(option: str, text: str | bool | None, largest: int, *, swept: bool) -> CountRange | None:
    """One number, or a range where that is swept."""
    from planner.errors import InputError
    from planner.inputs import CountRange
    from planner.units import parse_count_range

    if text is None:
        return None
    try:
        found = CountRange(*parse_count_range(text))
    except ValueError as error:
        raise InputError(str(error), key=option) from None
    if found.high > largest:
        raise InputError(f"{found.high:,} is beyond what scav predicts ({largest:,})", key=option)
    if found.low < found.high and not swept:
        raise InputError("a range is for a sweep; give one number", key=option)
    return found
