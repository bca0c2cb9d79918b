"""What a job holds of a GPU's memory: of one instance type in parts, or of every GPU of the catalogue in a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from typing import Any, NamedTuple

from planner.contract import six_digits
from planner.errors import InputError
from planner.inputs import (
    Catalog,
    Gpu,
    InstanceType,
    Job,
    Measurement,
    TracedPeak,
    TransformerShape,
    named_instance_type,
)
from planner.models import (
    CONTEXT_GIB,
    GIB,
    SHIPPED,
    TRACED,
    Calibration,
    MemoryInterval,
    MemoryModel,
    Peak,
    ShardedMemoryModel,
    Strategy,
    Way,
    allocated_interval,
    check_strategy,
    fit_probability,
    job_strategy,
    model_parameters,
    peak_memory,
    reserved_interval,
    ways_to_fit,
)
from planner.units import counted

SIMILAR = 1.1  # within which parameters are of the same model: formulas leave out positions and biases


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Of one instance type, in bytes where nothing else is said."""

    instance_type: str
    gpu: str
    memory_gib: float
    nodes: int
    parameters: int
    strategy: Strategy
    peak: Peak
    allocated: MemoryInterval
    reserved: MemoryInterval
    probability: float
    confidence: float
    ways: tuple[Way, ...] = ()
    traced: TracedPeak | None = None

    @property
    def fits(self) -> bool:
        return self.probability >= self.confidence

    @property
    def traced_over_formula(self) -> float | None:
        return None if self.traced is None else self.traced.peak_bytes / self.peak.parts.total


class FlatRow(NamedTuple):
    """Of a job without a shape: what the job file and measurements say, in samples."""

    instance_type: str
    gpu: str
    memory_gib: float
    needed_gib: float
    largest_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuestion:
    """What the user names; `options` are those of a `Strategy` that were given."""

    instance_type: str | None
    nodes: int
    varying: bool
    options: Mapping[str, Any]


def memory_reports(
    job: Job,
    catalog: Catalog,
    measurements: Sequence[Measurement],
    question: MemoryQuestion,
    traced: TracedPeak | None = None,
) -> list[MemoryReport]:
    """One for the named instance type, else one for each GPU model, on its machine with most GPUs."""
    shape = _shape_of(job)
    model = ShardedMemoryModel(job.workload, shape, catalog, job.constraints.confidence).fit(measurements)
    if question.instance_type is not None:
        named, strategy = asked_training(job, catalog, question)
        return [_report(job, catalog, named, strategy, question, model.calibration_, traced)]
    largest = _largest_machines(catalog)
    t = int(question.options.get("tensor_parallel", 1))
    fitting = [machine for machine in largest if machine.gpu_count >= t]
    if not fitting:
        raise InputError(f"{t} is beyond every node of the catalogue", key="--tensor-parallel")
    return [
        _report(job, catalog, machine, _strategy(job, shape, machine, question), question, model.calibration_)
        for machine in fitting
    ]


def asked_training(job: Job, catalog: Catalog, question: MemoryQuestion) -> tuple[InstanceType, Strategy]:
    """Where, and how: of a question that names the instance type."""
    if question.instance_type is None:
        raise InputError("is of one cluster: name it with --instance-type", key="--trace")
    machine = named_instance_type(catalog, question.instance_type)
    return machine, _strategy(job, _shape_of(job), machine, question)


def doubts_of(traced: TracedPeak, parameters: int, samples: int) -> list[str]:
    """Where the script is not what the job file says, or does not what it was asked for."""
    doubts = []
    if not 1 / SIMILAR < traced.trained_parameters / parameters < SIMILAR:
        trained = f"the script trains {traced.trained_parameters:,} parameters"
        doubts.append(f"{trained}, the job file says {parameters:,}")
    if traced.samples_per_step not in (None, samples):
        took = f"{counted(samples, 'sample')} per GPU and step, the script took {traced.samples_per_step:,}"
        doubts.append(f"asked for {took}: what was traced is that")
    return doubts


def _shape_of(job: Job) -> TransformerShape:
    if job.workload.transformer is None:
        raise InputError("the job file has no workload.transformer, which a strategy is about")
    return job.workload.transformer


