"""A plan as text for a terminal, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from planner.errors import printable
from planner.plan.review.cost import Cost, amount, moved_prices
from planner.plan.schema import Choice, Limit, Option, Plan
from planner.units import format_hours, format_percent, format_probability, format_usd

WIDTH = 100
_LABEL = 10
_LEAST_REASON = 20  # columns


def plan_text(plan: Plan) -> str:
    """What `scav plan` answers: which cluster, how long, how much, how sure, and why."""
    estimate, limits = plan.estimate, plan.constraints
    time = [format_hours(estimate.hours.p50), f"p95 {format_hours(estimate.hours.p95)}"]
    cost = [
        format_usd(estimate.usd.p50),
        f"p95 {format_usd(estimate.usd.p95)}",
        f"at most {format_usd(estimate.usd.max)}",
    ]
    time += ["", _kept("deadline", limits.deadline_hours)]
    cost += [_kept("budget", limits.budget_usd)]
    lines = [
        entry("Job", plan.summary),
        entry("Evidence", f"{plan.evidence.statement}; prices: {plan.inputs.catalog}"),
        entry("Choice", choice_text(plan.choice)),
        entry("Time", columns(time)),
        entry("Cost", columns(cost)),
        *([entry("Spot", spot_text(plan))] if plan.choice.spot_count else []),
        entry("Why", plan.reason),
    ]
    lines += [entry("What if" if index == 0 else "", line) for index, line in enumerate(plan.sensitivity)]
    if plan.alternatives:
        lines += ["", *_alternatives_table(plan)]
    return "\n".join(lines) + "\n"


def review_text(plan: Plan, cost: Cost) -> str:
    """The plan, where its dollars go, what a pipeline's limits say, and what changed."""
    parts = [plan_text(plan).rstrip("\n"), "", entry("Dollars", _breakdown(plan))]
    if found := moved_prices(cost):
        sentence, prices = found
        parts += [
            entry("PRICES", sentence),
            *(f"  {row}" for row in table([(a, b, "->", c) for a, b, c in prices], "<><>")),
        ]
    for rail in cost.guardrails:
        verdict = "kept" if rail.kept else "EXCEEDED"
        limit, value = amount(rail, rail.limit), amount(rail, rail.value)
        parts.append(entry("Guardrail", f"{rail.name.replace('_', ' ')} {limit}: {value}, {verdict}"))
    if cost.change is not None:
        rows = [(item.name, item.before, "->", item.after) for item in cost.change.differences]
        parts += ["", entry("Change", "" if rows else "none"), *(f"  {row}" for row in table(rows, "<<<<"))]
    return "\n".join(parts) + "\n"


def choice_text(choice: Choice) -> str:
    gpus = choice.node_count * choice.gpus_per_node
    micro = f" ({choice.accumulation_steps} micro-steps)" if choice.accumulation_steps > 1 else ""
    tier = choice.checkpoint_tier
    beside = f" + {tier.node_count} x {tier.instance_type} for checkpoints" if tier else ""
    return (
        f"{choice.node_count} x {choice.instance_type} ({gpus} x {choice.gpu}){beside}"
        f" · {choice.region} {choice.availability_zone}{_or_elsewhere(choice)}"
        f" · {mix_text(choice.on_demand_count, choice.node_count)} · global batch {choice.global_batch:,}{micro}"
    )


def _or_elsewhere(choice: Choice) -> str:
    return f" or {', '.join(choice.other_zones)}" if choice.other_zones else ""


def spot_text(plan: Plan) -> str:
    """What the spot nodes cost in time and in work done again, so that nobody takes the price for free."""
    spot = plan.spot
    if spot is None:
        return ""
    rework = plan.estimate.breakdown.rework / plan.estimate.usd.p50
    minutes = plan.choice.checkpoint_interval_seconds / 60
    notice = "" if spot.uses_notice else f"; a save of {spot.save_seconds:,.0f} s does not fit the notice"
    fallback = "; counts on scav.policy.json being executed" if spot.counts_on_fallback else ""
    losses, between = plan.estimate.interruptions.mean, format_hours(spot.market.hours_between_losses)
    return (
        f"{losses:.2g} losses expected, one in {between}"
        f" ({spot.market.source}); checkpoint every {minutes:.0f} min; {format_hours(spot.rework_hours)} done again and"
        f" {format_hours(spot.waiting_hours)} waited, {format_percent(rework)} of the cost;"
        f" {spot.why}{notice}{fallback}"
    )


def mix_text(on_demand_count: int, node_count: int) -> str:
    spot = node_count - on_demand_count
    return " + ".join(f"{n} {word}" for n, word in ((on_demand_count, "on-demand"), (spot, "spot")) if n)


def option_row(option: Option, last: str) -> tuple[str, ...]:
    return (
        f"{option.node_count} x {option.instance_type}",
        f"{option.on_demand_count}+{option.node_count - option.on_demand_count}",
        f"{option.global_batch:,}",
        f"{hours_cell(option.hours.p50)} ({hours_cell(option.hours.p95)})",
        f"{format_usd(option.usd.p50)} ({format_usd(option.usd.p95)})",
        last,
    )


def table(rows: Sequence[Sequence[str]], alignment: str) -> list[str]:
    """Columns two spaces apart, as wide as their longest cell, whatever a file put into it."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(alignment))] if rows else []
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths, strict=True)).rstrip()
        for row in rows
    ]


def _alternatives_table(plan: Plan) -> list[str]:
    heading = ("", "cluster", "od+spot", "batch", "hours (p95)", "dollars (p95)", "why not")
    rows = [
        (f"{_ordinal(index)}", *option_row(option, option.why_not))
        for index, option in enumerate(plan.alternatives, start=2)
    ]
    lines = table([row[:-1] for row in (heading, *rows)], "<<>>>>")
    width = max(map(len, lines)) + 2
    reasons = [textwrap.wrap(printable(row[-1]), max(WIDTH - width, _LEAST_REASON)) for row in (heading, *rows)]
    return [
        f"{line if index == 0 else '':<{width}}{part}"
        for line, reason in zip(lines, reasons, strict=True)
        for index, part in enumerate(reason)
    ]


def hours_cell(hours: float) -> str:
    """Without a unit, which the heading names."""
    return f"{hours:.2f}" if hours < 1 else f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _breakdown(plan: Plan) -> str:
    parts = plan.estimate.breakdown
    named = (
        ("machines", parts.compute),
        ("rework", parts.rework),
        ("storage", parts.storage),
        ("network", parts.network),
    )
    return " · ".join(f"{name} {format_usd(usd)}" for name, usd in named)


def _kept(name: str, limit: Limit | None) -> str:
    return f"{name} kept with {format_probability(limit.probability)}" if limit else ""


def columns(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<17}" for cell in cells).rstrip()


def entry(label: str, text: str) -> str:
    label, text = f"{label:<{_LABEL}}", printable(text)
    if not text or "  " in text:  # columns: wrapping would fold their spaces
        return (label + text).rstrip()
    return textwrap.fill(text, WIDTH, initial_indent=label, subsequent_indent=" " * _LABEL, break_on_hyphens=False)
