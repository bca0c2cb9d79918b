"""Which of all candidates to take: cheapest within the deadline, fastest within the budget, or the knee between.

Hours and dollars are compared at the quantile that the job asks confidence for, so a candidate keeps a limit with
that confidence exactly when this one number keeps it. Every rule below prefers fewer hours and fewer dollars, so
only the Pareto front of each instance type and market can win, and only the cheapest zone for each node count.
That is how millions of candidates are compared exactly without a row for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.candidates import (
    MARKETS,
    BatchGrid,
    Market,
    Offers,
    batch_grid,
    offers_by_market,
    on_demand_count,
    within_quota,
)
from planner.catalog import Catalog, InstanceType
from planner.job import Job
from planner.job.schema import Objective
from planner.models.configurations import Configurations
from planner.models.prediction import Flags, Floats, Ints, Prediction, Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictors:
    """What search needs to know of a configuration, whoever predicts it."""

    fits: Callable[[Configurations], Flags]
    step_seconds: Callable[[Configurations], Prediction]
    samples: Callable[[Ints], Prediction]
    spot_slowdown: Prediction
    spot_price: Prediction
    startup_seconds: float
    checkpoint_share: float
    spot_allowed: bool


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
    hourly_usd: float
    storage_hourly_usd: float
    hours: Quantiles
    hours_limit: float
    usd: Quantiles
    usd_limit: float
    extrapolated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The union of the fronts, fastest first, and what it was drawn from."""

    finalists: tuple[Candidate, ...]
    candidate_count: int
    left_out: Counter[str]  # how many instance types took no part, by the reason


def search(
    job: Job, catalog: Catalog, kinds: Sequence[InstanceType], regions: tuple[str, ...], predictors: Predictors
) -> SearchResult:
    """Compare every candidate on these instance types and regions."""
    blocks = _Blocks(job=job, catalog=catalog, regions=regions, predictors=predictors)
    for gpu_count in sorted({kind.gpu_count for kind in kinds}):
        grid = batch_grid(gpu_count, job.constraints.nodes, job.workload.global_batch)
        samples = predictors.samples(grid.global_batch)
        for kind in (kind for kind in kinds if kind.gpu_count == gpu_count):
            reason = blocks.add(kind, grid, samples)
            blocks.left_out.update([reason] if reason else [])
    blocks.finalists.sort(key=lambda row: (row.hours_limit, row.usd_limit, row.instance_type, row.zone))
    return SearchResult(
        finalists=tuple(blocks.finalists), candidate_count=blocks.candidate_count, left_out=blocks.left_out
    )


@dataclass(slots=True, kw_only=True)
class _Blocks:
    """Collects the fronts, one instance type after the other."""

    job: Job
    catalog: Catalog
    regions: tuple[str, ...]
    predictors: Predictors
    finalists: list[Candidate] = field(default_factory=list)
    candidate_count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, kind: InstanceType, grid: BatchGrid, samples: Prediction) -> str | None:
        """Why the type takes no part, if it does not."""
        gpu, workload = self.catalog.gpu_of(kind), self.job.workload
        if workload.precision not in gpu.dense_tflops and workload.precision != "tf32":
            return "have no units for this precision"
        offers = offers_by_market(self.catalog, kind, self.regions, workload.checkpoint_bytes_or_default)
        if not offers["on_demand"]:
            return "are not sold on demand in these regions"
        configurations = Configurations(
            instance_type=kind,
            gpu=gpu,
            nodes=grid.nodes,
            gpu_batch=grid.gpu_batch,
            accumulation_steps=grid.accumulation_steps,
        )
        fits = self.predictors.fits(configurations)
        if len(fits) and not fits.any():
            return "have too little GPU memory for the smallest local batch"
        count_before = self.candidate_count
        self._add_markets(configurations.at(fits), samples.at(fits), offers)
        took_part = self.candidate_count > count_before
        return None if took_part else "exceed the quotas, the spot policy or the batch range"

    def _add_markets(
        self, configurations: Configurations, samples: Prediction, offers: Mapping[Market, Offers]
    ) -> None:
        constraints = self.job.constraints
        busy = _busy_hours(configurations, samples, self.predictors)
        for market in MARKETS:
            if not self._may_buy(market) or not offers[market]:
                continue
            rows = within_quota(configurations.instance_type, configurations.nodes, market, constraints)
            self.candidate_count += int(rows.sum()) * len(offers[market])
            priced = _priced(configurations.at(rows), busy.at(rows), offers[market], self.predictors)
            self.finalists += priced.front(constraints.confidence)

    def _may_buy(self, market: Market) -> bool:
        policy = self.job.constraints.spot
        if market == "spot":
            return policy != "never" and self.predictors.spot_allowed
        return policy != "always"


def evaluate(
    job: Job,
    catalog: Catalog,
    configurations: Configurations,
    regions: tuple[str, ...],
    predictors: Predictors,
    market: Market,
) -> list[Candidate]:
    """Every one of these, in their order, in its cheapest zone; empty where the type is not sold.

    As in the search, but whatever the job allows: limits, quotas, memory and spot policy are not asked.
    """
    checkpoint_bytes = job.workload.checkpoint_bytes_or_default
    offers = offers_by_market(catalog, configurations.instance_type, regions, checkpoint_bytes)[market]
    if not offers:
        return []
    busy = _busy_hours(configurations, predictors.samples(configurations.global_batch), predictors)
    priced = _priced(configurations, busy, offers, predictors)
    return priced.candidates(np.arange(len(configurations.nodes)), job.constraints.confidence)


