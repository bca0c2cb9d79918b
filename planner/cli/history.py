"""`scav history`: finished jobs beside what was planned of them, here and from colleagues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import catalog_option, job_argument, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from planner.plan import Outcome

ledger_option = click.option(
    "--history",
    type=click.Path(path_type=Path),
    envvar="SCAV_HISTORY",
    help="Folder of the ledger outcomes.jsonl. [default: scav's data folder]",
)


@click.group("history")
def command() -> None:
    """What finished jobs took beside what was planned of them."""


@command.command("list")
@ledger_option
@json_option
def list_command(history: Path | None, as_json: bool) -> None:
    """List the jobs that `scav actuals` has recorded, and how well their plans held."""
    from planner.plan import history_list

    known = _load(history)
    if as_json:
        _print_json(known)
    else:
        click.echo("\n".join(history_list(known) if known else ["No finished job is recorded: scav actuals does it."]))


@command.command("like")
@job_argument
@click.option(
    "--history", type=click.Path(path_type=Path), envvar="SCAV_HISTORY", required=True, help="Folder of the other jobs."
)
@catalog_option
def like_command(job: Path, history: Path, catalog_file: Path | None) -> None:
    """List the other jobs that were measured, those most like JOB first."""
    from planner.cli.inputs import load_inputs
    from planner.plan import other_jobs_text

    inputs = load_inputs(job, {}, catalog_file, history=history)
    click.echo("\n".join(other_jobs_text(inputs.job_file.job.workload, inputs.history)))


@command.command("show")
@click.argument("name")
@ledger_option
@json_option
def show_command(name: str, history: Path | None, as_json: bool) -> None:
    """Show what was planned and what was, of the jobs with this NAME or id."""
    from planner.plan import history_entry

    found = _named(_load(history), (name,))
    if as_json:
        _print_json(found)
    else:
        click.echo("\n\n".join("\n".join(history_entry(job)) for job in found))


@command.command("prune")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--before", type=click.DateTime(["%Y-%m-%d"]), help="Also all that ended before this day, 2026-01-31.")
@ledger_option
def prune_command(names: tuple[str, ...], before: datetime | None, history: Path | None) -> None:
    """Remove the jobs with these names or ids, and those of before a day."""
    from planner.errors import InputError
    from planner.outside import store
    from planner.plan import ended_before
    from planner.units import counted

    if not names and before is None:
        raise InputError("say which: NAME, the id that scav history list shows, or --before 2026-01-31")
    known = _load(history)
    gone = [*_named(known, names)] if names else []
    gone += ended_before(known, before.date()) if before is not None else []
    left = [job for job in known if job not in gone]
    store.write_outcomes(_ledger(history), left)
    click.echo(f"{counted(len(known) - len(left), 'job')} removed, {len(left):,} left")


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@ledger_option
def export_command(file: Path, history: Path | None) -> None:
    """Write all jobs to FILE, for `scav history merge` elsewhere."""
    from planner.errors import InputError
    from planner.outside import store
    from planner.units import counted

    if store.exists(file):
        raise InputError("is there already", file=str(file))
    known = _load(history)
    store.write_outcomes(file, known)
    click.echo(f"{counted(len(known), 'job')} in {file}")


@command.command("merge")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
def merge_command(files: tuple[Path, ...], history: Path | None) -> None:
    """Add the jobs of FILEs that others exported; the same run counts once, and figures that cannot be are named."""
    from planner.cli.inputs import warn
    from planner.errors import InputError
    from planner.outside import store
    from planner.plan import merged, oddities
    from planner.units import counted

    if missing := next((file for file in files if not store.exists(file)), None):
        raise InputError("no such file", file=str(missing))
    known = _load(history)
    whole = merged(known, [job for file in files for job in store.load_outcomes(file)])
    new = whole[len(known) :]
    store.write_outcomes(_ledger(history), whole)
    warn([f"{job.id}: {odd}" for job in new for odd in oddities(job)])
    click.echo(f"{counted(len(new), 'job')} added, {len(whole):,} in all")


def _ledger(history: Path | None) -> Path:
    from planner.outside import store

    return (history or store.data_folder()) / store.OUTCOMES_FILE


def _load(history: Path | None) -> list[Outcome]:
    from planner.outside import store

    return store.load_outcomes(_ledger(history))


def _named(known: Sequence[Outcome], names: Sequence[str]) -> list[Outcome]:
    from planner.errors import InputError

    for name in names:
        if not any(name in (job.job, job.id) for job in known):
            raise InputError(f"no finished job is called {name!r}, nor has it as its id: scav history list")
    return [job for job in known if job.job in names or job.id in names]


def _print_json(outcomes: Sequence[Outcome]) -> None:
    import json

    click.echo(json.dumps([{"id": job.id, **job.model_dump(mode="json")} for job in outcomes], indent=2))
