"""A plan's cost as Markdown: COST.md in the workspace, and the comment on a pull request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.contract import Interval
from planner.plan.review import decision
from planner.plan.review.cost import Cost, amount, moved_prices, review_cost
from planner.plan.review.escaping import Markup, escaped, literal, paragraph
from planner.plan.review.strategy_entries import strategy_entries
from planner.plan.schema import Limit, Plan
from planner.units import format_hours, format_probability, format_usd


def cost_markdown(plan: Plan, cost: Cost | None = None) -> str:
    """The decision first: what, how long, how much, what changed, which limits do not hold. Then the rest."""
    cost = cost or review_cost(plan)
    sections = [_title(plan, cost), _figures(plan)]
    if cost.guardrails:
        sections.append(_guardrails(cost))
    if cost.change is not None:
        sections.append(_change(cost))
    if found := moved_prices(cost):
        sentence, rows = found
        sections.append(f"## Prices that moved\n\n**{escaped(sentence)}.**\n\n{_table(('', 'known', 'here'), rows)}")
    sections += [_why(plan), _alternatives(plan), _dollars(plan), _cluster(plan), _basis(plan)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(plan: Plan, cost: Cost) -> str:
    estimate, limited = plan.estimate, decision.limited_text(plan)
    figures = (
        f"{format_usd(estimate.usd.p50)} (p95 {format_usd(estimate.usd.p95)}) "
        f"in {format_hours(estimate.hours.p50)} (p95 {format_hours(estimate.hours.p95)})"
    )
    what = f"{decision.cluster_text(plan.choice)}: {figures}" + (f"; {limited}" if limited else "")
    lines = [f"# What {literal(plan.run_id)} will cost", f"**{escaped(what)}**"]
    if cost.change is not None:
        lines.append(f"Change: {escaped(cost.change.summary or 'none')}")
    broken = [rail for rail in cost.guardrails if not rail.kept]
    lines += [f"**Exceeded: {rail.name.replace('_', ' ')} {amount(rail, rail.limit)}**" for rail in broken]
    return "\n\n".join(lines)


def _figures(plan: Plan) -> str:
    estimate, limits = plan.estimate, plan.constraints
    return _table(
        ("", "likely (p50)", "5 % of runs exceed (p95)", "at most", "limit", "kept in"),
        [
            (
                "hours",
                *_pair(estimate.hours, format_hours),
                format_hours(plan.choice.max_runtime_hours),
                *_limit(limits.deadline_hours, format_hours),
            ),
            (
                "dollars",
                *_pair(estimate.usd, format_usd),
                format_usd(estimate.usd.max),
                *_limit(limits.budget_usd, format_usd),
            ),
        ],
    )


def _dollars(plan: Plan) -> str:
    parts = plan.estimate.breakdown
    rows = [
        ("machines", format_usd(parts.compute)),
        ("rework after losing spot nodes", format_usd(parts.rework)),
        ("volumes and checkpoints", format_usd(parts.storage)),
        ("network", format_usd(parts.network)),
    ]
    return (
        f"## Where the dollars go (p50)\n\n{_table(('', 'dollars'), rows)}\n\n"
        f"While it runs the cluster costs ${plan.choice.hourly_usd:,.2f} an hour. "
        f"Its nodes stop it {format_hours(plan.choice.max_runtime_hours)} after all of them are there, for which they "
        "take at most an hour and a half; *at most* prices every node on demand until half an hour after that. "
        "Traffic within the zone and to object storage of the "
        f"region is free. Not in these figures: {decision.not_priced(plan)}."
    )


def _guardrails(cost: Cost) -> str:
    rows = [
        (
            rail.name.replace("_", " "),
            amount(rail, rail.limit),
            amount(rail, rail.value),
            "kept" if rail.kept else Markup("**exceeded**"),
        )
        for rail in cost.guardrails
    ]
    return f"## Guardrails\n\n{_table(('', 'limit', 'this plan', ''), rows)}"


def _change(cost: Cost) -> str:
    if cost.change is None or not cost.change.differences:
        return "## Change\n\nNone."
    rows = [(item.name, item.before, item.after, item.delta or "") for item in cost.change.differences]
    return f"## Change\n\n{_table(('', 'before', 'after', 'change'), rows)}"


def _why(plan: Plan) -> str:
    reason = f"## Why this cluster\n\n{_sentence(plan.reason)}"
    if not plan.sensitivity:
        return reason
    lines = "\n".join(f"- {escaped(line)}" for line in plan.sensitivity)
    return f"{reason}\n\nWhat would change it:\n\n{lines}"


def _alternatives(plan: Plan) -> str:
    """The choice is the first row: what is said of the others is held against it."""
    if not plan.alternatives:
        return ""
    rows = [
        decision.choice_row(plan),
        *(decision.option_row(option, option.why_not) for option in plan.alternatives),
    ]
    at = decision.quantile_heading(plan)
    heading = ("cluster", "spot", "batch", "hours", at, "dollars", at, "why not")
    note = decision.compared_text(plan)
    return f"## Alternatives\n\n{_table(heading, rows)}" + (f"\n\n{escaped(note)}" if note else "")


def _cluster(plan: Plan) -> str:
    named = (
        ("batch", decision.batch_text(plan.choice)),
        ("quota", decision.quota_text(plan.choice)),
        ("spot", decision.spot_text(plan)),
        ("losses", decision.spot_details(plan)),
        ("policy", decision.fallback_text(plan)),
        ("left out", decision.left_out_text(plan)),
    )
    return f"## The cluster\n\n{_table(('', ''), [row for row in named if row[1]])}"


def _basis(plan: Plan) -> str:
    spread = "".join(f"{label}: {escaped(words)}. " for label, words in strategy_entries(plan))
    feeding = f"Feeding the GPUs: {escaped(plan.feeding.statement)}. " if plan.feeding else ""
    return (
        f"## What this rests on\n\n{_sentence(plan.evidence.statement)} {spread}{feeding}"
        f"Prices: catalogue {escaped(plan.inputs.catalog)}. {plan.candidate_count:,} candidates were compared by scav "
        f"{escaped(plan.scav_version)}. Everything here is also in `scav.plan.json`."
    )


def _pair(interval: Interval, shown: Callable[[float], str]) -> tuple[str, str]:
    return shown(interval.p50), shown(interval.p95)


def _limit(limit: Limit | None, shown: Callable[[float], str]) -> tuple[str, str]:
    return (shown(limit.limit), format_probability(limit.probability)) if limit else ("none", "")


def _sentence(text: str) -> str:
    return paragraph(f"{text[:1].upper()}{text[1:]}.")


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
