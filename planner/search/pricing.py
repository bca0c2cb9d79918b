"""What each configuration takes and costs, on demand or with spot nodes: hours and dollars as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints, Prediction, Quantiles
from planner.inputs import InstanceType, ParallelStrategy
from planner.models import Configurations
from planner.search.candidates import Market, Offers, usual_batch
from planner.search.micro_steps import bounded, step_seconds
from planner.spot import SpotMarkets, SpotSource, expected_losses, fallen_back

NEAR_TIE = 0.05  # what is so close by the objective is decided by what else people care about
STOP_SLACK_HOURS = 0.5  # after which a run whose nodes did not stop it is stopped (modules/gpu-cluster/deadline.tf)
# Half an hour to boot and pull the image, and an hour in which nodes wait for the last one (max_wait_seconds of the
# module): beside the runtime, which counts from when all are there.
MAX_WAIT_HOURS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictors:
    """What search needs to know of a configuration, whoever predicts it."""

    fits: Callable[[Configurations], Flags]
    largest_batch: Callable[[InstanceType], int]  # on one node
    step_seconds: Callable[[Configurations], Prediction]
    samples: Callable[[Ints], Prediction]
    startup_seconds: float
    checkpoint_interval_seconds: float  # on demand
    checkpoint_share: float
    spot_price: Prediction
    spot_markets: SpotMarkets | None  # None: without checkpoints a lost node loses everything
    least_seconds: Callable[[Configurations], Floats | None] = lambda _: None  # at most a step's middle, where sooner
    feeds: Callable[[InstanceType], bool] = lambda _: True  # whether its GPUs get samples as fast as they take them


class Candidate(NamedTuple):
    """One row that survived, with its hours and dollars; `_limit` is at the asked confidence."""

    instance_type: str
    market: Market
    region: str
    zone: str
    nodes: int
    on_demand_count: int
    gpu_batch: int
    accumulation_steps: int
    global_batch: int
    checkpoint_interval_seconds: float
    losses: float
    falls_back: bool  # counts on scav.policy.json being executed
    hourly_usd: float
    storage_hourly_usd: float
    hours: Quantiles
    hours_limit: float
    usd: Quantiles
    usd_limit: float
    extrapolated: bool
    strategy: ParallelStrategy | None = None  # of jobs with a shape
    usual_batch: bool = True  # one that people would run
    fed: bool = True  # its type's GPUs get samples as fast as they take them, as far as is known without measuring


class SpotPlace(NamedTuple):
    """A zone that may win, alone or before others that lose spot nodes as often and cost no less in anything."""

    source: SpotSource
    offers: Offers  # one
    stands_for: int  # zones, itself included


def spot_places(offers: Offers, instance_type: InstanceType, markets: SpotMarkets) -> list[SpotPlace]:
    """Of a source's zones, the cheapest; several where one has the lower spot price and another the lower cap on it."""
    rows: dict[SpotSource, list[int]] = {}
    for row, (zone, interruption_class) in enumerate(zip(offers.zones, offers.interruption_class, strict=True)):
        source = markets.history.source(instance_type.name, zone, interruption_class)
        if source.ever_there:
            rows.setdefault(source, []).append(row)
    prices = np.stack(
        [offers.node_usd, offers.on_demand_usd, offers.volume_usd_per_node, offers.checkpoint_usd], axis=1
    )
    places = []
    for source, zones in rows.items():
        kept: list[int] = []
        for row in zones:  # cheaper spot first, so that nobody is beaten by a later one
            if not any((prices[other] <= prices[row]).all() for other in kept):
                kept.append(row)
        others = len(zones) - len(kept)
        places += [SpotPlace(source, offers.at([row]), 1 + others * (row == kept[0])) for row in kept]
    return places


