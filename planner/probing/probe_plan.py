"""Which configurations to measure, cheapest first: enough of them to tell the model's terms apart, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.inputs import LOCAL, Job, Measurement, ParallelStrategy, Precision

# Of one batch size: warm-up, twice eight windows of twenty, gradient noise; then imports, data, checkpoint, all-reduce.
STEPS_PER_BATCH = 450
SECONDS_BESIDE_STEPS = 60.0


class Probe(NamedTuple):
    """One configuration to measure."""

    instance_type: str
    nodes: int
    gpus_per_node: int
    gpu_batch: int
    accumulation_steps: int
    precision: Precision
    strategy: ParallelStrategy | None = None  # None: as the script likes, or else DDP

    @property
    def global_batch(self) -> int:
        """Workers that share one model take the same samples."""
        parts = self.nodes * self.gpus_per_node // workers_of_a_model(self.strategy)
        return parts * self.gpu_batch * self.accumulation_steps


def workers_of_a_model(strategy: ParallelStrategy | None) -> int:
    return strategy.tensor_parallel * strategy.pipeline if strategy else 1


def spread_probes(
    job: Job, placements: Iterable[tuple[int, int]], strategy: ParallelStrategy | None = None
) -> list[Probe]:
    """Three batch sizes on one worker, which separate a step's fixed part from its samples; the middle one on more.

    One worker, or as few as hold a model together. A placement is nodes and the workers on each.
    """
    workload, fewest = job.workload, workers_of_a_model(strategy)
    batches = batches_between(workload.global_batch.low, workload.global_batch.high)
    middle = batches[len(batches) // 2]
    single = [Probe(LOCAL, 1, fewest, batch, 1, workload.precision, strategy) for batch in batches]
    several = [
        Probe(LOCAL, nodes, workers, max(middle * fewest // (nodes * workers), 1), 1, workload.precision, strategy)
        for nodes, workers in placements
        if nodes * workers > fewest
    ]
    return sorted([*single, *several], key=lambda probe: (probe.global_batch, probe.nodes, probe.gpus_per_node))


def at_one_batch(probes: Iterable[Probe], gpu_batch: int) -> list[Probe]:
    """On the same workers, for a script that takes no other batch."""
    return list(dict.fromkeys(probe._replace(gpu_batch=gpu_batch) for probe in probes))


def batches_between(low: int, high: int) -> tuple[int, ...]:
    """Both ends and the geometric middle, as far as they differ."""
    return tuple(dict.fromkeys((low, round((low * high) ** 0.5), high)))


def measuring_seconds(step_seconds: Sequence[float]) -> float:
    """How long a running cluster is busy with these probes, one after the other, each with its step time."""
    return sum(step_seconds) * STEPS_PER_BATCH + SECONDS_BESIDE_STEPS * len(step_seconds)


def missing(probes: Iterable[Probe], measurements: Iterable[Measurement]) -> list[Probe]:
    """What was not measured yet, without what is known not to fit the memory."""
    measured: set[Probe] = set()
    too_large: dict[Probe, int] = {}
    for row in measurements:
        probe = probe_of(row)
        measured.add(probe)
        if row.out_of_memory_at is not None:
            shape = probe._replace(gpu_batch=1)
            too_large[shape] = min(row.out_of_memory_at, too_large.get(shape, row.out_of_memory_at))
    return [
        probe
        for probe in probes
        if probe not in measured and probe.gpu_batch < too_large.get(probe._replace(gpu_batch=1), probe.gpu_batch + 1)
    ]


def not_in(known: Iterable[Measurement], rows: Iterable[Measurement]) -> list[Measurement]:
    """Rows of configurations that are not known yet, of this run or of one that does not say what ran."""
    measured = {(probe_of(row), row.run_key) for row in known}
    return [row for row in rows if not {(probe_of(row), row.run_key), (probe_of(row), None)} & measured]


def probe_of(row: Measurement) -> Probe:
    return Probe(
        row.instance_type,
        row.nodes,
        row.gpus_per_node,
        row.gpu_batch,
        row.accumulation_steps,
        row.precision,
        row.strategy,
    )