def flat_rows(
    job: Job, catalog: Catalog, measurements: Sequence[Measurement], question: MemoryQuestion
) -> list[FlatRow]:
    """The same for a job without a shape, whose model is whole on every GPU."""
    if question.options:
        option = "--" + next(iter(question.options)).replace("_", "-").replace("sharding", "strategy")
        raise InputError("needs workload.transformer in the job file", key=option)
    model = MemoryModel(job.workload, catalog).fit(measurements)
    named = question.instance_type
    machines = [named_instance_type(catalog, named)] if named is not None else _largest_machines(catalog)
    rows = []
    for machine in machines:
        gpu, largest = catalog.gpu_of(machine), model.largest_batch(machine, question.nodes)
        needed = model.needed_bytes(max(largest, 1)) / GIB
        rows.append(FlatRow(machine.name, gpu.name, gpu.memory_gib, needed, largest))
    return rows


def format_memory(rows: Sequence[MemoryReport] | Sequence[FlatRow]) -> str:
    content = []
    for row in rows:
        if isinstance(row, FlatRow):
            content.append(row._asdict())
            continue
        intervals = {"allocated": row.allocated._asdict(), "reserved": row.reserved._asdict()}
        ways = {"ways": [way._asdict() for way in row.ways], "fits": row.fits, "context_gib": CONTEXT_GIB}
        traced = None if row.traced is None else {**row.traced.model_dump(), "over_formula": row.traced_over_formula}
        content.append({**asdict(row), **intervals, **ways, "traced": traced})
    return json.dumps(six_digits({"rows": content}), indent=2, ensure_ascii=False)


def _largest_machines(catalog: Catalog) -> list[InstanceType]:
    """Of each GPU model the machine with most of them, from the smallest memory to the largest."""
    largest: dict[str, InstanceType] = {}
    for machine in catalog.instance_types:
        name = catalog.gpu_of(machine).name
        if name not in largest or machine.gpu_count > largest[name].gpu_count:
            largest[name] = machine
    return sorted(largest.values(), key=lambda machine: (catalog.gpu_of(machine).memory_gib, machine.name))


def _report(
    job: Job,
    catalog: Catalog,
    machine: InstanceType,
    strategy: Strategy,
    question: MemoryQuestion,
    calibration: Calibration,
    traced: TracedPeak | None = None,
) -> MemoryReport:
    gpu, shape, confidence, varying = (
        catalog.gpu_of(machine),
        _shape_of(job),
        job.constraints.confidence,
        question.varying,
    )
    peak = peak_memory(shape, strategy)
    total, known = (peak.parts.total, calibration) if traced is None else (traced.peak_bytes, TRACED)
    probability = fit_probability(total, gpu.memory_gib, varying=varying, calibration=known)
    ways: list[Way] = []
    if question.instance_type is not None and probability < confidence:
        larger: list[Gpu] = list(catalog.gpu_by_name.values())
        if traced is not None:
            calibration = SHIPPED.measured([log(total / peak.parts.total)])
        ways = ways_to_fit(
            shape, strategy, gpu, larger=larger, confidence=confidence, varying=varying, calibration=calibration
        )
    return MemoryReport(
        instance_type=machine.name,
        gpu=gpu.name,
        memory_gib=gpu.memory_gib,
        nodes=question.nodes,
        parameters=model_parameters(shape),
        strategy=strategy,
        peak=peak,
        allocated=allocated_interval(total, known),
        reserved=reserved_interval(total, gpu.memory_gib, varying=varying, calibration=known),
        probability=probability,
        confidence=confidence,
        ways=tuple(ways),
        traced=traced,
    )


def _strategy(job: Job, shape: TransformerShape, machine: InstanceType, question: MemoryQuestion) -> Strategy:
    """As asked; what is not said follows from the job: what is trained, states, optimizer, its smallest batch."""
    workload = job.workload
    gpus = question.nodes * machine.gpu_count
    strategy = replace(job_strategy(workload), gpus=gpus, gpus_per_node=machine.gpu_count, **question.options)
    check_strategy(shape, strategy)
    steps = max(workload.global_batch.low // (strategy.data_parallel * strategy.micro_batch), 1)
    return strategy if "accumulation" in question.options else replace(strategy, accumulation=steps)
