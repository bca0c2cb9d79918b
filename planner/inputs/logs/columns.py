"""Logs as records with named columns: TensorBoard, Lightning's and W&B's CSV, MLflow, and plain CSV.

Which column says what is known by the names that these tools use, or said by the user. A name that may mean the batch
of one GPU or of all (`batch_size`) is not believed.
"""

from __future__ import annotations

import csv
import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InputError
from planner.inputs.logs.logged_run import WARM_UP_STEPS, LoggedRun, LoggedStep, StepTime, step_time, summarized
from planner.inputs.logs.progress import LoggedProgress, progress_of

Record = Mapping[str, Any]
Columns = Mapping[str, str]  # what is meant -> the name of its column, as far as the user says

# In the order in which they are believed: W&B counts calls of its log function as `_step`, beside the trainer's own.
_NAMES = {
    "step": ("train/global_step", "trainer/global_step", "global_step", "step", "_step", "iteration", "iter"),
    "time": (
        *("wall_time", "_timestamp", "timestamp", "_runtime", "train/time", "time", "elapsed", "elapsed_seconds"),
        *("relative time (process)", "relative time (wall)"),
    ),
    "seconds": ("step_seconds", "step_time", "step_time_seconds", "seconds_per_step"),
    "gpu_batch": (
        *("gpu_batch", "per_device_train_batch_size", "micro_batch_size"),
        *("micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"),
    ),
    "accumulation_steps": ("accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"),
    "samples": ("train/samples",),  # of Lightning's ThroughputMonitor: so far, on one process
    "batches": ("train/batches",),
}
MEANINGS = ("step", "time", "seconds", "gpu_batch", "accumulation_steps")  # those that a user may name a column for
_UNCLEAR = ("batch_size", "train_batch_size", "batch")
_CLUSTER = ("instance_type", "nodes", "gpus_per_node", "precision")
_COMMA = re.compile(r"[-+]?\d+(,\d+)+(\.\d*)?")
_MILLISECONDS_FROM = 1e11  # as seconds that would be the year 5138


def parse_csv(text: str, *, file: str) -> list[Record]:
    lines = text.splitlines(keepends=True)
    first = lines[0] if lines else ""
    delimiter = ";" if ";" in first and "," not in first else ","  # as spreadsheets write it where a comma is decimal
    reader = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        records: list[Record] = [{str(name).strip(): value for name, value in row.items()} for row in reader]
    except csv.Error as error:
        raise InputError(f"is no CSV: {error}", file=file, line=reader.line_num) from None
    if not records:
        raise InputError("has no rows below its first line, which names the columns", file=file)
    return records


def logged_runs(
    records: Sequence[Record], *, columns: Columns, settings: Record | None = None, file: str
) -> list[LoggedRun]:
    """One for every configuration that the records name; `settings` are what the tool kept beside its log."""
    by_meaning = _columns(records, columns, file)
    _refuse_commas(records, by_meaning, file)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(_text(record, by_meaning, name) for name in _grouping(by_meaning)), []).append(record)
    return [_logged_run(group, by_meaning, settings or {}, file) for group in groups.values()]


def logged_progress(records: Sequence[Record], *, columns: Columns, file: str) -> LoggedProgress:
    """All of them as one run, with every value that has a step."""
    by_meaning = _columns(records, columns, file)
    if "step" not in by_meaning:
        raise InputError("no column says the step of its rows: name it with --column step=NAME", file=file)
    step, time = by_meaning["step"], by_meaning.get("time")
    known = {*by_meaning.values()}
    points, values = [], []
    for record in records:
        if (at := _number(record.get(step))) is None:
            continue
        if time is not None and (seconds := _time(record.get(time))) is not None:
            points.append(LoggedStep(at, seconds))
        values += [
            (name, at, number)
            for name, value in record.items()
            if name not in known and (number := _number(value)) is not None
        ]
    last = [number for record in records if (number := _number(record.get(step))) is not None]
    return progress_of(last, points, values, file=file)


def _columns(records: Sequence[Record], said: Columns, file: str) -> dict[str, str]:
    """What is meant -> a column that is there."""
    present = {name.lower(): name for record in records for name in record}
    if lost := next((name for name in said.values() if name not in present.values()), None):
        shown = ", ".join(list(present.values())[:8])
        raise InputError(f"has no column {lost}; there are {shown}", file=file)
    found = {
        meaning: present[name]
        for meaning, names in _NAMES.items()
        if (name := next((name for name in names if name in present), None)) is not None
    }
    return {**found, **{name: present[name] for name in _CLUSTER if name in present}, **said}


