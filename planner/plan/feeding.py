"""What a plan says about feeding its GPUs: how fast samples are prepared, and whether that sets the pace."""

from __future__ import annotations

from planner.contract import Interval
from planner.inputs import Catalog, InputPipeline, InstanceType
from planner.models import WAITING, Configurations, FittedModels
from planner.plan.schema import Feeding
from planner.search import Candidate, configuration_of
from planner.units import format_count

_NEEDS = {
    "other": "what preparing a sample takes is not known, so it is not in hours and dollars",
    "tokens": "tokens are only read; without their source and bytes_per_sample that is not in hours and dollars",
    "tensors": "tensors are only read; without their source and bytes_per_sample that is not in hours and dollars",
}
_MEASURED = "; probes with the job's own data loader measure it"


def feeding_of(row: Candidate, models: FittedModels, catalog: Catalog) -> Feeding | None:
    """Of this candidate; None where the job file says nothing about its input."""
    pipeline, one = models.feeding.input, configuration_of(row, catalog)
    if pipeline is None:
        return None
    fed, taken = _rates(one, models)
    if fed is None:
        return Feeding(limits=False, by=None, samples_per_second=None, statement=_NEEDS[pipeline.kind] + _MEASURED)
    by = models.feeding.longest(one.instance_type)
    limits = fed.p50 < taken
    return Feeding(
        limits=limits,
        by=by,
        samples_per_second=fed,
        statement=_statement(one.instance_type, models, by=by, fed=fed, taken=taken, limits=limits),
    )


def waits(row: Candidate, models: FittedModels, catalog: Catalog) -> str | None:
    """In a few words, where the candidate's GPUs wait for data."""
    fed, taken = _rates(configuration_of(row, catalog), models)
    if fed is not None and fed.p50 < taken:
        return f"its GPUs wait for data ({_rate(fed.p50)} of {_rate(taken)} samples/s each)"
    return None if row.fed else "its GPUs may wait for data"


def _rates(one: Configurations, models: FittedModels) -> tuple[Interval | None, float]:
    """Samples a second for each GPU: prepared, and taken if none were late."""
    samples = float(one.gpu_batch[0] * one.accumulation_steps[0])
    taken = samples / float(models.computing_seconds(one).p50[0])
    each = models.feeding.seconds_per_sample(one.instance_type)
    fed = None if each is None else Interval(p05=1 / each.p95, p50=1 / each.p50, p95=1 / each.p05)
    return fed, taken


def _statement(
    instance_type: InstanceType, models: FittedModels, *, by: str, fed: Interval, taken: float, limits: bool
) -> str:
    prepared = f"{_rate(fed.p50)} samples/s ({_rate(fed.p05)} to {_rate(fed.p95)})"
    return (
        f"{'limits: ' if limits else ''}{_means(by, instance_type, models.feeding.input)} {prepared}, "
        f"a GPU {'could take' if limits else 'takes'} {_rate(taken)}; {_source(by, models)}"
    )


def _means(by: str, instance_type: InstanceType, pipeline: InputPipeline | None) -> str:
    reads = {"s3": "S3 through the node's network", "fsx": "FSx through the node's network", "volume": "a gp3 volume"}
    return {
        "processors": f"{instance_type.vcpu / instance_type.gpu_count:g} vCPUs per GPU prepare",
        "loader": "the data loader hands over",
        "storage": f"{reads[pipeline.source if pipeline and pipeline.source else 'volume']} delivers",
        WAITING: "the data loader was seen to deliver",
    }[by]


def _source(by: str, models: FittedModels) -> str:
    pipeline = models.feeding.input
    alone = pipeline.cpu_seconds_per_sample if pipeline else None
    if by == WAITING or (by == "loader" and models.feeding.few_workers_):
        return "probes waited for data" + "; more workers would help" * (by == "loader")
    if by == "storage":
        return "by its data sheet, and what is usual"
    if alone is None:
        return f"from a table of decoders (2026), a factor of three to either side{_MEASURED}"
    return f"from {alone * 1000:.3g} ms of a processor for a sample"


def _rate(samples_per_second: float) -> str:
    return format_count(samples_per_second) if samples_per_second >= 10 else f"{samples_per_second:.2g}"
