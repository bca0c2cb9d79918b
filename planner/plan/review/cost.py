"""The review as data: what `scav review --format json` prints and a policy gate reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from planner.contract import Contract, Interval
from planner.plan.prices import MOST_SHOWN, PriceComparison, price_lines
from planner.plan.ratios import change_text, shown_number
from planner.plan.review.strategy_entries import strategy_of
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
    delta: str | None = Field(default=None, description="of figures, from the digits that are shown: +16 %")


class Change(Contract):
    """From another plan to this one."""

    usd_p50: float
    usd_max: float
    hours_p50: float
    differences: tuple[ChangedValue, ...]
    summary: str = Field(default="", description="in one line; empty where nothing changed")


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
    differences = [_changed(name, old[name], new[name]) for name in old if old[name] != new[name]]
    return Change(
        usd_p50=after.estimate.usd.p50 - before.estimate.usd.p50,
        usd_max=after.estimate.usd.max - before.estimate.usd.max,
        hours_p50=after.estimate.hours.p50 - before.estimate.hours.p50,
        differences=tuple(differences),
        summary=_summary(differences),
    )


def _summary(differences: Sequence[ChangedValue]) -> str:
    """`p95 $76.00 -> $88.00 (+16 %), 6 x g5.xlarge -> 9 x g5.12xlarge`; whatever else changed, where these did not."""
    found = {item.name: item for item in differences}
    leading = [found[name] for name in ("dollars p95", "cluster", "hours p95") if name in found]
    return ", ".join(
        f"{'' if item.name == 'cluster' else 'p95 ' if item.name.endswith('p95') else f'{item.name} '}"
        f"{item.before} -> {item.after}{f' ({item.delta})' if item.delta else ''}"
        for item in leading or differences[:3]
    )


def _changed(name: str, before: str, after: str) -> ChangedValue:
    delta = change_text(_hours_or_usd(before), _hours_or_usd(after)) if name.startswith(("hours", "dollars")) else ""
    return ChangedValue(name=name, before=before, after=after, delta=delta or None)


def _hours_or_usd(text: str) -> float:
    return float(text.removesuffix(" min")) / 60 if text.endswith("min") else shown_number(text)


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
        "strategy": strategy_of(choice) or "the whole model on every GPU",
        "local batch x micro-steps": f"{choice.gpu_batch:,} x {choice.accumulation_steps}",
        "hours p50": format_hours(estimate.hours.p50),
        "hours p95": format_hours(estimate.hours.p95),
        "dollars p50": format_usd(estimate.usd.p50),
        "dollars p95": format_usd(estimate.usd.p95),
        "dollars at most": format_usd(estimate.usd.max),
        "dollars per hour": f"${choice.hourly_usd:,.2f}",
        "catalogue": plan.inputs.catalog,
    }
