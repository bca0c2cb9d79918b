"""Which configurations a user wants to know of: those named, and for what is left open the job's or the plan's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import InputError
from planner.inputs import CountRange, InstanceType, ParallelStrategy, PlanInputs, Workload, named_instance_type
from planner.search import Market, Survey, choose_candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRequest:
    """What to predict. A batch that is left open is the one the job's objective prefers; a range is a sweep."""

    instance_type: InstanceType
    nodes: CountRange
    market: Market = "on_demand"
    on_demand_base: int | None = None
    gpu_batch: int | None = None
    global_batch: CountRange | None = None
    strategy: ParallelStrategy | None = None


class Named(NamedTuple):
    """What a user named of a configuration; None is left open."""

    instance_type: str | None = None
    nodes: CountRange | None = None
    gpu_batch: int | None = None
    global_batch: CountRange | None = None
    spot: bool | None = None
    strategy: ParallelStrategy | None = None


def forecast_request(inputs: PlanInputs, survey: Survey, named: Named, *, sweep: str | None) -> ForecastRequest:
    """What is left open comes from the job; without an instance type, from what would be planned for it."""
    constraints = inputs.job_file.job.constraints
    if named.strategy is not None:
        _refuse_unknown(inputs.job_file.job.workload, named.strategy)
    nodes = named.nodes or (constraints.nodes if sweep == "nodes" else None)
    if named.instance_type is None:
        return _as_planned(inputs, survey, named._replace(nodes=nodes), swept=sweep is not None)
    return ForecastRequest(
        instance_type=_usable_type(inputs, named.instance_type),
        nodes=nodes or CountRange(1, 1),
        market="spot" if named.spot else "on_demand",
        on_demand_base=constraints.on_demand_base,
        gpu_batch=named.gpu_batch,
        global_batch=named.global_batch,
        strategy=named.strategy,
    )


def _refuse_unknown(workload: Workload, strategy: ParallelStrategy) -> None:
    """What the job's script cannot do, or no model of its shape."""
    shape, options, key = workload.transformer, workload.strategies_or_default, "--strategy"
    if shape is None:
        raise InputError("needs workload.transformer in the job file", key=key)
    for said, known, name in (
        (strategy.sharding, options.sharding, "sharding"),
        (strategy.recompute, options.recompute, "recompute"),
    ):
        if said not in known:
            raise InputError(f"{said} is not in workload.strategies.{name} ({', '.join(known)})", key=key)
    for degree, most, name in (
        (strategy.tensor_parallel, options.tensor_parallel, "tensor_parallel"),
        (strategy.pipeline, options.pipeline, "pipeline"),
    ):
        if degree > most:
            raise InputError(f"{name} {degree} is beyond workload.strategies.{name} ({most})", key=key)


def _as_planned(inputs: PlanInputs, survey: Survey, named: Named, *, swept: bool) -> ForecastRequest:
    """The planned batch only where nothing else is named that it would have to suit."""
    planned = choose_candidate(inputs, survey).candidate
    whole = not (named.nodes or named.gpu_batch or named.global_batch or named.strategy or swept)
    on_spot = planned.market == "spot"
    base = inputs.job_file.job.constraints.on_demand_base
    return ForecastRequest(
        instance_type=_usable_type(inputs, planned.instance_type),
        nodes=named.nodes or CountRange(planned.nodes, planned.nodes),
        market="spot" if (on_spot if named.spot is None else named.spot) else "on_demand",
        on_demand_base=planned.on_demand_count if on_spot else base,
        gpu_batch=planned.gpu_batch if whole else named.gpu_batch,
        global_batch=CountRange(planned.global_batch, planned.global_batch) if whole else named.global_batch,
        strategy=planned.strategy if whole else named.strategy,
    )


def _usable_type(inputs: PlanInputs, name: str) -> InstanceType:
    instance_type, precision = named_instance_type(inputs.catalog, name), inputs.job_file.job.workload.precision
    gpu = inputs.catalog.gpu_of(instance_type)
    if gpu.peak_flops_per_second(precision) is None:
        raise InputError(f"the {gpu.name} of {instance_type.name} has no units for {precision}")
    return instance_type
