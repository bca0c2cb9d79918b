"""A case lived through many times: from the model of interruptions, with a deadline policy or without."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from planner.columns import Flags, Floats, Ints, Quantiles
from planner.errors import InputError
from planner.spot.deadline.table import PolicyTable
from planner.spot.deadline.world import Policy, World, act
from planner.spot.runs.markets import sample_markets
from planner.spot.runs.monte_carlo import SpotRuns, simulate
from planner.spot.simulation.case import Case

PolicyIn = Callable[[World], Policy]
"""A policy made for the world that it is to live in, in which each run has its own work."""

_MOST_CELLS = 1 << 24  # runs times steps held at once
# Each step of each run is decided: more runs would not change two digits of any quantile, and more cells take long.
_MOST_DECIDED_RUNS, _FEWEST_DECIDED_RUNS, _MOST_DECIDED_CELLS = 20_000, 500, 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRuns:
    """One row per run."""

    hours: Floats
    usd: Floats
    losses: Ints
    rework_hours: Floats  # computing again what was lost, and restarting
    waiting_hours: Floats  # for spot capacity
    missed: Flags  # the deadline, where there is one
    finished: Flags  # the others outlast a year, or the recording: their hours and dollars are only those until then

    @property
    def count(self) -> int:
        return len(self.hours)

    @property
    def hours_are_known(self) -> bool:
        """The omniscient's are not: only what they cost."""
        return not np.isnan(self.hours).any()

    @property
    def hours_quantiles(self) -> Quantiles:
        return _quantiles(self.hours)

    @property
    def usd_quantiles(self) -> Quantiles:
        return _quantiles(self.usd)

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        return cls(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What spot does step by step: a row per run, a column per step."""

    up: Flags
    age_hours: Floats  # of the first step's state
    spot_usd: Floats  # of a node an hour: of each run, or of each run and step
    surviving: Floats | float  # the share of spot nodes that is paid while the others are gone: of all, or of each step


def simulate_case(case: Case, *, policy: PolicyTable | None, runs: int, seed: int) -> CaseRuns:
    """With a policy it decides step by step; without one the cluster waits for spot capacity however late it gets."""
    check_runs(runs)
    if policy is None or not case.spot_count:
        return without_policy(case, runs, seed)
    return with_policy(case, lambda _world: policy.decide, decided_runs(case, runs), seed)


def decided_runs(case: Case, runs: int) -> int:
    """How many of them are decided step by step: fewer the more steps there are."""
    return min(runs, _MOST_DECIDED_RUNS, max(_MOST_DECIDED_CELLS // case.steps, _FEWEST_DECIDED_RUNS))


def check_runs(runs: int) -> None:
    if runs < 1:
        raise InputError(f"{runs} runs say nothing: need at least one")


@dataclass(frozen=True, slots=True)
class Seeds:
    """One for each thing that is drawn: drawn from the same stream they would move together."""

    work: int
    market: int
    price: int
    rollback: int

    @classmethod
    def of(cls, seed: int, part: int = 0) -> Seeds:
        entropy = np.random.SeedSequence([seed, part] if part else seed)
        return cls(*(int(state) for state in entropy.generate_state(4)))


def without_policy(case: Case, runs: int, seed: int) -> CaseRuns:
    seeds = Seeds.of(seed)
    work = case.work_draws(runs, seeds.work)
    if case.process is None or not case.spot_count:
        return on_demand_runs(case, work)
    spot = simulate(case.spot_work(work), case.process, runs, seeds.market)
    gang_usd = case.spot_count * case.spot_usd_draws(runs, seeds.price)
    survivors = (spot.hours - spot.paid_hours) * case.surviving_share * gang_usd
    return spot_runs(case, work, spot, spot.usd(gang_usd, case.base_hourly_usd) + survivors)


def with_policy(case: Case, policy_in: PolicyIn, runs: int, seed: int) -> CaseRuns:
    """In parts that fit the memory, each with seeds of its own: the same for every policy."""
    most = max(_MOST_CELLS // case.steps, 1)
    parts = []
    for part, first in enumerate(range(0, runs, most)):
        seeds, count = Seeds.of(seed, part), min(most, runs - first)
        work = case.work_draws(count, seeds.work)
        parts.append(acted(case, policy_in, work, sampled_market(case, count, seeds), seeds.rollback))
    return CaseRuns.joined(parts)


def sampled_market(case: Case, runs: int, seeds: Seeds) -> Market:
    if case.process is None:
        raise InputError("nothing is known of when these spot nodes are lost")
    up, age = sample_markets(case.process, runs, case.steps, case.step_hours, seeds.market)
    spot_usd = case.spot_usd_draws(runs, seeds.price)
    return Market(up=up, age_hours=age, spot_usd=spot_usd, surviving=case.surviving_share)


def acted(case: Case, policy_in: PolicyIn, work: Floats, market: Market, seed: int) -> CaseRuns:
    """A run that is late goes on with on-demand until it is done; nobody is told how long it will be, only the p95."""
    if case.deadline_hours is None:
        raise InputError("a deadline policy needs a deadline")
    world, told = case.simulated_world(work), case.assumed_work_hours
    outcome = act(
        world,
        policy_in(replace(world, work_hours=told)),
        market.up,
        market.age_hours,
        case.deadline_hours,
        seed,
        spot_shares(case, market),
        idle_shares(case, market),
        told,
    )
    return CaseRuns(
        hours=outcome.hours,
        usd=outcome.cost * case.on_demand_hourly_usd,
        losses=outcome.losses,
        rework_hours=_beyond(outcome.hours - outcome.waiting_hours, case.hours_without_losses(work)),
        waiting_hours=outcome.waiting_hours,
        missed=outcome.missed,
        finished=np.full(len(work), True),
    )


def spot_shares(case: Case, market: Market) -> Floats:
    """The cluster's price on spot over its price on demand, for each run and step."""
    return _shares(case, market, 1.0)


def idle_shares(case: Case, market: Market) -> Floats:
    """The same of what is paid while spot nodes are gone."""
    return _shares(case, market, market.surviving)


def _shares(case: Case, market: Market, paid: Floats | float) -> Floats:
    spot_usd = market.spot_usd if market.spot_usd.ndim == 2 else market.spot_usd[:, None]
    share = (case.base_hourly_usd + case.spot_count * paid * spot_usd) / case.on_demand_hourly_usd
    return np.broadcast_to(share, market.up.shape)


def on_demand_runs(case: Case, work: Floats) -> CaseRuns:
    """Nothing can be lost: the closed form."""
    hours = case.hours_without_losses(work)
    none = np.zeros(len(work))
    return CaseRuns(
        hours=hours,
        usd=hours * case.on_demand_hourly_usd,
        losses=none.astype(np.int64),
        rework_hours=none,
        waiting_hours=none,
        missed=_late(case, hours),
        finished=np.full(len(work), True),
    )


def spot_runs(case: Case, work: Floats, spot: SpotRuns, usd: Floats) -> CaseRuns:
    return CaseRuns(
        hours=spot.hours,
        usd=usd,
        losses=spot.losses,
        rework_hours=np.where(spot.finished, _beyond(spot.paid_hours, case.hours_without_losses(work)), 0.0),
        waiting_hours=spot.hours - spot.paid_hours,
        missed=_late(case, np.where(spot.finished, spot.hours, np.inf)),
        finished=spot.finished,
    )


def _late(case: Case, hours: Floats) -> Flags:
    """Whoever is given up is late, however far the deadline is."""
    return np.asarray(hours > (math.inf if case.deadline_hours is None else case.deadline_hours + 1e-6))


def _beyond(hours: Floats, least: Floats) -> Floats:
    return np.asarray(np.maximum(hours - least, 0.0))


def _quantiles(values: Floats) -> Quantiles:
    return Quantiles(*(float(value) for value in np.quantile(values, (0.05, 0.5, 0.95))))