def work_hours(
    configurations: Configurations, samples: Prediction, predictors: Predictors, *, every_split: bool = False
) -> Prediction:
    """Steps alone: no checkpoints, no start-up, no lost nodes.

    `every_split`: the rows hold the finer splits of each, as `every_split` lists them.
    """
    if every_split:
        seconds = bounded(predictors.step_seconds(configurations), configurations)
    else:
        seconds = step_seconds(configurations, predictors.step_seconds)
    return seconds.times(samples.scaled(1.0 / configurations.global_batch)).scaled(1 / 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Configurations bought in one way, each where it is cheapest."""

    configurations: Configurations
    offers: Offers
    offer: Ints  # which of the offers
    on_demand_count: Ints
    interval_seconds: Floats
    losses: Floats
    falls_back: bool
    hourly_usd: Floats
    storage_hourly_usd: Floats
    hours: Prediction
    usd: Prediction
    fed: bool

    def front(self, allowed: Flags, confidence: float) -> list[Candidate]:
        """What nothing beats, and what nothing that people would run beats by more than a near tie."""
        rows = np.flatnonzero(allowed)
        hours, usd = self.hours.quantile(confidence)[rows], self.usd.quantile(confidence)[rows]
        return self.candidates(rows[front_rows(hours, usd, usual_batch(self.configurations)[rows])], confidence)

    def candidates(self, kept: Ints, confidence: float) -> list[Candidate]:
        rows, hours, usd = self.configurations.at(kept), self.hours.at(kept), self.usd.at(kept)
        places, offers = self.offer[kept].tolist(), self.offers
        columns: dict[str, list[Any]] = {
            "region": [offers.regions[place] for place in places],
            "zone": [offers.zones[place] for place in places],
            "nodes": rows.nodes.tolist(),
            "on_demand_count": self.on_demand_count[kept].tolist(),
            "gpu_batch": rows.gpu_batch.tolist(),
            "accumulation_steps": rows.accumulation_steps.tolist(),
            "global_batch": rows.global_batch.tolist(),
            "checkpoint_interval_seconds": self.interval_seconds[kept].tolist(),
            "losses": self.losses[kept].tolist(),
            "hourly_usd": self.hourly_usd[kept].tolist(),
            "storage_hourly_usd": self.storage_hourly_usd[kept].tolist(),
            "hours": hours.rows(),
            "hours_limit": hours.quantile(confidence).tolist(),
            "usd": usd.rows(),
            "usd_limit": usd.quantile(confidence).tolist(),
            "extrapolated": hours.extrapolated.tolist(),
            "usual_batch": usual_batch(rows).tolist(),
        }
        if rows.strategies is not None:
            columns["strategy"] = [rows.strategies.one(row) for row in range(len(rows))]
        same: dict[str, Any] = {
            "instance_type": rows.instance_type.name,
            "market": offers.market,
            "falls_back": self.falls_back,
            "fed": self.fed,
        }
        return [
            Candidate(**same, **dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]


def on_demand(
    configurations: Configurations, work: Prediction, offers: Offers, predictors: Predictors, *, fed: bool = True
) -> Priced:
    hours = work.scaled(1 + predictors.checkpoint_share, shift=predictors.startup_seconds / 3600)
    first, which = _distinct(configurations.nodes)
    counts = configurations.nodes[first]
    bill = _bill(offers, counts, counts).at(which)
    return Priced(
        configurations=configurations,
        offers=offers,
        offer=bill.offer,
        on_demand_count=configurations.nodes,
        interval_seconds=np.full(len(which), predictors.checkpoint_interval_seconds),
        losses=np.zeros(len(which)),
        falls_back=False,
        hourly_usd=bill.fixed,
        storage_hourly_usd=bill.storage,
        hours=hours,
        usd=hours.scaled(bill.fixed),
        fed=fed,
    )


def with_spot(
    configurations: Configurations,
    work: Prediction,
    place: SpotPlace,
    base: Ints,
    *,
    markets: SpotMarkets,
    predictors: Predictors,
    deadline_hours: float | None = None,
    fed: bool = True,
) -> Priced:
    """With `base` on-demand nodes in each row.

    With a deadline, on-demand nodes replace the spot ones before it is missed.
    """
    # Prices and losses belong to a node count and a base, of which there are far fewer than rows.
    first, which = _distinct(configurations.nodes * (1 + base.max(initial=0)) + base)
    counts, bases = configurations.nodes[first], base[first]
    bill = _bill(place.offers, counts, bases).at(which)
    terms = markets.terms(place.source, configurations.nodes - base)
    startup = predictors.startup_seconds / 3600
    busy = work.scaled(1 + terms.save_share)
    wall, paid = terms.slowdown(busy.p50)
    hours = busy.times(wall).shifted(startup)
    # Hours of spot nodes at today's price that will cost as much as these hours do then.
    spot_hours = busy.times(paid).shifted(startup).times(predictors.spot_price)
    usd = hours.scaled(bill.fixed).plus(spot_hours.scaled(bill.spot))
    usd = usd.at_most(hours.scaled(bill.all_on_demand))  # a spot node never costs more than an on-demand one
    if deadline_hours is not None:
        taken_back = np.minimum(terms.interval_seconds / 3600, busy.p50)
        reserve = startup + taken_back + markets.restart_seconds / 3600
        hours, usd = fallen_back(hours, usd, busy, deadline_hours - reserve, bill.all_on_demand)
    return Priced(
        configurations=configurations,
        offers=place.offers,
        offer=bill.offer,
        on_demand_count=base,
        interval_seconds=terms.interval_seconds,
        losses=expected_losses(busy.p50, terms.burden),
        falls_back=deadline_hours is not None,
        hourly_usd=bill.fixed + bill.spot,
        storage_hourly_usd=bill.storage,
        hours=hours,
        usd=usd,
        fed=fed,
    )


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """A row of each key, and which key every row has, without sorting: keys are small numbers."""
    row_of = np.full(int(keys.max(initial=0)) + 1, -1)
    row_of[keys] = np.arange(len(keys))
    known = np.flatnonzero(row_of >= 0)
    place = np.empty_like(row_of)
    place[known] = np.arange(len(known))
    return row_of[known], place[keys]


class _Bill(NamedTuple):
    """Dollars an hour where a cluster is cheapest: what is paid all the time, and what only while spot is there."""

    offer: Ints
    fixed: Floats
    spot: Floats
    storage: Floats
    all_on_demand: Floats

    def at(self, rows: Ints) -> _Bill:
        return _Bill(self.offer[rows], self.fixed[rows], self.spot[rows], self.storage[rows], self.all_on_demand[rows])


def _bill(offers: Offers, nodes: Ints, base: Ints) -> _Bill:
    storage = offers.storage_usd(nodes)
    fixed, spot = offers.base_usd(base) + storage, offers.spot_usd(nodes - base)
    cheapest = (fixed + spot).argmin(axis=1)
    at = (np.arange(len(nodes)), cheapest)
    return _Bill(cheapest, fixed[at], spot[at], storage[at], (offers.base_usd(nodes) + storage)[at])


def front_rows(hours: Floats, usd: Floats, usual: Flags) -> Ints:
    """What nothing beats, and what nothing that people would run beats by more than a near tie."""
    return np.union1d(pareto_rows(hours, usd), pareto_rows(*with_handicap(hours, usd, usual)))


def with_handicap(hours: Floats, usd: Floats, usual: Flags) -> tuple[Floats, Floats]:
    """What people would not run must win by more than a near tie."""
    handicap = np.where(usual, 1.0, 1.0 + NEAR_TIE)
    return hours * handicap, usd * handicap


def pareto_rows(hours: Floats, usd: Floats) -> Ints:
    """Rows that no other row beats in both, fastest first; of equal rows the first."""
    near = np.flatnonzero(~np.isnan(hours + usd))
    # Most rows are slower than the cheapest, dearer than the fastest or both than a row between: nothing to sort.
    for beats in (usd, hours, hours * usd):
        if len(near):
            best = near[beats[near].argmin()]
            near = near[(hours[near] <= hours[best]) | (usd[near] <= usd[best])]
    order = near[np.lexsort((usd[near], hours[near]))]
    ranked = usd[order]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(ranked)[:-1]))
    return np.asarray(order[ranked < best_before])
