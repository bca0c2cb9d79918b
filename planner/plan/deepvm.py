"""A plan of DeepVM's choice: its cluster, score and runners-up, scav's own estimate, and scav's choice beside it."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InputError, NoFeasiblePlan
from planner.inputs import Job, PlanInputs
from planner.plan import wording
from planner.plan.build import make_plan
from planner.plan.schema import Alternative, CheckpointTier, Plan, rounded
from planner.plan.writer import option_of
from planner.probing import convergence_source
from planner.search import (
    MEMORY_TYPES_SOURCE,
    Candidate,
    DeepVm,
    Rental,
    ScalingOf,
    Survey,
    choose_candidate,
    simulated_choice,
)
from planner.units import format_hours, format_percent, format_probability, format_usd

_RUNNERS_UP = 3


def make_deepvm_plan(
    inputs: PlanInputs, survey: Survey, hourly_budget_usd: float, scaling_of: ScalingOf | None = None
) -> Plan:
    """Raises NoFeasiblePlan when the money buys no cluster; the job's own limits are held against it, not asked for."""
    job = inputs.job_file.job
    if job.workload.transformer is not None:
        raise InputError("--policy deepvm knows no strategies; leave out workload.transformer, or let scav choose")
    _refuse_without_spot(job, survey)
    deepvm = DeepVm(
        job=job,
        catalog=inputs.catalog,
        instance_types=survey.instance_types,
        regions=survey.regions,
        predictors=survey.predictors,
        scaling_of=scaling_of,
    )
    rentals = deepvm.rentals(hourly_budget_usd, 1 + _RUNNERS_UP)
    candidates = [deepvm.candidate(rental) for rental in rentals]
    best, choice = rentals[0], candidates[0]
    own = _own_choice(inputs, survey)
    plan = make_plan(inputs, survey, choice)
    simulated = simulated_choice(choice, inputs, survey).candidate
    tier = checkpoint_tier(best)
    zones = () if tier else plan.choice.other_zones  # the memory nodes' zone is the GPU nodes'
    cluster = plan.choice.model_copy(update={"checkpoint_tier": tier, "other_zones": zones})
    runners_up = [
        _alternative(
            inputs,
            survey,
            simulated_choice(row, inputs, survey).candidate,
            checkpoint_tier(rental),
            _behind(rental, best),
        )
        for rental, row in zip(rentals[1:], candidates[1:], strict=True)
    ]
    updates = {
        "choice": cluster,
        "reason": _reason(plan, choice, best, hourly_budget_usd),
        "sensitivity": (_sensitivity(best, hourly_budget_usd),),
        "alternatives": (*_own_alternative(inputs, survey, own, simulated, best), *runners_up),
        "evidence": plan.evidence.model_copy(update={"statement": _evidence(inputs, deepvm, best, own)}),
    }
    return rounded(plan.model_copy(update=updates))


def checkpoint_tier(rental: Rental) -> CheckpointTier | None:
    cpu, count = rental.cluster.cpu, rental.cluster.cpu_nodes
    if cpu is None:
        return None
    return CheckpointTier(instance_type=cpu.name, node_count=count, hourly_usd=count * cpu.on_demand_usd)


def _refuse_without_spot(job: Job, survey: Survey) -> None:
    if job.constraints.spot == "never":
        raise InputError("DeepVM rents spot nodes and the job's spot policy is never; use --spot auto or --policy scav")
    if survey.predictors.spot_markets is None:
        raise InputError("DeepVM rents spot nodes and the job writes no checkpoints; use --policy scav")


def _own_choice(inputs: PlanInputs, survey: Survey) -> Candidate | None:
    try:
        return choose_candidate(inputs, survey).candidate
    except NoFeasiblePlan:
        return None


def _alternative(
    inputs: PlanInputs, survey: Survey, row: Candidate, tier: CheckpointTier | None, why_not: str
) -> Alternative:
    option = option_of(row, inputs.catalog, survey.models)
    return Alternative(**option.model_dump(), checkpoint_tier=tier, why_not=why_not)


def _own_alternative(
    inputs: PlanInputs, survey: Survey, own: Candidate | None, choice: Candidate, best: Rental
) -> Sequence[Alternative]:
    """What scav itself would rent, unless that is the same."""
    if own is None or (best.cluster.cpu is None and _same(own, choice)):
        return ()
    difference = wording.why_not(own, choice, inputs.job_file.job)
    return (_alternative(inputs, survey, own, None, f"scav's own choice: {difference}"),)


