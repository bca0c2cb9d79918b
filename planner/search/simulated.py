"""Candidates simulated: losses drawn by the thousand instead of averaged, in the same runs for all of them.

Run i draws the same work, the same drift of spot prices and the same luck for every candidate. What differs between
two of them is then their own, not the draw's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from planner.columns import Floats, Quantiles
from planner.inputs import Catalog, Job, Offer
from planner.models import Configurations, Strategies
from planner.search.pricing import Candidate, Predictors, work_hours
from planner.spot import (
    SNAPSHOT_AGE_DAYS,
    Case,
    CaseRuns,
    SpotHistory,
    SpotMarkets,
    SpotProcess,
    SpotSource,
    simulate_case,
)

RUNS = 4_000  # the p95 of work known to a factor of two then is within 1.5 %, and the ratio of two p95s far closer
SEED = 0
_PARTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOutcome:
    """What a simulation says of a candidate's spot nodes."""

    source: SpotSource
    described: str  # where the rates come from, in words
    history: SpotHistory
    process: SpotProcess
    case: Case
    runs: CaseRuns
    counts_on_fallback: bool
    seed: int

    def finishes(self, confidence: float) -> bool:
        """Whether so many runs end within a year, after which a simulation gives up."""
        return float(self.runs.finished.mean()) >= confidence

    @property
    def extra_usd_share(self) -> float:
        """Of the machines' dollars: what lost nodes do again, and the others while they wait for them."""
        case, runs = self.case, self.runs
        base = case.on_demand_count * case.node_on_demand_usd
        spot = (case.nodes - case.on_demand_count) * case.node_spot_usd
        waiting = case.waiting_hourly_usd - case.storage_hourly_usd
        extra = float(runs.rework_hours.mean()) * (base + spot) + float(runs.waiting_hours.mean()) * waiting
        return min(extra / float(runs.usd.mean()), 1.0)


class Simulated(NamedTuple):
    """A candidate with hours and dollars as its runs had them; `outcome` only where it has spot nodes."""

    candidate: Candidate
    outcome: SpotOutcome | None
    hours: Floats
    usd: Floats

    @classmethod
    def exactly(cls, candidate: Candidate) -> Simulated:
        """In closed form: without runs."""
        return cls(candidate, None, np.array([]), np.array([]))

    def finishes(self, confidence: float) -> bool:
        return self.outcome is None or self.outcome.finishes(confidence)

    def keeps(self, quantity: Literal["hours", "usd"], limit: float) -> float:
        """With which probability: counted in its runs, if there are any."""
        runs: Floats = getattr(self, quantity)
        if len(runs):
            return float((runs <= limit).mean())
        quantiles: Quantiles = getattr(self.candidate, quantity)
        return quantiles.probability_at_most(limit)


def simulated(
    candidate: Candidate, job: Job, catalog: Catalog, predictors: Predictors, markets: SpotMarkets
) -> Simulated:
    """The same candidate with hours and dollars as simulated."""
    source = _source(candidate, catalog, markets)
    case = _case(candidate, job, catalog, predictors, markets, source)
    case = case.as_written() if candidate.falls_back else case
    policy = case.policy_table() if candidate.falls_back else None
    runs = simulate_case(case, policy=policy, runs=RUNS, seed=SEED)
    # Who gave up has not paid for the job yet: nothing that is cheap.
    runs = replace(runs, usd=np.where(runs.finished, runs.usd, runs.hours * case.on_demand_hourly_usd))
    found = with_quantiles(candidate, runs, job.constraints.confidence)
    if source is None or case.process is None:
        return Simulated(found, None, runs.hours, runs.usd)
    outcome = SpotOutcome(
        source=source,
        described=source.described(case.process, _class_date(candidate, catalog)),
        history=markets.history,
        process=case.process,
        case=case,
        runs=runs,
        counts_on_fallback=policy is not None,
        seed=SEED,
    )
    return Simulated(found, outcome, runs.hours, runs.usd)


def with_quantiles(candidate: Candidate, runs: CaseRuns, confidence: float) -> Candidate:
    return candidate._replace(
        hours=_quantiles(runs.hours),
        hours_limit=float(np.quantile(runs.hours, confidence)),
        usd=_quantiles(runs.usd),
        usd_limit=float(np.quantile(runs.usd, confidence)),
        losses=float(runs.losses.mean()),
    )


def ratio_noise(one: Floats, other: Floats, probability: float) -> float:
    """Two standard errors of the ratio of two quantiles, from parts of the runs: what is closer may be chance."""
    ratios = [
        np.quantile(one[part::_PARTS], probability) / np.quantile(other[part::_PARTS], probability)
        for part in range(_PARTS)
    ]
    return float(2 * np.std(ratios, ddof=1) / np.sqrt(_PARTS))


def _source(candidate: Candidate, catalog: Catalog, markets: SpotMarkets) -> SpotSource | None:
    if candidate.market == "on_demand":
        return None
    offer = _offer(candidate, catalog)
    return markets.history.source(candidate.instance_type, candidate.zone, offer.interruption_class)


def _class_date(candidate: Candidate, catalog: Catalog) -> str:
    """Of AWS's interruption class."""
    offer = _offer(candidate, catalog)
    return catalog.sources[offer.interruption_source or offer.source].date.strftime("%B %Y")


def _offer(candidate: Candidate, catalog: Catalog) -> Offer:
    return next(row for row in catalog.offers_by_type[candidate.instance_type] if row.region == candidate.region)


def _case(
    candidate: Candidate,
    job: Job,
    catalog: Catalog,
    predictors: Predictors,
    markets: SpotMarkets,
    source: SpotSource | None,
) -> Case:
    one, offer = configuration_of(candidate, catalog), _offer(candidate, catalog)
    interval_hours = candidate.checkpoint_interval_seconds / 3600
    on_demand_save_hours = predictors.checkpoint_share * interval_hours
    return Case(
        work_hours=work_hours(one, predictors.samples(one.global_batch), predictors).rows()[0],
        startup_hours=predictors.startup_seconds / 3600,
        save_hours=markets.save_seconds / 3600 if source else on_demand_save_hours,
        restart_hours=markets.restart_seconds / 3600,
        interval_hours=interval_hours,
        uses_notice=markets.saves_on_notice,
        nodes=candidate.nodes,
        on_demand_count=candidate.on_demand_count,
        process=source.gang(candidate.nodes - candidate.on_demand_count) if source else None,
        node_on_demand_usd=offer.on_demand_usd or 0.0,
        node_spot_usd=offer.spot_usd[candidate.zone] or 0.0,
        storage_hourly_usd=candidate.storage_hourly_usd,
        price_age_days=SNAPSHOT_AGE_DAYS,
        deadline_hours=job.constraints.deadline_hours,
    )


def configuration_of(candidate: Candidate, catalog: Catalog) -> Configurations:
    return Configurations.of(
        catalog,
        catalog.instance_type_by_name[candidate.instance_type],
        nodes=candidate.nodes,
        gpu_batch=candidate.gpu_batch,
        accumulation_steps=candidate.accumulation_steps,
        strategies=None if candidate.strategy is None else Strategies.repeated(candidate.strategy),
    )


def _quantiles(values: Floats) -> Quantiles:
    return Quantiles(*(float(value) for value in np.quantile(values, (0.05, 0.5, 0.95))))
