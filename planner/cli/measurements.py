"""`scav measurements`: what was measured of a job; drop some of it, or import what other tools logged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.confirm import confirm
from planner.cli.inputs import warn
from planner.cli.measurement_table import measurement_table
from planner.cli.options import PRECISIONS, catalog_option, job_argument, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import Catalog, Measurement


@click.group("measurements")
def command() -> None:
    """What was measured of a job: list it, drop some of it, import logs of other tools."""


@command.command("list")
@job_argument
@catalog_option
@json_option
def list_command(job: Path, catalog_file: Path | None, as_json: bool) -> None:
    """List the measurements of JOB, and which of them its plans use.

    A run is a script with its arguments and software, under a key that a change of any of them changes. What was
    measured before the newest run is kept, and not used.
    """
    import json

    opened = _Opened(job, catalog_file)
    if as_json:
        rows = [
            {"row": number, "unused": reason, **row.model_dump(mode="json", exclude_defaults=True)}
            for number, (row, reason) in enumerate(zip(opened.rows, opened.reasons, strict=True), start=1)
        ]
        click.echo(json.dumps({"file": str(opened.file), "measurements": rows}, indent=2))
        return
    opened.echo(range(len(opened.rows)))


@command.command()
@job_argument
@click.option("--row", "numbers", multiple=True, help="By number, as listed: 3, or 5..8; repeatable.")
@click.option("--run", "keys", multiple=True, help="Of the run with this key, or with one that begins so; repeatable.")
@click.option("--instance-type", "types", multiple=True, help="Of this type; repeatable.")
@click.option("--older", is_flag=True, help="Of runs before the newest, which plans do not use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def drop(
    job: Path, numbers: tuple[str, ...], keys: tuple[str, ...], types: tuple[str, ...], older: bool, yes: bool
) -> None:
    """Remove measurements of JOB from its measurements.jsonl; asks first.

    Those go that all given options mean. Dropping the newest run brings the one before it back into use.
    """
    from planner.errors import InputError
    from planner.inputs import parse_measurements, without_rows
    from planner.outside import store
    from planner.units import counted

    if not (numbers or keys or types or older):
        raise InputError("say which: --row, --run, --instance-type or --older")
    if "" in keys:
        raise InputError("an empty key begins every run's: name one", key="--run")
    opened = _Opened(job, None)
    wanted = _rows_numbered(numbers, len(opened.rows)) if numbers else None
    gone = [
        number
        for number, row in enumerate(opened.rows)
        if (wanted is None or number in wanted)
        and (not keys or (row.run_key or "").startswith(keys))
        and (not types or row.instance_type in types)
        and (not older or opened.older[number])
    ]
    if not gone:
        raise InputError("no measurement is meant", file=str(opened.file))
    opened.echo(gone, err=True)
    left = len(opened.rows) - len(gone)
    confirm(f"\nRemoves {counted(len(gone), 'measurement')} and leaves {left:,}.", yes=yes)
    if not (text := store.load_text(opened.file)).startswith(opened.text):
        raise InputError("was changed meanwhile; nothing was removed", file=str(opened.file))
    rows = parse_measurements(text, file=str(opened.file)).rows  # a probe may have added some
    store.write_text_atomically(opened.file, without_rows(text, rows, gone))
    click.echo(f"{opened.file} has {counted(len(rows) - len(gone), 'measurement')}.")


@command.command("import")
@click.argument("log", metavar="FILE", type=click.Path(path_type=Path))
@job_argument
@click.option(
    "--instance-type", help="What it ran on, g5.12xlarge; `local` for a machine that is not in the catalogue."
)
@click.option("--nodes", type=click.IntRange(1), help="How many of them.")
@click.option("--gpus-per-node", type=click.IntRange(1), help="GPUs that were used of each. [default: all]")
@click.option("--gpu-batch", type=click.IntRange(1), help="Samples per GPU and micro-step, where the log has none.")
@click.option(
    "--accumulation-steps", type=click.IntRange(1), help="Micro-steps per optimizer step, where the log has none."
)
@click.option("--precision", type=PRECISIONS, help="Arithmetic that it ran in. [default: the job's]")
@click.option(
    "--column",
    "columns",
    metavar="MEANING=NAME",
    multiple=True,
    help="Which column holds the step, time, seconds (of a step), gpu_batch or accumulation_steps; repeatable.",
)
@catalog_option
def import_command(
    log: Path,
    job: Path,
    instance_type: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    gpu_batch: int | None,
    accumulation_steps: int | None,
    precision: Any,
    columns: tuple[str, ...],
    catalog_file: Path | None,
) -> None:
    """Append what FILE, the log of a training run of JOB, says about its step time.

    FILE is Hugging Face's trainer_state.json, Lightning's metrics.csv, TensorBoard's event file, a run of W&B (CSV or
    JSON of its history, or a .wandb file) or of MLflow (its folder), a CSV with named columns, or a folder that holds
    one of them. A step's time is the median between log points, without warm-up. A log without a batch is refused
    unless options say it.
    """
    from planner.errors import InputError
    from planner.inputs import Said, imported
    from planner.outside import store
    from planner.outside.logs import load_log
    from planner.units import counted

    opened = _Opened(job, catalog_file)
    found = load_log(log, named_columns(columns))
    said = Said(instance_type, nodes, gpus_per_node, gpu_batch, accumulation_steps, precision)
    rows = [
        imported(run, said, found.source, catalog=opened.catalog, precision=opened.precision, file=str(log))
        for run in found.runs
    ]
    if not rows:
        raise InputError("holds no records of a run", file=str(log))
    for row in rows:
        if (known := next((n for n, old in enumerate(opened.rows, start=1) if _is_same(old, row)), None)) is not None:
            raise InputError(f"was imported before, as row {known} of {opened.file}", file=str(log))
    for row in rows:
        store.append_line(opened.file, row.model_dump_json(exclude_defaults=True))
    after = _Opened(job, catalog_file)
    after.echo(range(len(opened.rows), len(after.rows)))
    click.echo(f"\n{found.source.format}: {counted(len(rows), 'measurement')} added to {after.file}.")


class _Opened:
    """A job's measurements, and why some of them are not used."""

    def __init__(self, job: Path, catalog_file: Path | None) -> None:
        from planner.inputs import are_older
        from planner.outside import store

        job_file = store.load_job(job, {})
        folder = Path(job_file.file).parent
        self.file = folder / store.MEASUREMENTS_FILE
        self.text = store.load_text(self.file) if store.exists(self.file) else ""
        found, _ = store.load_measurements(self.file)
        warn(found.warnings)
        self.rows: Sequence[Measurement] = found.rows
        self.catalog: Catalog = store.load_catalog(catalog_file, beside=folder).catalog
        self.precision = job_file.job.workload.precision
        self.older = are_older(self.rows)
        self.reasons = [self._unused(row, older) for row, older in zip(self.rows, self.older, strict=True)]

    def _unused(self, row: Measurement, older: bool) -> str | None:
        from planner.inputs import unusable

        if older:
            return "something else was run since"
        return unusable(row, self.catalog, self.precision)

    def echo(self, numbers: Sequence[int], *, err: bool = False) -> None:
        if not numbers:
            click.echo(f"{self.file} has no measurements.", err=err)
            return
        chosen = [(number + 1, self.rows[number], self.reasons[number]) for number in numbers]
        click.echo("\n".join(measurement_table(chosen)), err=err)


def _is_same(old: Measurement, new: Measurement) -> bool:
    return old.imported_from == new.imported_from and old.model_dump() == new.model_dump()


def _rows_numbered(texts: Sequence[str], count: int) -> set[int]:
    """From 0, of `3` and `5..8`."""
    from planner.errors import InputError

    chosen: set[int] = set()
    for text in texts:
        low, dots, high = text.partition("..")
        ends = (low, high) if dots else (low, low)
        if not all(end.isascii() and end.isdigit() and 1 <= int(end[:9]) <= count for end in ends):
            raise InputError(f"{text!r} is no row from 1 to {count}, nor a range such as 5..8", key="--row")
        chosen |= set(range(int(ends[0]) - 1, int(ends[1])))
    return chosen


def named_columns(texts: Sequence[str]) -> dict[str, str]:
    from planner.errors import InputError
    from planner.inputs import MEANINGS

    named = {}
    for text in texts:
        meaning, equals, name = text.partition("=")
        if not equals or not name or meaning not in MEANINGS:
            raise InputError(f"{text!r} is not MEANING=NAME, with one of {', '.join(MEANINGS)}", key="--column")
        named[meaning] = name
    return named
