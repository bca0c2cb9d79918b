"""What `scav tune` may measure on this machine, and what it believes of it: workers x local batch, by time alone.

Nothing is rented here, so an hour stands where a dollar stands elsewhere: a probe is worth taking if it is expected to
save the run more time than it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.columns import Z95, Flags, Ints, Prediction, Quantiles
from planner.inputs import LOCAL, Job, Measurement
from planner.models import ConvergenceModel, MachineStepTime
from planner.probing.next_probe import Belief, ProbeSpace, start_plan
from planner.probing.probe_plan import Probe, measuring_seconds, probe_of
from planner.search import batch_shares

_USUAL_STEP_SECONDS = 0.1  # before anything is measured, only to say how long a probe takes


class ChoiceHere(NamedTuple):
    """What to run on this machine, and how long it takes to the target."""

    probe: Probe
    hours: Quantiles
    is_measured: bool


class SpaceHere:
    """`placements`: (nodes, workers on each) that may be used."""

    def __init__(self, job: Job, placements: Sequence[tuple[int, int]]) -> None:
        self.job = job
        allowed = job.workload.global_batch
        rows = [
            (nodes, nodes * each, batch)
            for nodes, each in placements
            for batch in batch_shares(-(-allowed.low // (nodes * each)), allowed.high // (nodes * each))
        ]
        nodes, workers, batch = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self.space = ProbeSpace(
            instance_type=np.zeros_like(nodes),
            nodes=nodes,
            gpus=workers,
            gpu_batch=batch,
            hourly_usd=np.ones(len(nodes)),
            measurable=np.ones(len(nodes), dtype=bool),
            startup_seconds=0.0,
        )

    def start(self) -> list[int]:
        """Whatever the job takes, which nobody knows before the first probe."""
        return start_plan(self.space, np.full(len(self.space), measuring_seconds([_USUAL_STEP_SECONDS])), np.inf)

    def probe(self, row: int) -> Probe:
        columns = (self.space.nodes, self.space.gpus, self.space.gpu_batch)
        nodes, workers, batch = (int(column[row]) for column in columns)
        return Probe(LOCAL, nodes, workers // nodes, batch, 1, self.job.workload.precision)

    def believe(self, measurements: Sequence[Measurement], samples: ConvergenceModel) -> Belief:
        """`measurements` of this machine alone; without any, only that probes take time."""
        count = len(self.space)
        if not measurements:
            seconds, flat = np.full(count, measuring_seconds([_USUAL_STEP_SECONDS])), np.zeros(count)
            return Belief(log_value=flat, log_sd=flat + 1.0, job_usd=flat + 1.0, probe_seconds=seconds, measured={})
        step, measured = self._step(measurements), self._measured(measurements)
        hours = step.p50 * samples.predict(self.global_batch).p50 / self.global_batch / 3600
        return Belief(
            log_value=np.log(hours),
            log_sd=np.log(step.p95 / step.p50) / Z95,
            job_usd=hours,
            probe_seconds=np.array([measuring_seconds([one]) for one in step.p50.tolist()]),
            measured={row: float(hours[row]) for row in np.flatnonzero(measured).tolist()},
        )

    def choose(self, measurements: Sequence[Measurement], samples: ConvergenceModel) -> ChoiceHere:
        """The best at the upper end of its interval, as plans choose; what was measured is sure of its step."""
        step, measured = self._step(measurements), self._measured(measurements)
        needed = samples.predict(self.global_batch).scaled(1 / (3600 * self.global_batch))
        best = int(np.argmin(np.where(measured, step.p50, step.p95) * needed.p50))
        return ChoiceHere(self.probe(best), step.times(needed).rows()[best], bool(measured[best]))

    @property
    def global_batch(self) -> Ints:
        return self.space.gpus * self.space.gpu_batch

    def _step(self, measurements: Sequence[Measurement]) -> Prediction:
        space = self.space
        return MachineStepTime().fit(measurements).predict(space.nodes, space.gpus, space.gpu_batch)

    def _measured(self, measurements: Sequence[Measurement]) -> Flags:
        known = {probe_of(row) for row in measurements}
        return np.array([self.probe(row) in known for row in range(len(self.space))])