def _refuse_commas(records: Sequence[Record], columns: Mapping[str, str], file: str) -> None:
    """`1,234` is a thousand to some and one and a quarter to others."""
    for record in records:
        for meaning, name in columns.items():
            if meaning not in ("instance_type", "precision") and _COMMA.fullmatch(str(record.get(name)).strip()):
                raise InputError(f"column {name} says {record[name]}: write numbers without a comma, 0.25", file=file)


def _grouping(columns: Mapping[str, str]) -> list[str]:
    return [name for name in (*_CLUSTER, "gpu_batch", "accumulation_steps") if name in columns]


def _logged_run(records: Sequence[Record], columns: Mapping[str, str], settings: Record, file: str) -> LoggedRun:
    batches, micro_steps = _monitored(records, columns)
    first = {name: _text(records[0], columns, name) for name in _grouping(columns)}
    return LoggedRun(
        step_time=_step_time(records, columns, file),
        gpu_batch=_count(first.get("gpu_batch")) or _setting(settings, "gpu_batch") or batches,
        accumulation_steps=_count(first.get("accumulation_steps"))
        or _setting(settings, "accumulation_steps")
        or micro_steps,
        cluster=tuple((name, first[name]) for name in _CLUSTER if first.get(name)),
        batch_hint=_hint([*records[:1], settings]),
    )


def _step_time(records: Sequence[Record], columns: Mapping[str, str], file: str) -> StepTime:
    """From the seconds of steps where a column has them, else from when they were logged."""
    if "seconds" in columns:
        measured = [number for record in records if (number := _number(record.get(columns["seconds"])))]
        if not measured:
            raise InputError(f"column {columns['seconds']} has no seconds in it", file=file)
        if "step" in columns:  # a line for every step; else for every configuration, warm-up excluded
            measured = measured[WARM_UP_STEPS:] or measured[1:] or measured
        return summarized(measured)
    if lacking := next((meaning for meaning in ("step", "time") if meaning not in columns), None):
        advice = f"name it with --column {lacking}=NAME"
        others = " or, of a step, --column seconds=NAME, or train with lightning's ThroughputMonitor"
        hint = others if lacking == "time" else ""
        raise InputError(f"no column says the {lacking} of its rows: {advice}{hint}", file=file)
    pairs = [(_number(record.get(columns["step"])), _time(record.get(columns["time"]))) for record in records]
    points = [LoggedStep(step, seconds) for step, seconds in pairs if step is not None and seconds is not None]
    if not points:
        raise InputError(f"no row has both {columns['step']} and {columns['time']}", file=file)
    return step_time(points, file=file)


def _monitored(records: Sequence[Record], columns: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Samples per batch, and batches per optimizer step, as ThroughputMonitor counted them."""
    if not {"samples", "batches", "step"} <= set(columns):
        return None, None
    names = ("samples", "batches", "step")
    counted = [[_number(record.get(columns[name])) for name in names] for record in records]
    whole = [[value for value in row if value is not None] for row in counted if None not in row]
    if len(whole) < 2:
        return None, None
    samples, batches, steps = (last - first for first, last in zip(whole[0], whole[-1], strict=True))
    return (_whole(samples, batches), _whole(batches, steps))


def _whole(amount: float, parts: float) -> int | None:
    """Where it divides evenly: another last batch of an epoch leaves the answer open."""
    return round(amount / parts) if parts > 0 and amount > 0 and amount % parts == 0 else None


def _setting(settings: Record, meaning: str) -> int | None:
    by_name = {name.lower().rpartition("/")[2]: value for name, value in settings.items()}
    return next((count for name in _NAMES[meaning] if (count := _count(by_name.get(name)))), None)


def _hint(places: Sequence[Record]) -> str:
    for place in places:
        for name, value in place.items():
            if name.lower() in _UNCLEAR and _count(value):
                return f"; {name} is {_count(value)}, but of one GPU or of all?"
    return ""


def _text(record: Record, columns: Mapping[str, str], meaning: str) -> str:
    value = record.get(columns[meaning])
    return "" if value is None else str(value).strip()


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number and 0 < number <= 2**24 and number.is_integer() else None


def _number(value: object) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e20 else None


def _time(value: object) -> float | None:
    """Seconds, milliseconds since 1970, or a date with its time."""
    number = _number(value)
    if number is not None:
        return number / 1000 if number > _MILLISECONDS_FROM else number
    try:
        moment = datetime.datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
