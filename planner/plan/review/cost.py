"""The review as data: what `scav review --format json` prints and a policy gate reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from planner.contract import Contract, Interval
from planner.plan.prices import MOST_SHOWN, PriceComparison, price_lines
from planner.plan.schema import Breakdown, Choice, Evidence, LimitsKept, Plan, UsdInterval
from planner.units import format_hours, format_usd


class Guardrail(Contract):
    """A limit that a pipeline sets, held against the p95, or against the most that can be spent."""

    name: Literal["max_usd", "max_hours", "max_possible_usd"]
    limit: PositiveFloat
    value: NonNegativeFloat
    kept: bool


class ChangedValue(Contract):
    """One decision or figure that is not what it was."""

    name: str
    before: str
    after: str


class Change(Contract):
    """From another plan to this one."""

    usd_p50: float
    usd_max: float
    hours_p50: float
    differences: tuple[ChangedValue, ...]


class Cost(Contract):
    schema_version: Literal[1] = 1
    job: str
    run_id: str
    catalog: str
    choice: Choice
    hours: Interval
    usd: UsdInterval
    breakdown: Breakdown
    constraints: LimitsKept
    evidence: Evidence
    guardrails: tuple[Guardrail, ...] = ()
    change: Change | None = None
    prices: PriceComparison | None = Field(default=None, description="with the catalogue that scav brings along")


def review_cost(
    plan: Plan,
    *,
    max_usd: float | None = None,
    max_hours: float | None = None,
    max_possible_usd: float | None = None,
    against: Plan | None = None,
    prices: PriceComparison | None = None,
) -> Cost:
    checks = (
        ("max_usd", max_usd, plan.estimate.usd.p95),
        ("max_hours", max_hours, plan.estimate.hours.p95),
        ("max_possible_usd", max_possible_usd, plan.estimate.usd.max),
    )
    return Cost(
        job=plan.job,
        run_id=plan.run_id,
        catalog=plan.inputs.catalog,
        choice=plan.choice,
        hours=plan.estimate.hours,
        usd=plan.estimate.usd,
        breakdown=plan.estimate.breakdown,
        constraints=plan.constraints,
        evidence=plan.evidence,
        guardrails=tuple(
            Guardrail.model_validate({"name": name, "limit": limit, "value": value, "kept": value <= limit})
            for name, limit, value in checks
            if limit is not None
        ),
        change=None if against is None else change_between(against, plan),
        prices=prices,
    )


def moved_prices(cost: Cost) -> tuple[str, list[tuple[str, str, str]]] | None:
    """A sentence, and the farthest in rows; None where no price moved far."""
    if cost.prices is None or not cost.prices.moved:
        return None
    moved, compared = len(cost.prices.moved), cost.prices.compared
    sentence = f"{moved:,} of {compared:,} prices moved by more than half since the catalogue {cost.prices.known}"
    return sentence, list(price_lines(cost.prices.moved[:MOST_SHOWN]))


def exceeded(cost: Cost) -> list[str]:
    """A sentence for each guardrail that does not hold."""
    what = {"max_usd": "p95 cost", "max_hours": "p95 time", "max_possible_usd": "the most it can cost,"}
    return [
        f"{what[rail.name]} {amount(rail, rail.value)} exceeds "
        f"--{rail.name.replace('_', '-')} {amount(rail, rail.limit)}"
        for rail in cost.guardrails
        if not rail.kept
    ]


def amount(rail: Guardrail, value: float) -> str:
    return format_hours(value) if rail.name == "max_hours" else format_usd(value)


def change_between(before: Plan, after: Plan) -> Change:
    old, new = _facts(before), _facts(after)
    return Change(
        usd_p50=after.estimate.usd.p50 - before.estimate.usd.p50,
        usd_max=after.estimate.usd.max - before.estimate.usd.max,
        hours_p50=after.estimate.hours.p50 - before.estimate.hours.p50,
        differences=tuple(
            ChangedValue(name=name, before=old[name], after=new[name]) for name in old if old[name] != new[name]
        ),
    )


def _facts(plan: Plan) -> dict[str, str]:
    choice, estimate, tier = plan.choice, plan.estimate, plan.choice.checkpoint_tier
    return {
        "cluster": f"{choice.node_count} x {choice.instance_type}",
        "memory nodes": f"{tier.node_count} x {tier.instance_type}" if tier else "none",
        "zone": f"{choice.region} {choice.availability_zone}",
        "on-demand + spot": f"{choice.on_demand_count} + {choice.spot_count}",
        "checkpoint every": f"{choice.checkpoint_interval_seconds / 60:.0f} min",
        "losses expected": f"{estimate.interruptions.mean:.1f}",
        "global batch": f"{choice.global_batch:,}",
        "hours p50": format_hours(estimate.hours.p50),
        "hours p95": format_hours(estimate.hours.p95),
        "dollars p50": format_usd(estimate.usd.p50),
        "dollars p95": format_usd(estimate.usd.p95),
        "dollars at most": format_usd(estimate.usd.max),
        "dollars per hour": f"${choice.hourly_usd:,.2f}",
        "catalogue": plan.inputs.catalog,
    }
