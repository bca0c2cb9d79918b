"""The measurement that follows from a log and from what its user says of the cluster; one line where it does not."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from planner.contract import first_fault
from planner.errors import InputError
from planner.inputs.catalog.selection import named_instance_type
from planner.inputs.catalog.tables import Catalog, Precision
from planner.inputs.logs.logged_run import LoggedRun
from planner.inputs.measurements import LOCAL, ImportedFrom, Measurement

_MOST_NODES = 1024  # as in a job file
_SAME_COUNT = 0.02  # samples and steps per second are rounded where they were logged


class Said(NamedTuple):
    """What options say; None where they say nothing."""

    instance_type: str | None
    nodes: int | None
    gpus_per_node: int | None
    gpu_batch: int | None
    accumulation_steps: int | None
    precision: Precision | None


def imported(
    run: LoggedRun, said: Said, source: ImportedFrom, *, catalog: Catalog, precision: Precision, file: str
) -> Measurement:
    """`precision` is the job's. What log and options both say must be the same."""
    cluster: dict[str, Any] = dict(run.cluster)
    for key in ("instance_type", "nodes", "gpus_per_node", "precision"):
        cluster[key] = _agreed(key, cluster.get(key), getattr(said, key), file)
    for key in ("instance_type", "nodes"):
        if cluster[key] is None:
            raise InputError(f"say where it ran: {_option(key)}", file=file)
    if cluster["gpus_per_node"] is None:
        if cluster["instance_type"] == LOCAL:
            raise InputError(f"say on how many: {_option('gpus_per_node')}", file=file)
        cluster["gpus_per_node"] = named_instance_type(catalog, str(cluster["instance_type"])).gpu_count
    cluster["precision"] = cluster["precision"] or precision
    gpu_batch = _agreed("gpu_batch", run.gpu_batch, said.gpu_batch, file)
    if gpu_batch is None:
        raise InputError(f"says no batch of one GPU: add {_option('gpu_batch')}{run.batch_hint}", file=file)
    record = {**cluster, "gpu_batch": gpu_batch, "batch_source": "imported", "imported_from": source, **_timed(run)}
    row = _checked(record, file)
    if row.nodes > _MOST_NODES:
        raise InputError(f"{row.nodes:,} nodes: scav plans up to {_MOST_NODES:,}; how many ran it?", file=file)
    steps = _agreed("accumulation_steps", _micro_steps(run, row, file), said.accumulation_steps, file)
    if steps is None:
        advice = f"add {_option('accumulation_steps')}, 1 where each batch is one step"
        raise InputError(f"does not say how many batches one optimizer step takes: {advice}", file=file)
    return _checked({**record, "accumulation_steps": steps}, file)


def _timed(run: LoggedRun) -> dict[str, Any]:
    timed = {
        "step_seconds": run.step_time.p50,
        "step_seconds_p90": run.step_time.p90,
        "window_variation": run.step_time.variation,
        "windows": run.step_time.intervals,
    }
    return {key: value for key, value in timed.items() if value is not None}


def _micro_steps(run: LoggedRun, row: Measurement, file: str) -> int | None:
    """As logged; or what the global batch leaves beside GPUs and their batch."""
    if run.accumulation_steps is not None or run.global_batch is None:
        return run.accumulation_steps
    at_once = row.nodes * row.gpus_per_node * row.gpu_batch
    steps = max(round(run.global_batch / at_once), 1)
    if abs(run.global_batch / (at_once * steps) - 1) <= _SAME_COUNT:
        return steps
    counted = f"{row.nodes} x {row.gpus_per_node} GPUs at batch {row.gpu_batch:,}"
    raise InputError(f"has {run.global_batch:,.0f} samples in a step, no multiple of {counted}: which ran?", file=file)


def _agreed(key: str, logged: object, said: object, file: str) -> Any:
    if logged in (None, ""):
        return said
    if said is not None and str(said) != str(logged):
        raise InputError(f"says {key} {logged}, and {_option(key)} says {said}", file=file)
    return logged


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _checked(record: dict[str, Any], file: str) -> Measurement:
    try:
        return Measurement.model_validate(record)
    except ValidationError as error:
        fault = first_fault(error, Measurement)
        raise InputError(fault.message, file=file, key=fault.key) from None
