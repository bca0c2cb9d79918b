"""Where simulated capacity comes from: the model of interruptions, or a recording replayed from many moments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from planner.columns import Floats, Ints
from planner.errors import InputError
from planner.inputs import Trace
from planner.spot.deadline.omniscient import omniscient_cost
from planner.spot.runs.replay import replay, replayed_usd
from planner.spot.simulation.case import Case
from planner.spot.simulation.case_runs import (
    CaseRuns,
    Market,
    PolicyIn,
    Seeds,
    acted,
    decided_runs,
    idle_shares,
    on_demand_runs,
    sampled_market,
    spot_runs,
    spot_shares,
    with_policy,
    without_policy,
)

MOST_REPLAYED_RUNS = 10_000
_MOST_RUN_HOURS, _FEWEST_RUNS = 3e7, 5_000  # of work in all runs: about a second
_OMNISCIENT_CELLS = 3e7  # runs times steps times work: some seconds
_OMNISCIENT_RUNS = (64, 400)  # fewer would be mostly luck
# Without a deadline: starts leave this many times the job's hours until the recording ends, where it is long enough.
_ROOM = 2.0


class Capacity(Protocol):
    """The same markets for every policy, so that they differ by what they decide and not by luck."""

    @property
    def span(self) -> str:
        """What a run can outlast."""
        ...

    def waiting(self, case: Case) -> CaseRuns:
        """Runs that wait for their spot nodes however late it gets."""
        ...

    def decided(self, case: Case, policy_in: PolicyIn) -> CaseRuns:
        """Runs for which a deadline policy decides step by step."""
        ...

    def omniscient(self, case: Case) -> CaseRuns:
        """The least dollars for whoever knows all capacity in advance; its hours are not known."""
        ...

    def note(self, case: Case) -> str:
        """What these markets do not say about this case; empty if nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Modelled:
    runs: int
    seed: int

    @property
    def span(self) -> str:
        return "a year"

    def waiting(self, case: Case) -> CaseRuns:
        affordable = max(round(_MOST_RUN_HOURS / case.work_hours.p50), _FEWEST_RUNS)
        return without_policy(case, min(self.runs, affordable), self.seed)

    def decided(self, case: Case, policy_in: PolicyIn) -> CaseRuns:
        return with_policy(case, policy_in, decided_runs(case, self.runs), self.seed)

    def omniscient(self, case: Case) -> CaseRuns:
        seeds, runs = Seeds.of(self.seed), decided_runs(case, self.runs)
        market, work = sampled_market(case, runs, seeds), case.work_draws(runs, seeds.work)
        return _omniscient(case, work, market)

    def note(self, case: Case) -> str:  # noqa: ARG002
        return ""


