"""A plan's cost as Markdown: COST.md in the workspace, and the comment on a pull request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.contract import Interval
from planner.plan.review.cost import Cost, amount, moved_prices, review_cost
from planner.plan.review.escaping import Markup, escaped, literal, paragraph
from planner.plan.review.text import choice_text, option_row
from planner.plan.schema import Limit, Plan
from planner.units import format_hours, format_probability, format_usd


def cost_markdown(plan: Plan, cost: Cost | None = None) -> str:
    cost = cost or review_cost(plan)
    sections = [_title(plan), _figures(plan), _dollars(plan)]
    if found := moved_prices(cost):
        sentence, rows = found
        sections.append(f"## Prices that moved\n\n**{escaped(sentence)}.**\n\n{_table(('', 'known', 'here'), rows)}")
    if cost.guardrails:
        sections.append(_guardrails(cost))
    if cost.change is not None:
        sections.append(_change(cost))
    sections += [_why(plan), _alternatives(plan), _basis(plan)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(plan: Plan) -> str:
    return f"# What {literal(plan.run_id)} will cost\n\n**{escaped(choice_text(plan.choice))}**"


def _figures(plan: Plan) -> str:
    estimate, limits = plan.estimate, plan.constraints
    return _table(
        ("", "likely (p50)", "5 % of runs exceed (p95)", "at most", "limit", "kept with"),
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
        f"Its nodes stop it after {format_hours(plan.choice.max_runtime_hours)}, "
        "and AWS half an hour later if they did not; "
        "*at most* prices every node on demand until then. Traffic within the zone and to object storage of the "
        "region is free; a NAT gateway of yours is not in these figures."
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
    rows = [(item.name, item.before, item.after) for item in cost.change.differences]
    return f"## Change\n\n{_table(('', 'before', 'after'), rows)}"


def _why(plan: Plan) -> str:
    lines = [f"## Why this cluster\n\n{_sentence(plan.reason)}"]
    lines += [f"- {escaped(line)}" for line in plan.sensitivity]
    return "\n\n".join(lines[:1]) + ("\n\n" + "\n".join(lines[1:]) if plan.sensitivity else "")


def _alternatives(plan: Plan) -> str:
    if not plan.alternatives:
        return ""
    rows = [option_row(option, option.why_not) for option in plan.alternatives]
    heading = ("cluster", "on-demand + spot", "batch", "hours (p95)", "dollars (p95)", "why not")
    return f"## Alternatives\n\n{_table(heading, rows)}"


def _basis(plan: Plan) -> str:
    return (
        f"## What this rests on\n\n{_sentence(plan.evidence.statement)} "
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
