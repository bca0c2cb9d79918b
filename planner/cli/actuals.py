"""`scav actuals`: what a plan predicted against what its run took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.inputs import dollars, duration
from planner.cli.options import catalog_option, format_option, workspace_argument

if TYPE_CHECKING:
    from planner.outside.logs import Log
    from planner.plan import MetricTarget, ObservedRun, Plan


@click.command("actuals")
@workspace_argument
@click.option(
    "--log", required=True, type=click.Path(path_type=Path), help="Of the run, as `scav measurements import` reads it."
)
@click.option("--target", "target_text", metavar="METRIC<=VALUE", help="What it is trained for: eval_loss<=2.1")
@click.option("--hours", help="How long it ran so far, 3h20min. [default: by the times in the log]")
@click.option("--usd", help="What it cost so far, $12. [default: its hours at the plan's prices]")
@click.option(
    "--finished/--running",
    default=None,
    help="Whether it has ended. [default: at the target, else at the planned samples]",
)
@click.option(
    "--column", "columns", metavar="MEANING=NAME", multiple=True, help="As of `scav measurements import`; repeatable."
)
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    envvar="SCAV_HISTORY",
    help="Folder of the ledger outcomes.jsonl, which finished jobs are added to. [default: scav's data folder]",
)
@click.option("--no-record", is_flag=True, help="Leave the ledger as it is.")
@click.option("--job", type=click.Path(path_type=Path), help="Add the measured step to measurements.jsonl of this job.")
@format_option
@catalog_option
def command(
    workspace: Path,
    log: Path,
    target_text: str | None,
    hours: str | None,
    usd: str | None,
    finished: bool | None,
    columns: tuple[str, ...],
    history: Path | None,
    no_record: bool,
    job: Path | None,
    form: str,
    catalog_file: Path | None,
) -> None:
    """Compare what was predicted in DIR with what its run took, by its log.

    Of a finished run: hours, dollars, samples, step time, and memory where the log has it, and whether each is in its
    90 % interval; it is added to a ledger, and the coverage over all jobs in it is shown. Of a running one: what it
    will take, by its pace and, with --target, by its loss curve.
    """
    from planner.cli.measurements import named_columns
    from planner.outside import store
    from planner.plan import actuals_markdown, actuals_text, compare, coverage, is_known, outcome, parse_metric_target

    plan = store.load_plan(workspace)
    target = None if target_text is None else parse_metric_target(target_text)
    named = named_columns(columns)
    timed, why_untimed = _timed(log, named)
    run = _observed(
        plan,
        log,
        named,
        timed,
        why_untimed,
        target,
        hours=None if hours is None else duration("--hours", hours),
        usd=None if usd is None else dollars("--usd", usd),
        finished=finished,
    )
    found = compare(plan, run, target)
    ledger = (history or store.data_folder()) / store.OUTCOMES_FILE
    known = store.load_outcomes(ledger)
    if found.state == "finished":
        new = outcome(plan, found, source_sha256=run.sha256, date=store.today())
        if not is_known(new, known):
            known = [*known, new]
            if not no_record:
                store.append_outcome(ledger, new)
    found = found.model_copy(update={"coverage": coverage(known)})
    if form == "json":
        click.echo(found.model_dump_json(indent=2))
    else:
        click.echo((actuals_text if form == "text" else actuals_markdown)(plan, found), nl=False)
    if found.state == "finished" and not no_record:
        click.echo(f"Ledger: {ledger}", err=True)
    if job is not None:
        _remember(plan, job, timed, why_untimed, log, catalog_file)


def _timed(log: Path, columns: dict[str, str]) -> tuple[Log | None, str]:
    """A log from which no step time follows may still say how far the run got."""
    from planner.errors import InputError
    from planner.outside.logs import load_log

    try:
        return load_log(log, columns), ""
    except InputError as error:
        return None, str(error)


def _observed(
    plan: Plan,
    log: Path,
    columns: dict[str, str],
    timed: Log | None,
    why_untimed: str,
    target: MetricTarget | None,
    *,
    hours: float | None,
    usd: float | None,
    finished: bool | None,
) -> ObservedRun:
    from planner.outside.logs import load_progress
    from planner.plan import ObservedRun, metric_curve

    followed = load_progress(log, columns)
    progress, batch = followed.progress, plan.choice.global_batch
    logged = None if progress.seconds is None else progress.seconds / 3600
    curve = None if target is None else metric_curve(progress.values, target, batch, str(log))
    memory = progress.peak_memory_bytes
    return ObservedRun(
        source=f"{followed.source.format}, {followed.source.file}",
        sha256=followed.source.sha256,
        samples=progress.steps * batch,
        hours=logged if hours is None else hours,
        usd=usd,
        step_seconds=timed.runs[0].step_time.p50 if timed and len(timed.runs) == 1 else None,
        peak_memory_gib=None if memory is None else memory / 2**30,
        ended=True if finished is None and progress.ended else finished,
        curve=curve,
        notes=_notes(why_untimed, untold=hours is None and logged is None),
    )


def _notes(why_untimed: str, *, untold: bool) -> tuple[str, ...]:
    notes = [f"no step time: {why_untimed}"] if why_untimed else []
    return (*notes, *(["no hours in the log: --hours says them"] if untold else []))


def _remember(plan: Plan, job: Path, timed: Log | None, why_untimed: str, log: Path, catalog_file: Path | None) -> None:
    """The cluster is the plan's; what the log says of it must agree."""
    from planner.errors import InputError
    from planner.inputs import Said, imported
    from planner.outside import store

    if timed is None:
        raise InputError(f"nothing was added to the measurements: {why_untimed}")
    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    catalog = store.load_catalog(catalog_file, beside=folder).catalog
    choice, file = plan.choice, folder / store.MEASUREMENTS_FILE
    said = Said(
        choice.instance_type,
        choice.node_count,
        choice.gpus_per_node,
        choice.gpu_batch,
        choice.accumulation_steps,
        None,
    )
    precision = job_file.job.workload.precision
    rows = [
        imported(run, said, timed.source, catalog=catalog, precision=precision, file=str(log)) for run in timed.runs
    ]
    known = store.load_measurements(file)[0].rows
    for row in rows:
        spread = row.model_copy(update={"strategy": choice.strategy})
        if spread not in known:
            store.append_line(file, spread.model_dump_json(exclude_defaults=True))
    click.echo(f"Measured step: in {file}, for the next plan", err=True)
