"""What the choice holds of a GPU's memory, and which types cannot hold the job however it is spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product

from planner.contract import Interval
from planner.inputs import Catalog, InstanceType, Job
from planner.models import (
    GIB,
    FittedModels,
    Peak,
    ShardedMemoryModel,
    Strategy,
    allocated_interval,
    fit_probability,
    moments,
    peak_memory,
)
from planner.plan.schema import Memory, MemoryParts
from planner.plan.strategy_words import strategy_words
from planner.search import Candidate, configuration_of
from planner.units import format_probability

_SHOWN = 0.05  # of what is allocated: a smaller part is not named
_WORDS = {"gathered": "gathered weights", "optimizer": "optimizer state", "logits": "logits and loss"}


def memory_of(row: Candidate, models: FittedModels, catalog: Catalog) -> Memory | None:
    """None where the job file has no shape."""
    if not isinstance(models.memory, ShardedMemoryModel):
        return None
    one = configuration_of(row, catalog)
    peak = peak_memory(models.memory.shape, models.memory.strategy_of(one))
    calibration, memory_gib = models.memory.calibration_, one.gpu.memory_gib
    low, middle, high = (size / GIB for size in allocated_interval(peak.parts.total, calibration))
    probability = fit_probability(peak.parts.total, memory_gib, calibration=calibration)
    said = f"{middle:.0f} of {memory_gib:.0f} GiB ({low:.0f} to {high:.0f}) at the {peak.moment}: {_parts(peak)}"
    return Memory(
        gpu_gib=memory_gib,
        allocated_gib=Interval(p05=low, p50=middle, p95=high),
        moment=peak.moment,
        parts=MemoryParts(**{name: size / GIB for name, size in asdict(peak.parts).items()}),
        probability=probability,
        statement=f"{said}; fits with {format_probability(probability)}",
    )


def too_small(
    job: Job, models: FittedModels, catalog: Catalog, too_small: Sequence[InstanceType], of_types: int
) -> str | None:
    """`39 of 51 types left out: 112 GiB of state and 18 GiB of activations do not fit 80 GiB even …`."""
    memory = models.memory
    if not isinstance(memory, ShardedMemoryModel) or not too_small:
        return None
    largest = max(
        too_small,
        key=lambda instance_type: (
            catalog.gpu_of(instance_type).memory_gib,
            instance_type.gpu_count,
            instance_type.name,
        ),
    )
    leanest = _leanest(job, memory, largest)
    needed = allocated_interval(peak_memory(memory.shape, leanest).parts.total, memory.calibration_)
    kept = max(peak.parts.activations + peak.parts.logits for peak in moments(memory.shape, leanest)) / GIB
    state = f"{memory.state_bytes / GIB:,.0f} GiB of state and {kept:,.1f} GiB of activations"
    return (
        f"{len(too_small)} of {of_types} types left out: {state} do not fit "
        f"{catalog.gpu_of(largest).memory_gib:,.0f} GiB even with "
        f"{strategy_words(leanest)}, which takes {needed.p50 / GIB:,.0f} GiB of each, or up to "
        f"{needed.p95 / GIB:,.0f} ({largest.name})"
    )


def _leanest(job: Job, memory: ShardedMemoryModel, instance_type: InstanceType) -> Strategy:
    """The way that needs least, on the most nodes."""
    options, gpus = job.workload.strategies_or_default, job.constraints.nodes.high * instance_type.gpu_count
    shape = memory.shape
    whole = replace(memory.job, gpus=gpus, gpus_per_node=instance_type.gpu_count, recompute=options.recompute[-1])
    ways = [
        replace(whole, sharding=sharding, tensor_parallel=t, pipeline=p)
        for sharding, t, p in product(
            options.sharding,
            {1, min(options.tensor_parallel, instance_type.gpu_count)},
            {1, min(options.pipeline, shape.layers)},
        )
        if gpus % (t * p) == 0
    ]
    return min(ways, key=lambda way: (peak_memory(shape, way).parts.total, way.tensor_parallel, way.pipeline))


def _parts(peak: Peak) -> str:
    sizes = sorted(asdict(peak.parts).items(), key=lambda part: -part[1])
    large = [(name, size) for name, size in sizes if size > _SHOWN * peak.parts.total]
    return ", ".join(f"{_WORDS.get(name, name)} {size / GIB:.1f}" for name, size in large)