def _busy_hours(configurations: Configurations, samples: Prediction, predictors: Predictors) -> Prediction:
    """Steps and checkpoints, without start-up and without losing nodes."""
    steps = samples.scaled(1.0 / configurations.global_batch)
    seconds = predictors.step_seconds(configurations).times(steps)
    return seconds.scaled((1 + predictors.checkpoint_share) / 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """Configurations bought in one market, each where it is cheapest.

    Where a cluster stands does not change its hours, so for each node count only the cheapest zone can win.
    """

    configurations: Configurations
    offers: Offers
    offer: Ints  # which of the offers
    hourly_usd: Floats
    storage_hourly_usd: Floats
    hours: Prediction
    usd: Prediction

    def front(self, confidence: float) -> list[Candidate]:
        kept = pareto_rows(self.hours.quantile(confidence), self.usd.quantile(confidence))
        return self.candidates(kept, confidence)

    def candidates(self, kept: Ints, confidence: float) -> list[Candidate]:
        rows, hours, usd = self.configurations.at(kept), self.hours.at(kept), self.usd.at(kept)
        columns = zip(
            self.offer[kept].tolist(),
            rows.nodes.tolist(),
            on_demand_count(rows.nodes, self.offers.market).tolist(),
            rows.gpu_batch.tolist(),
            rows.accumulation_steps.tolist(),
            rows.global_batch.tolist(),
            self.hourly_usd[kept].tolist(),
            self.storage_hourly_usd[kept].tolist(),
            hours.rows(),
            hours.quantile(confidence).tolist(),
            usd.rows(),
            usd.quantile(confidence).tolist(),
            hours.extrapolated.tolist(),
            strict=True,
        )
        name, offers = rows.instance_type.name, self.offers
        return [
            Candidate(name, offers.market, offers.regions[zone], offers.zones[zone], *row) for zone, *row in columns
        ]


def _priced(configurations: Configurations, busy: Prediction, offers: Offers, predictors: Predictors) -> _Priced:
    hours = busy.times(predictors.spot_slowdown) if offers.market == "spot" else busy
    hours = hours.scaled(1.0, shift=predictors.startup_seconds / 3600)
    # Hours at today's price that will cost as much as these hours do then.
    at_price = hours.times(predictors.spot_price) if offers.market == "spot" else hours
    node_counts, which = np.unique(configurations.nodes, return_inverse=True)
    storage = offers.storage_usd(node_counts)
    hourly = offers.machine_usd(node_counts) + storage
    cheapest = hourly.argmin(axis=1)
    rows = np.arange(len(node_counts))
    hourly_usd = hourly[rows, cheapest][which]
    return _Priced(
        configurations=configurations,
        offers=offers,
        offer=cheapest[which],
        hourly_usd=hourly_usd,
        storage_hourly_usd=storage[rows, cheapest][which],
        hours=hours,
        usd=at_price.scaled(hourly_usd),
    )


def pareto_rows(hours: Floats, usd: Floats) -> Ints:
    """Rows that no other row beats in both, fastest first; of equal rows the first."""
    order = np.lexsort((usd, hours))
    ranked = usd[order]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(ranked)[:-1]))
    return np.asarray(order[ranked < best_before])


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    hours = np.array([row.hours_limit for row in candidates])
    usd = np.array([row.usd_limit for row in candidates])
    return [candidates[row] for row in pareto_rows(hours, usd)] if candidates else []


def feasible(candidates: Sequence[Candidate], job: Job) -> list[Candidate]:
    return [row for row in candidates if excess(row, job) <= 1.0]


def excess(candidate: Candidate, job: Job) -> float:
    """The worst limit's use: 1.2 is 20 % over it."""
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    return max(candidate.hours_limit / deadline if deadline else 0.0, candidate.usd_limit / budget if budget else 0.0)


def choose(candidates: Sequence[Candidate], objective: Objective) -> Candidate | None:
    """The best of candidates that keep the limits already."""
    if not candidates:
        return None
    if objective == "knee":
        curve = front(candidates)
        return curve[knee(np.array([c.hours_limit for c in curve]), np.array([c.usd_limit for c in curve]))]
    return min(candidates, key=lambda row: preference(row, objective))


def preference(candidate: Candidate, objective: Objective) -> tuple[float, float, str, str]:
    """Smaller is better; ties go to the other measure, then to the name, so that the answer is always the same."""
    hours, usd = candidate.hours_limit, candidate.usd_limit
    first, second = (hours, usd) if objective == "time" else (usd, hours)
    return first, second, candidate.instance_type, candidate.zone


def knee(hours: Floats, usd: Floats) -> int:
    """Kneedle on a falling curve: the row furthest below the straight line between its ends."""
    if len(hours) < 3:
        return len(hours) - 1
    across = (hours - hours[0]) / (hours[-1] - hours[0])
    down = (usd - usd[-1]) / (usd[0] - usd[-1])
    return int(np.argmax(1.0 - across - down))
