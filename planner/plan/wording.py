"""The sentences of a plan: why this cluster, why not that one, what to relax when none is left."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs import Job, Measurement, Objective, software_ages
from planner.probing import FurtherProbe, not_worth, worth
from planner.search import Candidate, cluster, feasible, preference
from planner.units import counted, format_count, format_hours, format_percent, format_usd


def job_summary(job: Job) -> str:
    target = job.workload.target
    parts = [f"{job.name}: {format_count(job.workload.target_samples)} samples at batch {target.reference_batch:,}"]
    if job.constraints.deadline_hours:
        parts.append(f"deadline {format_hours(job.constraints.deadline_hours)}")
    if job.constraints.budget_usd:
        parts.append(f"budget {format_usd(job.constraints.budget_usd)}")
    return " · ".join(parts)


def why(job: Job, candidate_count: int, choice: Candidate, statistical: float, parallel: float) -> str:
    objective = job.objective_or_default
    superlative = {"cost": "cheapest", "time": "fastest", "knee": "best trade of hours for dollars"}[objective]
    limits = (job.constraints.deadline_hours, job.constraints.budget_usd)
    kept = ("", " that keep the limit", " that keep both limits")[sum(limit is not None for limit in limits)]
    return (
        f"{superlative} of {candidate_count:,} candidates{kept} "
        f"with {job.constraints.confidence * 100:g} % confidence; "
        f"batch {choice.global_batch:,} keeps {format_percent(statistical)} statistical "
        f"and {format_percent(parallel)} parallel efficiency"
    )


def why_mix(choice: Candidate, finalists: Sequence[Candidate]) -> str:
    """Why this base and not another: what the same cluster costs on demand, and what one base more or less does."""
    spot = choice.nodes - choice.on_demand_count
    base = (
        "no on-demand node"
        if choice.on_demand_count == 0
        else "one on-demand node, which hosts the rendezvous"
        if choice.on_demand_count == 1
        else f"{choice.on_demand_count} on-demand nodes, which lose less time"
    )
    alone = [row for row in finalists if (row.instance_type, row.market) == (choice.instance_type, "on_demand")]
    parts = [f"{base}, and {spot} spot"]
    if alone:
        cheapest = min(alone, key=lambda row: row.usd_limit)
        parts.append(f"on demand alone this type costs at least {format_usd(cheapest.usd.p50)}")
    return "; ".join(parts)


def measured(measurements: Sequence[Measurement]) -> str:
    """How many there are, and of which PyTorch where that differs."""
    ages = software_ages(measurements)
    return f"{counted(len(measurements), 'measurement')}{f' ({ages})' if ages else ''}"


def evidence(
    choice: Candidate,
    measurements: Sequence[Measurement],
    convergence: str,
    beyond: str | None,
    further: FurtherProbe | None,
) -> str:
    """`beyond`: why the choice lies outside what was measured. Candidates are compared at the upper end of their

    intervals, which are wide where nothing was measured: so what was measured wins when it is close.
    """
    if not measurements:
        parts = [f"no probes yet: step time from data sheets only, convergence {convergence}"]
    else:
        parts = [f"{measured(measurements)}, convergence {convergence}"]
        if beyond:
            parts.append(f"the choice lies outside what was measured ({beyond}), but is best even at its upper end")
        elif choice.extrapolated:
            parts.append(f"no run at batch {choice.global_batch:,} so far")
    first = not measurements
    parts.append(worth(further, first=first) if further and further.repays else not_worth(first=first))
    return "; ".join(parts)


def why_not(candidate: Candidate, choice: Candidate, job: Job) -> str:
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    if deadline and candidate.hours_limit > deadline:
        return f"may miss the deadline ({format_hours(candidate.hours_limit)})"
    if budget and candidate.usd_limit > budget:
        return f"may exceed the budget ({format_usd(candidate.usd_limit)})"
    dearer = candidate.usd_limit / choice.usd_limit
    slower = candidate.hours_limit / choice.hours_limit
    parts = [_ratio(dearer, "dearer", "cheaper"), _ratio(slower, "slower", "faster")]
    return ", ".join(part for part in parts if part) or "as good; ties go by name"


def _ratio(ratio: float, more: str, less: str) -> str:
    """By factors in both directions: twice as fast is 2.0x faster, not 50 %."""
    word, factor = (more, ratio) if ratio > 1 else (less, 1 / ratio)
    if factor <= 1.005:
        return ""
    return f"{factor:.1f}x {word}" if factor >= 1.5 else f"{(factor - 1) * 100:.0f} % {word}"


def sensitivity(choice: Candidate, finalists: Sequence[Candidate], job: Job) -> list[str]:
    """One line per limit: how far it can move before the answer changes, or what moving it would gain."""
    limits, objective = job.constraints, job.objective_or_default
    lines = []
    if limits.deadline_hours:
        without = job.model_copy(update={"constraints": limits.model_copy(update={"deadline_hours": None})})
        gain = _gain(choice, feasible(finalists, without), objective)
        lines.append(
            f"deadline {format_hours(limits.deadline_hours)}: "
            + (gain or f"the choice is the same for any above {format_hours(choice.hours_limit)}")
        )
    if limits.budget_usd:
        without = job.model_copy(update={"constraints": limits.model_copy(update={"budget_usd": None})})
        gain = _gain(choice, feasible(finalists, without), objective)
        lines.append(
            f"budget {format_usd(limits.budget_usd)}: "
            + (gain or f"the choice is the same for any above {format_usd(choice.usd_limit)}")
        )
    return lines


def _gain(choice: Candidate, candidates: Sequence[Candidate], objective: Objective) -> str:
    if objective == "knee" or not candidates:
        return ""
    best = min(candidates, key=lambda row: preference(row, objective))
    if objective == "cost" and best.usd_limit < choice.usd_limit:
        return (
            f"{format_hours(best.hours_limit)} would save {_share(best.usd_limit, choice.usd_limit)} ({cluster(best)})"
        )
    if objective == "time" and best.hours_limit < choice.hours_limit:
        faster = _share(best.hours_limit, choice.hours_limit)
        return f"{format_usd(best.usd_limit)} would be {faster} faster ({cluster(best)})"
    return ""


def _share(smaller: float, larger: float) -> str:
    return format_percent(1 - smaller / larger)