@dataclass(frozen=True, slots=True)
class Recorded:
    trace: Trace
    runs: int
    seed: int

    def __post_init__(self) -> None:
        if len(self.trace.counts) < 2:
            raise InputError("the trace is empty: need at least two ticks", file=self.trace.place)
        if self.trace.size < 1:
            raise InputError("no node was ever available in this trace: availability is zero", file=self.trace.place)
        if self.trace.prices is not None and not (self.trace.prices > 0).all():
            raise InputError("a recorded price is not above 0", file=self.trace.place)

    @property
    def span(self) -> str:
        return "the recording"

    def waiting(self, case: Case) -> CaseRuns:
        seeds, starts = Seeds.of(self.seed), self._starts(case, self.runs)
        work = case.work_draws(len(starts), seeds.work)
        if not case.spot_count:
            return on_demand_runs(case, work)
        nodes = self._nodes(case)
        spot = replay(case.spot_work(work), self.trace.stretches(nodes), starts)
        recorded = self._spot_usd(case)
        prices = np.ones(len(self.trace.counts)) if recorded is None else recorded
        node = replayed_usd(replace(self.trace, prices=prices), spot, starts, nodes, case.surviving_share)
        if recorded is None:
            node *= case.spot_usd_draws(len(starts), seeds.price)
        return spot_runs(case, work, spot, case.spot_count * node + spot.hours * case.base_hourly_usd)

    def decided(self, case: Case, policy_in: PolicyIn) -> CaseRuns:
        seeds, starts = Seeds.of(self.seed), self._starts(case, decided_runs(case, self.runs))
        work = case.work_draws(len(starts), seeds.work)
        return acted(case, policy_in, work, self._market(case, starts, seeds), seeds.rollback)

    def omniscient(self, case: Case) -> CaseRuns:
        seeds, starts = Seeds.of(self.seed), self._starts(case, decided_runs(case, self.runs))
        return _omniscient(case, case.work_draws(len(starts), seeds.work), self._market(case, starts, seeds))

    def note(self, case: Case) -> str:
        if case.spot_count <= self.trace.size:
            return ""
        nodes = "one node" if self.trace.size == 1 else f"{self.trace.size} nodes"
        return f"the trace is of {nodes}, taken for all {case.spot_count} spot nodes at once"

    def _nodes(self, case: Case) -> int:
        return min(case.spot_count, self.trace.size)

    def _starts(self, case: Case, runs: int) -> Floats:
        """Spread evenly, and with the whole time until the deadline in the recording."""
        usual = float(case.hours_without_losses(np.array(case.work_hours.p50)))
        room = case.deadline_hours + case.step_hours if case.deadline_hours else _ROOM * usual
        needed = room if case.deadline_hours else usual
        if self.trace.hours <= needed:
            what = "the deadline" if case.deadline_hours else "the job"
            message = f"{self.trace.hours:.1f} h of recording are less than {what} of {needed:.1f} h"
            raise InputError(message, file=self.trace.place)
        last = max(self.trace.hours - room, 0.0 if case.deadline_hours else self.trace.hours / 10)
        return np.linspace(0.0, last, min(runs, MOST_REPLAYED_RUNS))

    def _market(self, case: Case, starts: Floats, seeds: Seeds) -> Market:
        nodes, step = self._nodes(case), case.step_hours
        up, runs = self.trace.stepped(step, nodes), self.trace.stretches(nodes)
        places = np.minimum((starts / step).astype(np.int64)[:, None] + np.arange(case.steps), len(up) - 1)
        stretch = np.minimum(np.searchsorted(runs.end_hours, starts, side="right"), len(runs.up) - 1)
        prices = self._spot_usd(case)
        if prices is None:
            spot_usd = case.spot_usd_draws(len(starts), seeds.price)
        else:
            spot_usd = prices[self._ticks(places, step)]
        surviving = self.trace.there(nodes, case.surviving_share)[self._ticks(places, step)]
        age = starts - runs.begin_hours[stretch]
        return Market(up=up[places], age_hours=age, spot_usd=spot_usd, surviving=surviving)

    def _ticks(self, places: Ints, step_hours: float) -> Ints:
        ticks = (places * (step_hours * 3600 / self.trace.tick_seconds)).astype(np.int64)
        return np.minimum(ticks, len(self.trace.counts) - 1)

    def _spot_usd(self, case: Case) -> Floats | None:
        """The recorded ups and downs around the plan's own price: the recording may be of another type and year."""
        if self.trace.prices is None:
            return None
        around = case.node_spot_usd * self.trace.prices / self.trace.prices.mean()
        return np.asarray(np.minimum(around, case.node_on_demand_usd))


def _omniscient(case: Case, work: Floats, market: Market) -> CaseRuns:
    """Of as many runs as some seconds allow, whose work is spread as that of all is."""
    steps = market.up.shape[1]
    units = float(np.max(case.world(work).work_hours)) / case.step_hours
    fewest, most = _OMNISCIENT_RUNS
    count = min(len(work), int(min(max(_OMNISCIENT_CELLS / (steps * units), fewest), most)))
    rows = np.argsort(work, kind="stable")[((np.arange(count) + 0.5) * len(work) / count).astype(np.int64)]
    spot, idle, world = spot_shares(case, market), idle_shares(case, market), case.simulated_world(work[rows])
    cost = omniscient_cost(world, market.up[rows], steps * case.step_hours, spot[rows], idle[rows])
    late, unknown = np.isinf(cost), np.full(count, np.nan)
    # Whoever is late in any case need not hurry: all on spot, and never lost, is the least it can be.
    cost = np.where(late, case.hours_without_losses(work[rows]) * spot[rows].min(axis=1), cost)
    return CaseRuns(
        hours=unknown,
        usd=cost * case.on_demand_hourly_usd,
        losses=np.zeros(count, dtype=np.int64),
        rework_hours=unknown,
        waiting_hours=unknown,
        missed=late,
        finished=np.full(count, True),
    )
