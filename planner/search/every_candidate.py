"""Which of all candidates to take: cheapest within the deadline, fastest within the budget, or the knee between.

Hours and dollars are compared at the quantile that the job asks confidence for, so a candidate keeps a limit with
that confidence exactly when this one number keeps it. Every rule below prefers fewer hours and fewer dollars, so
only the Pareto front of each instance type and market can win, and only the cheapest zone for each node count.
That is how millions of candidates are compared exactly without a row for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from planner.columns import Ints, Prediction
from planner.inputs import Catalog, InstanceType, Job
from planner.models import Configurations
from planner.search.candidates import Market, Offers, every_split, offers_by_market, stored_sizes, within_quota
from planner.search.pricing import (
    Candidate,
    Predictors,
    SpotPlace,
    on_demand,
    spot_places,
    with_spot,
    work_hours,
)
from planner.search.ranking import preference
from planner.search.spot_fronts import Buy, Mixes, spot_front
from planner.search.tables import PlainTable, StrategyTable, Wanted, strategy_table
from planner.spot import on_demand_bases


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The union of the fronts, fastest first, and what it was drawn from."""

    finalists: tuple[Candidate, ...]
    candidate_count: int
    left_out: Counter[str]  # how many instance types took no part, by the reason
    too_small: tuple[InstanceType, ...] = ()  # of those, the ones whose GPUs cannot hold the job


def search(
    job: Job, catalog: Catalog, instance_types: Sequence[InstanceType], regions: tuple[str, ...], predictors: Predictors
) -> SearchResult:
    """Compare every candidate on these instance types and regions."""
    fronts = _Fronts(job=job, catalog=catalog, regions=regions, predictors=predictors)
    for gpu_count in sorted({instance_type.gpu_count for instance_type in instance_types}):
        alike = [each for each in instance_types if each.gpu_count == gpu_count]
        table = _table(job, catalog, alike[0])
        samples = predictors.samples(table.batches)
        for instance_type in alike:
            reason = fronts.add(table, instance_type, samples)
            fronts.left_out.update([reason] if reason else [])
    fronts.finalists.sort(key=lambda row: (row.hours_limit, row.usd_limit, row.instance_type, row.zone))
    return SearchResult(
        finalists=tuple(fronts.finalists),
        candidate_count=fronts.candidate_count,
        left_out=fronts.left_out,
        too_small=tuple(fronts.too_small),
    )


def _table(job: Job, catalog: Catalog, instance_type: InstanceType) -> PlainTable | StrategyTable:
    """Of every instance type with as many GPUs."""
    nodes, workload = job.constraints.nodes, job.workload
    if workload.transformer is None:
        return PlainTable(every_split(catalog, instance_type, nodes, workload.global_batch))
    options, wanted = workload.strategies_or_default, Wanted(global_batch=workload.global_batch)
    return strategy_table(catalog, instance_type, nodes, workload.transformer, options, wanted)


