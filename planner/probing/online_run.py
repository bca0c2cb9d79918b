"""What `scav tune --online` knows of a run and decides from: where to train next, and when to look elsewhere.

Told of every stretch and of what each measured. It starts nothing and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.columns import Z95
from planner.inputs import LOCAL, Job, Measurement, measured_noise
from planner.models import ConvergenceModel, fit_convergence
from planner.probing.next_probe import Belief
from planner.probing.probe_plan import probe_of
from planner.probing.stretches import Stretch, restart_seconds, share_done, too_large
from planner.probing.tuning_online import OnlineAccount, OnlineSpace, RunChange, moved, online_account

_USUAL_RESTART_SECONDS = 2.0  # until the first stretch has started


class OnlineRun:
    """`known`: measurements of this job here, `stretches`: the journal; both grow as the run goes on."""

    def __init__(
        self, job: Job, worker_counts: Sequence[int], stretches: Sequence[Stretch], known: Sequence[Measurement]
    ) -> None:
        self.job, self.stretches, self.known = job, [*stretches], [*known]
        self.online = OnlineSpace(job, worker_counts).without(too_large(self.stretches))
        self._before_change = self._rows()
        self._change: RunChange | None = None
        self._noise: Measurement | None = None  # the newest, once it has left what was known
        self._looked = 0
        self._expected: float | None = None  # seconds per step, of the run that goes on

    @property
    def ended(self) -> bool:
        return bool(self.stretches) and self.stretches[-1].ended

    @property
    def samples(self) -> ConvergenceModel:
        return self._samples([self._noise] if self._noise is not None else self.known)

    @property
    def done(self) -> float:
        return share_done(self.stretches, self.samples)

    def believe(self) -> Belief:
        return self._believe(self.stretches)

    def next_row(self, belief: Belief) -> int | None:
        return self.online.next_row(belief, searching=self._change is None)

    def was(self, stretch: Stretch) -> None:
        self.stretches.append(stretch)

    def was_refused(self) -> None:
        """The last stretch did not fit the memory."""
        self.online = self.online.without(too_large(self.stretches))

    def was_measured(self, row: int, looks: Sequence[Measurement]) -> None:
        """In a stretch that was to measure."""
        if looks and self._change is not None:
            self._change = self._change._replace(fresh={**self._change.fresh, row: looks[-1].step_seconds})
        elif looks:
            self._before_change = self._rows()

    def trains_on(self, row: int) -> None:
        """To the end, for all that is known."""
        self._looked, self._expected = 0, self._step_seconds(row)

    def pays_elsewhere(self, row: int, stretch: Stretch, looks: Sequence[Measurement]) -> bool:
        """After each look of a run that goes on: is it worth a restart to be, or to look, elsewhere?"""
        if len(looks) <= self._looked:
            return False
        self._looked = len(looks)
        look, now, expected = looks[-1], looks[-1].step_seconds, self._expected
        ratio = 0.0 if expected is None else moved(expected, now, look.window_variation or 0.0)
        if self._left_what_was_known(look):
            self._noise = look
        elif not ratio:
            return False
        if ratio:
            before = 0.0 if self._change is None else self._change.log_ratio
            self._change, self._expected = RunChange(before + ratio, {row: now}), now
        stretches = [*self.stretches, stretch]
        belief = self._believe(stretches)
        if self.online.next_row(belief, searching=False) is not None:
            return True
        return self.online.better_than(row, belief, self._restart(stretches)) is not None

    def account(self) -> OnlineAccount | None:
        """Of a run that came to its end; None where it was over before anything could be measured."""
        samples, last = self.samples, self.stretches[-1]
        belief = self.online.believe(self._rows(), samples, done=0.0, restart=0.0)
        chosen = self.online.row_of(last.workers, last.gpu_batch)
        if chosen is None or not belief.measured:
            return None
        restart = self._restart(self.stretches)
        return online_account(self.online, self.stretches, belief, samples, chosen=chosen, restart=restart)

    def _believe(self, stretches: Sequence[Stretch]) -> Belief:
        samples, restart = self.samples, self._restart(stretches)
        done = share_done(stretches, samples)
        return self.online.believe(self._before_change, samples, done=done, restart=restart, change=self._change)

    def _rows(self) -> list[Measurement]:
        return [row for row in self.known if row.instance_type == LOCAL and row.accumulation_steps == 1]

    def _step_seconds(self, row: int) -> float | None:
        if self._change is not None and row in self._change.fresh:
            return self._change.fresh[row]
        probe = self.online.probe(row)
        own = [known.step_seconds for known in self._before_change if probe_of(known) == probe]
        return own[-1] if own else None

    def _samples(self, rows: Sequence[Measurement]) -> ConvergenceModel:
        given = self.job.workload.convergence.noise_scale
        return fit_convergence(self.job, None if given else measured_noise(rows))

    def _restart(self, stretches: Sequence[Stretch]) -> float:
        return restart_seconds(stretches, _USUAL_RESTART_SECONDS)

    def _left_what_was_known(self, look: Measurement) -> bool:
        """The noise, out of the interval that it had."""
        before = measured_noise(self.known)
        if before is None or look.noise is None or not look.noise.reached:
            return False
        now = (math.log(look.noise.high) - math.log(look.noise.low)) / (2 * Z95)
        return abs(math.log(look.noise.scale / before.scale)) > Z95 * math.hypot(now, before.log_sd)
