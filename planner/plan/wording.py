"""The sentences of a plan: why this cluster, why not that one, what would change the answer."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs import Job, Measurement, Objective, software_ages
from planner.plan.ratios import dearer, hours_cell, slower
from planner.plan.schema import DoubtedInput
from planner.probing import FurtherProbe, not_worth, worth
from planner.search import NEAR_TIE, Candidate, Chosen, cluster
from planner.units import counted, format_count, format_hours, format_percent, format_usd, written_bytes, written_flop


def job_summary(job: Job) -> str:
    target = job.workload.target
    parts = [f"{job.name}: {format_count(job.workload.target_samples)} samples at batch {target.reference_batch:,}"]
    if job.constraints.deadline_hours:
        parts.append(f"deadline {format_hours(job.constraints.deadline_hours)}")
    if job.constraints.budget_usd:
        parts.append(f"budget {format_usd(job.constraints.budget_usd)}")
    return " · ".join(parts)


def why(job: Job, candidate_count: int, chosen: Chosen, statistical: float, parallel: float) -> str:
    objective, choice = job.objective_or_default, chosen.candidate
    best = {"cost": "cheapest", "time": "fastest", "knee": "best trade of hours for dollars"}[objective]
    limits = (job.constraints.deadline_hours, job.constraints.budget_usd)
    count = sum(limit is not None for limit in limits)
    kept = ("", " that keep the limit", " that keep both limits")[count]
    confidence = f" with {job.constraints.confidence * 100:g} % confidence"
    return (
        f"{'as good as the ' if chosen.beaten else ''}{best} of {candidate_count:,} candidates{kept}{confidence}; "
        f"{_near_tie(chosen, job)}"
        f"batch {choice.global_batch:,} keeps {format_percent(statistical)} statistical "
        f"and {format_percent(parallel)} parallel efficiency"
    )


def _near_tie(chosen: Chosen, job: Job) -> str:
    """`16 x g4dn.2xlarge is 2 % cheaper (p95 $103, not $105): a near tie, which goes to the faster and smaller`."""
    if chosen.beaten is None:
        return ""
    beaten, choice, at = chosen.beaten, chosen.candidate, quantile_name(job.constraints.confidence)
    if job.objective_or_default == "time":
        how = slower(beaten.hours_limit, choice.hours_limit) or "no slower"
        figures, what = (hours_cell(row.hours_limit) + " h" for row in (beaten, choice)), "cheaper and smaller cluster"
    else:
        how = dearer(beaten.usd_limit, choice.usd_limit) or "no dearer"
        figures, what = (format_usd(row.usd_limit) for row in (beaten, choice)), "faster and smaller cluster"
    if not beaten.usual_batch and choice.usual_batch:
        what = "batch that people would run" if beaten.instance_type == choice.instance_type else what
    theirs, ours = figures
    return (
        f"{cluster(beaten)} is {how} ({at} {theirs}, not {ours}), a near tie "
        f"({NEAR_TIE * 100:g} % or chance), which goes to the {what}; "
    )


def quantile_name(confidence: float) -> str:
    return f"p{confidence * 100:g}"


def why_mix(choice: Candidate) -> str:
    """Why this base and not another."""
    spot = choice.nodes - choice.on_demand_count
    base = (
        "no on-demand node"
        if choice.on_demand_count == 0
        else "one on-demand node, which hosts the rendezvous"
        if choice.on_demand_count == 1
        else f"{choice.on_demand_count} on-demand nodes, which lose less time"
    )
    return f"{base}, and {spot} spot"


def measured(measurements: Sequence[Measurement]) -> str:
    """How many there are, and of which PyTorch where that differs."""
    ages = software_ages(measurements)
    return f"{counted(len(measurements), 'measurement')}{f' ({ages})' if ages else ''}"


def evidence(choice: Candidate, measurements: Sequence[Measurement], convergence: str, beyond: str | None) -> str:
    """`beyond`: why the choice lies outside what was measured. Candidates are compared at the upper end of their

    intervals, which are wide where nothing was measured: so what was measured wins when it is close.
    """
    if not measurements:
        return f"no probes yet: step time from data sheets only, convergence {convergence}"
    parts = [f"{measured(measurements)}, convergence {convergence}"]
    if beyond:
        parts.append(f"the choice lies outside what was measured ({beyond}), but is best even at its upper end")
    elif choice.extrapolated:
        parts.append(f"no run at batch {choice.global_batch:,} so far")
    return "; ".join(parts)


def probe(choice: Candidate, further: FurtherProbe | None, *, first: bool) -> str:
    """What one more measurement would be worth; where it is not of the choice, why not."""
    if further is None or not further.repays:
        return not_worth(first=first)
    return worth(further, first=first, chosen=choice.instance_type)


def why_not(candidate: Candidate, choice: Candidate, job: Job) -> str:
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    if deadline and candidate.hours_limit > deadline:
        return f"may miss the deadline ({format_hours(candidate.hours_limit)})"
    if budget and candidate.usd_limit > budget:
        return f"may exceed the budget ({format_usd(candidate.usd_limit)})"
    parts = [dearer(candidate.usd_limit, choice.usd_limit), slower(candidate.hours_limit, choice.hours_limit)]
    return ", ".join(part for part in parts if part) or "as good"


def sensitivity(chosen: Chosen, job: Job) -> list[str]:
    """One line per limit: how far it can move before the answer changes, or what moving it would gain."""
    limits, objective, choice = job.constraints, job.objective_or_default, chosen.candidate
    lines = []
    if limits.deadline_hours:
        gain = _gain(choice, chosen.without_deadline, objective, limits.confidence)
        same = f"the same for any above {format_hours(choice.hours_limit)}"
        needed = f"with {format_hours(chosen.without_deadline.hours_limit)}, " if chosen.without_deadline else ""
        lines.append(f"deadline {format_hours(limits.deadline_hours)}: {needed}{gain or same}")
    if limits.budget_usd:
        gain = _gain(choice, chosen.without_budget, objective, limits.confidence)
        same = f"the same for any above {format_usd(choice.usd_limit)}"
        needed = f"with {format_usd(chosen.without_budget.usd_limit)}, " if chosen.without_budget else ""
        lines.append(f"budget {format_usd(limits.budget_usd)}: {needed}{gain or same}")
    return lines


def dependence(doubted: DoubtedInput) -> str:
    """`activations 1.1GB per sample, given: twice as much would be 2.1x the hours; …`."""
    if doubted.key == "precision":
        least = "less" if doubted.hours_factor is None else f"down to {doubted.hours_factor:.2g}x the hours"
        return f"full precision, seen without a GPU: half precision may take {least}; say in the job file which it is"
    name, written = {
        "flops_per_sample": ("flops", written_flop),
        "activation_bytes_per_sample": ("activations", written_bytes),
    }[doubted.key]
    times = {2.0: "twice", 0.5: "half"}.get(doubted.factor, f"{doubted.factor:.2g} times")
    hours = "not fit a GPU" if doubted.hours_factor is None else f"be {doubted.hours_factor:.1f}x the hours"
    value = f"{name} {written(doubted.value)} per sample, {doubted.origin}"
    # Activations are derived by formula, or by an inspection on a processor: only a GPU knows what its kernels keep.
    where = " on a GPU" if (doubted.key, doubted.origin) == ("activation_bytes_per_sample", "derived") else ""
    return f"{value}: {times} as much would {hours}; `scav inspect`{where} measures it"


def _gain(choice: Candidate, better: Candidate | None, objective: Objective, confidence: float) -> str:
    """`1 x p3dn.24xlarge at p95 $85.40 instead of $103, 17 % cheaper`."""
    if better is None:
        return ""
    at = f"{cluster(better)}{_spot_words(better, choice)} at {quantile_name(confidence)}"
    if objective == "time":
        hours, now = hours_cell(better.hours_limit), hours_cell(choice.hours_limit)
        return f"{at} {hours} h instead of {now} h, {slower(better.hours_limit, choice.hours_limit)}"
    usd, before = format_usd(better.usd_limit), format_usd(choice.usd_limit)
    return f"{at} {usd} instead of {before}, {dearer(better.usd_limit, choice.usd_limit)}"


def _spot_words(better: Candidate, choice: Candidate) -> str:
    """Where that is what differs: waiting for spot nodes costs hours and no dollars."""
    spot = better.nodes - better.on_demand_count
    if (spot > 0) == (choice.nodes > choice.on_demand_count):
        return ""
    return f" ({spot} spot)" if spot else " (on demand)"
