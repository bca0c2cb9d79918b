"""A candidate with spot nodes, simulated: losses drawn by the thousand instead of averaged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.columns import Floats, Quantiles
from planner.inputs import Catalog, Job
from planner.models import Configurations
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

RUNS, RUNS_WITH_POLICY = 20_000, 4_000
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOutcome:
    """A candidate with spot nodes, and the runs that its quantiles are from."""

    expected: Candidate  # as the search saw it and all others: to be compared with these
    source: SpotSource
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


def simulated(
    candidate: Candidate, job: Job, catalog: Catalog, predictors: Predictors, markets: SpotMarkets
) -> tuple[Candidate, SpotOutcome]:
    """The same candidate with hours and dollars as simulated, losses drawn instead of averaged."""
    one = configuration_of(candidate, catalog)
    offer = next(row for row in catalog.offers_by_type[candidate.instance_type] if row.region == candidate.region)
    source = markets.history.source(candidate.instance_type, candidate.zone, offer.interruption_class)
    process = source.gang(candidate.nodes - candidate.on_demand_count)
    case = Case(
        work_hours=work_hours(one, predictors.samples(one.global_batch), predictors).rows()[0],
        startup_hours=predictors.startup_seconds / 3600,
        save_hours=markets.save_seconds / 3600,
        restart_hours=markets.restart_seconds / 3600,
        interval_hours=candidate.checkpoint_interval_seconds / 3600,
        uses_notice=markets.saves_on_notice,
        nodes=candidate.nodes,
        on_demand_count=candidate.on_demand_count,
        process=process,
        node_on_demand_usd=offer.on_demand_usd or 0.0,
        node_spot_usd=offer.spot_usd[candidate.zone] or 0.0,
        storage_hourly_usd=candidate.storage_hourly_usd,
        price_age_days=SNAPSHOT_AGE_DAYS,
        deadline_hours=job.constraints.deadline_hours,
    )
    case = case.as_written() if candidate.falls_back else case
    policy = case.policy_table() if candidate.falls_back else None
    runs = simulate_case(case, policy=policy, runs=RUNS if policy is None else RUNS_WITH_POLICY, seed=SEED)
    # Who gave up has not paid for the job yet: nothing that is cheap.
    runs = replace(runs, usd=np.where(runs.finished, runs.usd, runs.hours * case.on_demand_hourly_usd))
    confidence = job.constraints.confidence
    found = replace(
        candidate,
        hours=_quantiles(runs.hours),
        hours_limit=float(np.quantile(runs.hours, confidence)),
        usd=_quantiles(runs.usd),
        usd_limit=float(np.quantile(runs.usd, confidence)),
        losses=float(runs.losses.mean()),
    )
    return found, SpotOutcome(
        expected=candidate,
        source=source,
        history=markets.history,
        process=process,
        case=case,
        runs=runs,
        counts_on_fallback=policy is not None,
        seed=SEED,
    )


def configuration_of(candidate: Candidate, catalog: Catalog) -> Configurations:
    return Configurations.of(
        catalog,
        catalog.instance_type_by_name[candidate.instance_type],
        nodes=candidate.nodes,
        gpu_batch=candidate.gpu_batch,
        accumulation_steps=candidate.accumulation_steps,
    )


def _quantiles(values: Floats) -> Quantiles:
    return Quantiles(*(float(value) for value in np.quantile(values, (0.05, 0.5, 0.95))))
