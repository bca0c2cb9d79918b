"""What `scav tune --online` believes and chooses: a probe is a stretch of the run itself, its price what it loses.

A stretch on a slower configuration trains as well, only later: it costs a restart, and what its steps take longer than
the same progress would on the best that is known. That is weighed against what it may save of the training that is
still to come, by the rule of every `scav tune`. The spread-out probes of the start come first where they are cheap.

Later in the run a step may take longer than it was measured to, or the noise may say that other batches pay. What else
was measured is then as old as that: nobody knows how much of the change it shares, so it lies between all and nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from planner.columns import Z95, Floats
from planner.errors import ScavError
from planner.inputs import Job, Measurement
from planner.models import ConvergenceModel
from planner.probing.next_probe import DEAREST_START, Belief, best_measured, next_visit, start_plan
from planner.probing.probe_plan import Probe, probe_of
from planner.probing.stretches import Stretch, share_done
from planner.probing.tuning_here import SpaceHere

WINDOWS, WINDOW_STEPS = 4, 10
_WARM_UP_STEPS, _NOISE_STEPS = 20, 64
STRETCH_STEPS = _WARM_UP_STEPS + WINDOWS * WINDOW_STEPS + _NOISE_STEPS
_LEAST_MOVE = float(np.log(1.1))  # windows of a quiet machine differ by as much


class RunChange(NamedTuple):
    """Of a step time, since the rows before were measured: what is known since then, by row, in seconds."""

    log_ratio: float
    fresh: Mapping[int, float]


class OnlineSpace:
    """Workers x local batch, on this machine."""

    def __init__(self, job: Job, worker_counts: Sequence[int]) -> None:
        self.here = SpaceHere(job, [(1, count) for count in sorted(set(worker_counts))])
        self.space = self.here.space

    def without(self, too_large: Iterable[tuple[int, int]]) -> Self:
        """Workers and local batches that did not fit the memory, and what has as much of both."""
        found, fits = copy(self), np.ones(len(self.space), dtype=bool)
        for workers, batch in too_large:
            fits &= (self.space.gpus < workers) | (self.space.gpu_batch < batch)
        if not fits.any():
            raise ScavError("not even the smallest of workload.global_batch fits the memory here")
        found.space = replace(self.space, measurable=fits)
        return found

    def row_of(self, workers: int, gpu_batch: int) -> int | None:
        rows = np.flatnonzero((self.space.gpus == workers) & (self.space.gpu_batch == gpu_batch))
        return int(rows[0]) if len(rows) else None

    def probe(self, row: int) -> Probe:
        return self.here.probe(row)

    def believe(
        self,
        measurements: Sequence[Measurement],
        samples: ConvergenceModel,
        *,
        done: float,
        restart: float,
        change: RunChange | None = None,
    ) -> Belief:
        """Of what is left of the run."""
        belief = self.here.believe(measurements, samples)
        if not measurements:
            return replace(self._of_what_fits(belief), probe_seconds=np.zeros(len(self.space)))
        if change is None:
            change = RunChange(0.0, self._newest(measurements))
        belief = self._of_what_fits(self._changed(belief, samples, change))
        if not belief.measured:  # but what was measured is of other workers or batches
            return replace(belief, probe_seconds=np.zeros(len(self.space)))
        whole, left = np.exp(belief.log_value), max(1.0 - done, 0.0)
        best = min(belief.measured.values())
        batch = self.here.global_batch
        step = whole * 3600 * batch / samples.predict(batch).p50
        lost = STRETCH_STEPS * step * np.maximum(1 - best / whole, 0.0)
        return replace(belief, job_usd=belief.job_usd * left, probe_seconds=restart + lost)

    def _of_what_fits(self, belief: Belief) -> Belief:
        fits = self.space.measurable
        return replace(
            belief,
            log_value=np.where(fits, belief.log_value, np.inf),
            measured={row: value for row, value in belief.measured.items() if fits[row]},
        )

    def _newest(self, measurements: Sequence[Measurement]) -> dict[int, float]:
        """The last measured step of each row, in seconds."""
        found = ((self.row_of(one.gpus_per_node, one.gpu_batch), one) for one in measurements)
        return {row: one.step_seconds for row, one in found if row is not None and self.probe(row) == probe_of(one)}

    def _changed(self, belief: Belief, samples: ConvergenceModel, change: RunChange) -> Belief:
        log_value, log_sd = belief.log_value + change.log_ratio / 2, np.hypot(belief.log_sd, change.log_ratio / 2)
        measured = {}
        for row, seconds in change.fresh.items():
            hours = self._hours(row, seconds, samples)
            log_value[row], log_sd[row], measured[row] = np.log(hours), 0.0, hours
        return replace(belief, log_value=log_value, log_sd=log_sd, job_usd=np.exp(log_value), measured=measured)

    def _hours(self, row: int, step_seconds: float, samples: ConvergenceModel) -> float:
        batch = self.here.global_batch[[row]]
        return float(step_seconds * samples.predict(batch).p50[0] / batch[0] / 3600)

    def next_row(self, belief: Belief, *, searching: bool = True) -> int | None:
        """To measure next; None where no stretch elsewhere repays what it costs.

        `searching`: as at the start of a run, where a few spread-out stretches come first if they are cheap.
        """
        left = float(belief.job_usd.min()) if belief.measured else np.inf
        planned = start_plan(self.space, belief.probe_seconds, left, first_share=DEAREST_START) if searching else []
        started = [row for row in planned if row not in belief.measured]
        if started and left > 0:
            return started[0]
        visit = next_visit(self.space, belief, most=1)
        return None if visit is None else visit.rows[0]

    def choose(self, belief: Belief) -> int:
        """The best at the upper end of its interval; what was measured is sure of its step."""
        known = np.zeros(len(self.space), dtype=bool)
        known[list(belief.measured)] = True
        return int(np.argmin(belief.log_value + np.where(known, 0.0, Z95 * belief.log_sd)))

    def better_than(self, row: int, belief: Belief, restart: float) -> int | None:
        """Another that was measured, if what it saves of the rest is more than the restart."""
        best = best_measured(belief.measured)
        if best is None or best == row:
            return None
        saved = belief.job_usd[row] * (1 - np.exp(belief.log_value[best] - belief.log_value[row]))
        return best if saved > restart / 3600 else None


def moved(before: float, now: float, variation: float) -> float:
    """By how much, as a logarithm; 0 where it is within what windows of steps differ by."""
    log_ratio = float(np.log(now / before))
    return log_ratio if abs(log_ratio) > max(_LEAST_MOVE, Z95 * variation) else 0.0


class OnlineAccount(NamedTuple):
    """Hours of a run that has ended: as it went, and as it would have gone. All but the first are estimates."""

    hours: float
    probing_hours: float  # of it, in stretches that were only to measure
    oracle_hours: float
    offline_hours: float
    never_hours: float
    best: int  # rows
    chosen: int
    never: int


def online_account(
    online: OnlineSpace,
    stretches: Sequence[Stretch],
    belief: Belief,
    samples: ConvergenceModel,
    *,
    chosen: int,
    restart: float,
) -> OnlineAccount:
    """Each way needs the same progress as the run did, on the step times that are known by now.

    Never tuning: the batch of the target, or the nearest, on as many workers as there may be.
    """
    progress = share_done(stretches, samples)
    whole = np.exp(belief.log_value)
    best, never = int(np.argmin(whole)), _usual(online)
    start = restart / 3600
    spent = sum(stretch.seconds for stretch in stretches) / 3600
    probing = sum(stretch.seconds for stretch in stretches if not _is_of(online, stretch, chosen)) / 3600

    def straight(row: int) -> float:
        return start + progress * float(whole[row])

    return OnlineAccount(
        hours=spent,
        probing_hours=probing,
        oracle_hours=straight(best),
        offline_hours=probing + _first_of_chosen(online, stretches, chosen) + straight(chosen),
        never_hours=straight(never),
        best=best,
        chosen=chosen,
        never=never,
    )


def _usual(online: OnlineSpace) -> int:
    reference = online.here.job.workload.target.reference_batch
    distance: Floats = np.abs(np.log(online.here.global_batch / reference))
    return int(np.lexsort((-online.space.gpus, distance, ~online.space.measurable))[0])


def _is_of(online: OnlineSpace, stretch: Stretch, row: int) -> bool:
    return online.row_of(stretch.workers, stretch.gpu_batch) == row


def _first_of_chosen(online: OnlineSpace, stretches: Sequence[Stretch], chosen: int) -> float:
    """Who probes beside the run measures the choice, too; here as long as its shortest stretch."""
    own = [stretch.seconds for stretch in stretches if _is_of(online, stretch, chosen)]
    return min(own) / 3600 if len(own) > 1 else 0.0