@dataclass(slots=True, kw_only=True)
class _Fronts:
    """Collects the fronts, one instance type after the other."""

    job: Job
    catalog: Catalog
    regions: tuple[str, ...]
    predictors: Predictors
    finalists: list[Candidate] = field(default_factory=list)
    candidate_count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    too_small: list[InstanceType] = field(default_factory=list)

    def add(self, table: PlainTable | StrategyTable, instance_type: InstanceType, samples: Prediction) -> str | None:
        """All of one instance type. Why it takes no part, if it does not."""
        configurations, workload = table.configurations.on(self.catalog, instance_type), self.job.workload
        if configurations.gpu.peak_flops_per_second(workload.precision) is None:
            return "have no units for this precision"
        offers = offers_by_market(self.catalog, instance_type, self.regions, *stored_sizes(self.job))
        if not offers["on_demand"]:
            return "are not sold on demand in these regions"
        fits = table.possible(self.predictors.fits(configurations))
        if len(fits) and not fits.any():
            self.too_small.append(instance_type)
            return "have too little GPU memory for the smallest local batch"
        count_before = self.candidate_count
        kept = table.unbeaten(configurations, fits, samples, self.predictors, self.job.constraints.confidence)
        self._add_markets(kept.configurations, kept.work, offers, kept.stand_for)
        took_part = self.candidate_count > count_before
        return None if took_part else "exceed the quotas, the batch range or what the spot options leave"

    def _add_markets(
        self, configurations: Configurations, work: Prediction, offers: Mapping[Market, Offers], stand_for: Ints
    ) -> None:
        """`stand_for`: how many candidates each row is, itself included, of which it is the best."""
        constraints, nodes = self.job.constraints, configurations.nodes
        fed = self.predictors.feeds(configurations.instance_type)
        if constraints.spot != "always":
            bought = on_demand(configurations, work, offers["on_demand"], self.predictors, fed=fed)
            allowed = within_quota(configurations.instance_type, nodes, 0 * nodes, constraints)
            self.candidate_count += int(stand_for[allowed].sum()) * len(offers["on_demand"])
            self.finalists += bought.front(allowed, constraints.confidence)
        markets = self.predictors.spot_markets
        if constraints.spot == "never" or markets is None or not offers["spot"]:
            return
        places = spot_places(offers["spot"], configurations.instance_type, markets)
        for deadline in (None, constraints.deadline_hours) if constraints.on_demand_fallback else (None,):
            buy = partial(with_spot, markets=markets, predictors=self.predictors, deadline_hours=deadline, fed=fed)
            self._add_spot(
                Mixes.of(configurations, work, constraints), places, stand_for, buy, falls_back=deadline is not None
            )

    def _add_spot(
        self, every: Mixes, places: Sequence[SpotPlace], stand_for: Ints, buy: Buy, *, falls_back: bool
    ) -> None:
        """Who falls back replaces all spot nodes by on-demand ones before the deadline is missed."""
        constraints, nodes = self.job.constraints, every.configurations.nodes[every.row]
        on_demand_nodes = nodes if falls_back else every.base
        instance_type = every.configurations.instance_type
        mixes = every.at(within_quota(instance_type, on_demand_nodes, nodes - every.base, constraints))
        if not places or not len(mixes.row):
            return
        self.candidate_count += int(stand_for[mixes.row].sum()) * sum(place.stands_for for place in places)
        self.finalists += spot_front(mixes, places, buy, constraints.confidence)


def evaluate(
    job: Job,
    catalog: Catalog,
    configurations: Configurations,
    regions: tuple[str, ...],
    predictors: Predictors,
    market: Market,
    base: int | None = None,
) -> list[Candidate]:
    """Every one of these, in their order, where it is cheapest; empty where the type is not sold so.

    As in the search, but whatever the job allows: limits, quotas, memory and spot policy are not asked. `base`:
    on-demand nodes beside spot ones, if not the fewest that the search would try.
    """
    offers = offers_by_market(catalog, configurations.instance_type, regions, *stored_sizes(job))[market]
    confidence, every = job.constraints.confidence, np.arange(len(configurations.nodes))
    work = work_hours(configurations, predictors.samples(configurations.global_batch), predictors)
    if offers and market == "on_demand":
        return on_demand(configurations, work, offers, predictors).candidates(every, confidence)
    markets = predictors.spot_markets
    if not offers or markets is None:
        return []
    nodes = configurations.nodes
    fewest = next(on_demand_bases(nodes, job.constraints)) if base is None else np.full(len(nodes), base)
    bases = np.clip(fewest, 0, nodes - 1)
    each = [
        with_spot(configurations, work, place, bases, markets=markets, predictors=predictors).candidates(
            every, confidence
        )
        for place in spot_places(offers, configurations.instance_type, markets)
    ]
    return [min(rows, key=lambda row: preference(row, "cost")) for rows in zip(*each, strict=True)]
