"""The spot nodes of a choice: simulated before it is written down, and again from the plan by `scav simulate`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.columns import Quantiles
from planner.contract import Interval
from planner.plan import schema
from planner.search import SpotOutcome
from planner.spot import Case, SpotProcess, simulate_case


def spot_block(outcome: SpotOutcome, why: str) -> schema.Spot:
    case, runs, process = outcome.case, outcome.runs, outcome.process
    return schema.Spot(
        market=schema.SpotMarket(
            source=outcome.described,
            loss_per_hour=tuple(process.loss_per_hour.tolist()),
            return_per_hour=tuple(process.return_per_hour.tolist()),
            loss_log_sd=process.loss_log_sd,
            return_log_sd=process.log_sd,
            day_log_sd=process.day_log_sd,
            hours_between_losses=process.mean_up_hours,
            availability=process.availability,
        ),
        work_hours=Interval(**case.work_hours._asdict()),
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
        seed=outcome.seed,
        why=why,
        interrupted_share=float((runs.losses > 0).mean()),
        on_demand_usd=_on_demand_usd(outcome),
        zone_measured=outcome.source.recording is not None,
    )


def _on_demand_usd(outcome: SpotOutcome) -> Interval:
    """Of the same cluster, in the same runs, without spot nodes."""
    case = replace(outcome.case, on_demand_count=outcome.case.nodes, process=None)
    runs = simulate_case(case, policy=None, runs=len(outcome.runs.hours), seed=outcome.seed)
    return Interval(**runs.usd_quantiles._asdict())


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
            day_log_sd=spot.market.day_log_sd,
        ),
        node_on_demand_usd=spot.node_on_demand_usd,
        node_spot_usd=spot.node_spot_usd,
        storage_hourly_usd=spot.storage_hourly_usd,
        price_age_days=spot.price_age_days,
        deadline_hours=deadline.limit if deadline else None,
    )


def on_demand_case(plan: schema.Plan) -> Case:
    """Of a plan without spot nodes: its hours and what an hour costs are all that there is to draw."""
    estimate, choice, deadline = plan.estimate, plan.choice, plan.constraints.deadline_hours
    return Case(
        work_hours=Quantiles(estimate.hours.p05, estimate.hours.p50, estimate.hours.p95),
        startup_hours=0.0,  # in the hours already, as saves are
        save_hours=0.0,
        restart_hours=0.0,
        interval_hours=0.0,
        uses_notice=False,
        nodes=choice.node_count,
        on_demand_count=choice.node_count,
        process=None,
        node_on_demand_usd=estimate.usd.p50 / estimate.hours.p50 / choice.node_count,
        node_spot_usd=0.0,
        storage_hourly_usd=0.0,
        price_age_days=0.0,
        deadline_hours=deadline.limit if deadline else None,
    )
