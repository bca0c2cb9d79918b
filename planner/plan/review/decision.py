"""The decision in words, the same on a terminal, in COST.md and in a pull request."""

from __future__ import annotations

from planner.plan.ratios import hours_cell, shown_number
from planner.plan.review.lines import mix_text
from planner.plan.schema import AtConfidence, Choice, Estimate, Limit, Option, Plan
from planner.plan.wording import quantile_name
from planner.units import format_hours, format_percent, format_probability, format_usd

_NOT_PRICED = ("a NAT gateway", "data transfer out of the zone or region (datasets, container images)")
_DATA_NOT_PRICED = {
    "s3": "requests for data in S3",
    "lustre": "the FSx for Lustre file system",
    "snapshot": "volumes made of EBS snapshots",
}


def not_priced(plan: Plan) -> str:
    kinds = dict.fromkeys(source.kind for source in plan.run.data)
    return ", ".join([*_NOT_PRICED, *(_DATA_NOT_PRICED[kind] for kind in kinds), "and logs"])


def cluster_text(choice: Choice) -> str:
    gpus = choice.node_count * choice.gpus_per_node
    tier = choice.checkpoint_tier
    beside = f" + {tier.node_count} x {tier.instance_type} for checkpoints" if tier else ""
    elsewhere = f" or {', '.join(choice.other_zones)}" if choice.other_zones else ""
    return (
        f"{choice.node_count} x {choice.instance_type} ({gpus} x {choice.gpu}){beside}, "
        f"{mix_text(choice.on_demand_count, choice.node_count)}, "
        f"{choice.region} {choice.availability_zone}{elsewhere}"
    )


def time_text(plan: Plan) -> str:
    hours, limit = plan.estimate.hours, plan.constraints.deadline_hours
    interval = f"{format_hours(hours.p50)} ({_range(hours.p05, hours.p95)} in 9 of 10 runs)"
    return interval + (f"; deadline {format_hours(limit.limit)} {_kept(limit)}" if limit else "")


def cost_text(plan: Plan) -> str:
    """The most it can cost may lie above a budget that nearly every run keeps: then it is said when that happens."""
    usd, limit = plan.estimate.usd, plan.constraints.budget_usd
    parts = [f"{format_usd(usd.p50)} ({format_usd(usd.p05)} to {format_usd(usd.p95)})"]
    if limit:
        parts.append(f"budget {format_usd(limit.limit)} {_kept(limit)}")
    stopped = format_hours(plan.choice.max_runtime_hours)
    if limit and usd.max > limit.limit:
        parts.append(f"only if it ran until stopped at {stopped}, all on demand, would it cost {format_usd(usd.max)}")
    else:
        parts.append(f"at most {format_usd(usd.max)}")
    return "; ".join(parts)


def batch_text(choice: Choice) -> str:
    gpus, steps = choice.node_count * choice.gpus_per_node, choice.accumulation_steps
    on_each = f"{gpus} {'GPU' if gpus == 1 else 'GPUs'} x {choice.gpu_batch:,} samples"
    micro = f" x {steps} micro-steps" if steps > 1 else ""
    rate = f"learning rate x {choice.learning_rate_scale:.3g} ({choice.learning_rate_rule})"
    return f"{choice.global_batch:,} = {on_each}{micro}; {rate}"


def quota_text(choice: Choice) -> str:
    """Empty for plans of earlier versions."""
    quota = choice.vcpu_quota
    if quota is None:
        return ""
    counts = ((quota.on_demand, "on demand"), (quota.spot, "spot"))
    needed = [f"{vcpus:,} vCPUs {market}" for vcpus, market in counts if vcpus]
    return f"{' and '.join(needed)}, of {quota.family} types"


def left_out_text(plan: Plan) -> str:
    """`39 of 51 types: 30 have too little GPU memory …; 9 exceed …`."""
    if plan.left_out is None:
        return ""
    reasons = plan.left_out.reasons
    why = "; ".join(f"{count} {_of_one(reason) if count == 1 else reason}" for reason, count in reasons.items())
    return f"{sum(reasons.values())} of {plan.left_out.considered} types: {why}"


def _of_one(reason: str) -> str:
    verb, _, rest = reason.partition(" ")
    return f"{ {'are': 'is', 'have': 'has', 'exceed': 'exceeds'}.get(verb, verb) } {rest}"


