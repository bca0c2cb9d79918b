"""The spot nodes of a choice: simulated before it is written down, and again from the plan by `scav simulate`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.catalog import Catalog
from planner.job import Job
from planner.models.configurations import Configurations
from planner.models.interruption.process import SpotProcess
from planner.models.interruption.sources import SpotHistory, SpotSource
from planner.models.prediction import Floats, Quantiles
from planner.models.spot_price import SNAPSHOT_AGE_DAYS
from planner.plan import schema
from planner.pricing import Candidate, Predictors, work_hours
from planner.simulation import Case, CaseRuns, simulate_case
from planner.spot_mix import SpotMarkets

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
    policy = case.policy_table() if candidate.falls_back else None
    runs = simulate_case(case, policy=policy, runs=RUNS if policy is None else RUNS_WITH_POLICY, seed=SEED)
    # Who gave up has not paid for the job yet: nothing that is cheap.
    runs = replace(runs, usd=np.where(runs.finished, runs.usd, runs.hours * case.on_demand_hourly_usd))
    confidence = job.constraints.confidence
    found = candidate._replace(
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
    )


def spot_block(outcome: SpotOutcome, why: str) -> schema.Spot:
    case, runs, process = outcome.case, outcome.runs, outcome.process
    return schema.Spot(
        market=schema.SpotMarket(
            source=outcome.source.description,
            loss_per_hour=tuple(process.loss_per_hour.tolist()),
            return_per_hour=tuple(process.return_per_hour.tolist()),
            loss_log_sd=process.loss_log_sd,
            return_log_sd=process.log_sd,
            hours_between_losses=process.mean_up_hours,
            availability=process.availability,
        ),
        work_hours=schema.Interval(**case.work_hours._asdict()),
        startup_seconds=case.startup_hours * 3600,
        save_seconds=case.save_hours * 3600,
        restart_seconds=case.restart_hours * 3600,
        uses_notice=case.uses_notice,
        node_on_demand_usd=case.node_on_demand_usd,
        node_spot_usd=case.node_spot_usd,
        storage_hourly_usd=case.storage_hourly_usd,
        price_age_days=case.price_age_days,
        rework_hours=float(runs.rework_hours.mean()),
        waiting_hours=float(runs.waiting_hours.mean()),
        counts_on_fallback=outcome.counts_on_fallback,
        runs=len(runs.hours),
        seed=SEED,
        why=why,
    )


def simulated_case(plan: schema.Plan) -> Case | None:
    """What the plan was simulated with; None when all its nodes are on demand and nothing can be lost."""
    spot, choice, deadline = plan.spot, plan.choice, plan.constraints.deadline_hours
    if spot is None:
        return None
    return Case(
        work_hours=Quantiles(**spot.work_hours.model_dump()),
        startup_hours=spot.startup_seconds / 3600,
        save_hours=spot.save_seconds / 3600,
        restart_hours=spot.restart_seconds / 3600,
        interval_hours=choice.checkpoint_interval_seconds / 3600,
        uses_notice=spot.uses_notice,
        nodes=choice.node_count,
        on_demand_count=choice.on_demand_count,
        process=SpotProcess(
            loss_per_hour=np.array(spot.market.loss_per_hour),
            return_per_hour=np.array(spot.market.return_per_hour),
            log_sd=spot.market.return_log_sd,
            own_loss_log_sd=spot.market.loss_log_sd,
        ),
        node_on_demand_usd=spot.node_on_demand_usd,
        node_spot_usd=spot.node_spot_usd,
        storage_hourly_usd=spot.storage_hourly_usd,
        price_age_days=spot.price_age_days,
        deadline_hours=deadline.limit if deadline else None,
    )


def configuration_of(candidate: Candidate, catalog: Catalog) -> Configurations:
    kind = catalog.instance_type_by_name[candidate.instance_type]
    return Configurations(
        instance_type=kind,
        gpu=catalog.gpu_of(kind),
        nodes=np.array([candidate.nodes]),
        gpu_batch=np.array([candidate.gpu_batch]),
        accumulation_steps=np.array([candidate.accumulation_steps]),
    )


def _quantiles(values: Floats) -> Quantiles:
    return Quantiles(*(float(value) for value in np.quantile(values, (0.05, 0.5, 0.95))))