def _same(own: Candidate, choice: Candidate) -> bool:
    names = ("instance_type", "nodes", "on_demand_count", "zone")
    return all(getattr(own, name) == getattr(choice, name) for name in names)


def _behind(rental: Rental, best: Rental) -> str:
    cluster = rental.cluster
    beside = f"with {cluster.cpu_nodes} x {cluster.cpu.name}, " if cluster.cpu else ""
    lower = 1 - cluster.value / best.cluster.value
    score = f"score {format_percent(lower)} lower" if lower else "the same score"
    return f"{beside}{_usd(cluster.hourly_usd)}/h: {score}"


def _usd(hourly: float) -> str:
    """To the last digit, as machines are priced."""
    return f"${hourly:,.10g}"


def _reason(plan: Plan, choice: Candidate, best: Rental, hourly_budget_usd: float) -> str:
    estimate, cluster = plan.estimate, best.cluster
    score = (
        f"DeepVM at {_usd(hourly_budget_usd)}/h: {cluster} for {_usd(cluster.hourly_usd)}/h "
        f"({format_usd(choice.hourly_usd)} with volumes) has the highest FLOPP score, {cluster.value:.4g}"
    )
    kept = (
        f"batch {choice.global_batch:,} keeps {format_percent(estimate.statistical_efficiency)} statistical "
        f"and {format_percent(estimate.parallel_efficiency)} parallel efficiency"
    )
    return "; ".join([score, kept, *_misses(plan)])


def _misses(plan: Plan) -> Sequence[str]:
    limits, found = plan.constraints, []
    deadline, budget = limits.deadline_hours, limits.budget_usd
    if deadline and deadline.probability < limits.confidence:
        kept = f"kept with {format_probability(deadline.probability)}"
        found.append(f"may miss the deadline of {format_hours(deadline.limit)} ({kept})")
    if budget and budget.probability < limits.confidence:
        kept = f"kept with {format_probability(budget.probability)}"
        found.append(f"may exceed the budget of {format_usd(budget.limit)} ({kept})")
    return found


def _sensitivity(best: Rental, hourly_budget_usd: float) -> str:
    least = _usd(best.cluster.hourly_usd)
    return f"hourly budget {_usd(hourly_budget_usd)}: the choice is the same for any down to {least}"


def _evidence(inputs: PlanInputs, deepvm: DeepVm, best: Rental, own: Candidate | None) -> str:
    rows = inputs.measurements
    known = wording.measured(rows) if rows else "no probes: step time from data sheets only"
    convergence = convergence_source(inputs.job_file.job, inputs.measured_noise)
    instance_type = inputs.catalog.instance_type_by_name[best.cluster.gpu.name]
    scaling = (
        "DeepVM's scaling as given"
        if deepvm.scaling_of
        else f"DeepVM's scaling is a sigmoid through scav's step times on 1 to {deepvm.scaled_nodes.high} nodes at "
        f"the largest local batch ({deepvm.scaled_batch(instance_type):,} on the {instance_type.gpu})"
    )
    parts = [f"{known}, convergence {convergence}", scaling, *_about_memory_nodes(deepvm, best)]
    return "; ".join(parts if own else [*parts, "scav itself finds nothing that keeps the job's limits"])


def _about_memory_nodes(deepvm: DeepVm, best: Rental) -> Sequence[str]:
    """Where their prices come from, and where none could be considered."""
    unpriced = [region for region in deepvm.regions if region not in deepvm.memory_types]
    small = [region for region in deepvm.regions if region in deepvm.memory_types]
    small = [region for region in small if not deepvm.holds_checkpoints(region)]
    parts = []
    if best.cluster.cpu:
        parts.append(f"price of the memory node: {MEMORY_TYPES_SOURCE}, its faster saves are not credited in the hours")
    if unpriced:
        where = ", ".join(unpriced) if len(unpriced) <= 3 else f"{len(unpriced)} regions"
        parts.append(f"no prices of memory nodes in {where}: there only clusters with an on-demand GPU node")
    if small:
        parts.append(
            f"no priced memory node has room for two checkpoints in half its memory ({', '.join(small)}): "
            "only clusters with an on-demand GPU node"
        )
    return parts