def spot_text(plan: Plan) -> str:
    """For whoever never used spot nodes: how often they are lost, what they save, how well that is known."""
    spot = plan.spot
    if spot is None:
        return ""
    parts = []
    if spot.interrupted_share is not None:
        parts.append(interrupted_text(spot.interrupted_share))
    if spot.on_demand_usd is not None:
        parts.append(_saved(spot.on_demand_usd.p50, plan.estimate.usd.p50))
    if spot.zone_measured is not None:
        zone = plan.choice.availability_zone
        parts.append(f"capacity in {zone} was recorded" if spot.zone_measured else "nobody has measured this zone")
    return "; ".join(parts)


def interrupted_text(share: float) -> str:
    """`about 1 in 10 runs is interrupted`."""
    if share >= 0.995:
        return "nearly every run is interrupted"
    if share > 0.35:
        return f"about {round(share * 10)} in 10 runs are interrupted"
    return f"about 1 in {round(1 / share):,} runs is interrupted" if share > 0.001 else "hardly any run is interrupted"


def _saved(on_demand_usd: float, usd: float) -> str:
    """Of the middle figures, from the digits that are shown."""
    on_demand, now = format_usd(on_demand_usd), format_usd(usd)
    saved = shown_number(on_demand) - shown_number(now)
    if not saved:
        return f"spot saves nothing: the same cluster costs {on_demand} on demand"
    verb = f"saves {format_usd(saved)}" if saved > 0 else f"costs {format_usd(-saved)} more"
    return f"spot {verb}: {now} instead of {on_demand} on demand"


def spot_details(plan: Plan) -> str:
    """What the simulation assumed and found."""
    spot = plan.spot
    if spot is None:
        return ""
    rework = plan.estimate.breakdown.rework / plan.estimate.usd.p50
    minutes = plan.choice.checkpoint_interval_seconds / 60
    notice = "" if spot.uses_notice else f"; a save of {spot.save_seconds:,.0f} s does not fit the notice"
    losses, between = plan.estimate.interruptions.mean, format_hours(spot.market.hours_between_losses)
    return (
        f"{losses:.2g} losses expected, one in {between}"
        f" ({spot.market.source}); checkpoint every {minutes:.0f} min; {format_hours(spot.rework_hours)} done again and"
        f" {format_hours(spot.waiting_hours)} waited, {format_percent(rework)} of the cost; {spot.why}{notice}"
    )


def fallback_text(plan: Plan) -> str:
    return "counts on scav.policy.json being executed" if plan.spot and plan.spot.counts_on_fallback else ""


def limited_text(plan: Plan) -> str:
    return "limited by feeding" if plan.feeding and plan.feeding.limits else ""


def compared_text(plan: Plan) -> str:
    """What the rows of the table have in common; empty for plans of earlier versions, whose rows have nothing."""
    if plan.compared is None:
        return ""
    return "All rows: the same simulated runs." if plan.compared == "simulation" else "All rows: in closed form."


def quantile_heading(plan: Plan) -> str:
    """Of what is compared and held against the limits."""
    return "p95" if plan.estimate.at_confidence is None else quantile_name(plan.constraints.confidence)


def choice_row(plan: Plan) -> tuple[str, ...]:
    choice, estimate = plan.choice, plan.estimate
    return (
        f"{choice.node_count} x {choice.instance_type}",
        f"{choice.spot_count}",
        f"{choice.global_batch:,}",
        *_figures(estimate),
        "the choice",
    )


def option_row(option: Option, last: str) -> tuple[str, ...]:
    return (
        f"{option.node_count} x {option.instance_type}",
        f"{option.node_count - option.on_demand_count}",
        f"{option.global_batch:,}",
        *_figures(option),
        last,
    )


def compared(row: Estimate | Option) -> AtConfidence:
    """The hours and dollars by which rows are compared: at the job's confidence."""
    return row.at_confidence or AtConfidence(hours=row.hours.p95, usd=row.usd.p95)


def _figures(row: Estimate | Option) -> tuple[str, str, str, str]:
    at = compared(row)
    return hours_cell(row.hours.p50), hours_cell(at.hours), format_usd(row.usd.p50), format_usd(at.usd)


def _range(low: float, high: float) -> str:
    """The unit once where both have the same."""
    first, last = format_hours(low), format_hours(high)
    unit = last.split()[-1]
    return f"{first.removesuffix(f' {unit}')} to {last}"


def _kept(limit: Limit) -> str:
    return f"kept in {format_probability(limit.probability)}"
