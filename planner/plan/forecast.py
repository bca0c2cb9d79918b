"""Hours and dollars of configurations that the user names, one or a sweep, by the same arithmetic as the search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from planner.contract import Interval, Share, six_digits
from planner.errors import InputError
from planner.inputs import (
    LARGEST_BATCH,
    CountRange,
    PlanInputs,
    TransformerShape,
)
from planner.models import Configurations, ShardedMemoryModel, Strategy, check_strategy
from planner.plan.feeding import feeding_of
from planner.plan.forecast_request import ForecastRequest
from planner.plan.schema import Feeding, Option
from planner.plan.writer import interval_of, option_of
from planner.search import (
    Candidate,
    Survey,
    Wanted,
    configuration_of,
    evaluate,
    every_split,
    preference,
    simulated,
    step_seconds,
    strategy_table,
)

Item = TypeVar("Item")

MOST_ROWS = 20  # of a sweep: what a terminal shows


class Forecast(Option):
    """One configuration: what it takes, what it costs, and how far from anything measured it lies."""

    later_keys: ClassVar[frozenset[str]] = Option.later_keys | {"feeding"}

    gpu_batch: PositiveInt
    accumulation_steps: PositiveInt
    step_seconds: Interval
    samples: Interval
    parallel_efficiency: Share
    statistical_efficiency: PositiveFloat
    extrapolated: bool
    why_extrapolated: str | None
    feeding: Feeding | None = Field(default=None, description="left out where the job file has no workload.input")


def predict_one(inputs: PlanInputs, survey: Survey, request: ForecastRequest) -> Forecast:
    """Raises InputError where the batch cannot be spread over the GPUs, does not fit them, or nobody sells them."""
    count = request.nodes.low
    rows = _grid(inputs, request, count)
    if not len(rows.nodes):
        raise _indivisible(request, count)
    found = _best(inputs, survey, request, rows)
    if found is None:
        raise _too_large(survey, request, rows)
    return forecast(inputs, survey, found)


def sweep_nodes(inputs: PlanInputs, survey: Survey, request: ForecastRequest) -> list[Forecast]:
    """A row for each number of nodes on which the batch can be spread and fits."""
    counts = _spread(range(request.nodes.low, request.nodes.high + 1))
    found = [_best(inputs, survey, request, _grid(inputs, request, count)) for count in counts]
    rows = [forecast(inputs, survey, row) for row in found if row is not None]
    if not rows:
        raise InputError(f"nothing to sweep: no number of nodes from {request.nodes.low} to {request.nodes.high} fits")
    return rows


def sweep_batch(inputs: PlanInputs, survey: Survey, request: ForecastRequest) -> list[Forecast]:
    """A row for each global batch that fits on these nodes, in the best split of each."""
    grid = _grid(inputs, request, request.nodes.low)
    batches = grid.global_batch
    best = [_best(inputs, survey, request, grid.at(batches == batch)) for batch in np.unique(batches)]
    rows = [row for row in best if row is not None]
    if not rows:
        low, high = _batches(inputs, request)
        gpus = request.nodes.low * request.instance_type.gpu_count
        raise InputError(f"nothing to sweep: no global batch from {low:,} to {high:,} fits on {gpus} GPUs")
    return [forecast(inputs, survey, row) for row in _spread(rows)]


def forecast(inputs: PlanInputs, survey: Survey, row: Candidate) -> Forecast:
    """A candidate with what search leaves out: step time, samples, efficiencies, and why it is extrapolated.

    Lost nodes are simulated, as for a plan; what stands beside them there is simulated here, too.
    """
    markets, policy = survey.predictors.spot_markets, inputs.job_file.job.constraints.spot
    if markets is not None and (row.market == "spot" or policy != "never"):
        row = simulated(row, inputs.job_file.job, inputs.catalog, survey.predictors, markets).candidate
    models = survey.models
    one = configuration_of(row, inputs.catalog)
    batch, reference = np.array([row.global_batch]), inputs.job_file.job.workload.target.reference_batch
    return Forecast(
        **option_of(row, inputs.catalog, models).model_dump(),
        gpu_batch=row.gpu_batch,
        accumulation_steps=row.accumulation_steps,
        step_seconds=interval_of(step_seconds(one, models.step_seconds).rows()[0]),
        samples=interval_of(models.convergence.predict(batch).rows()[0]),
        parallel_efficiency=float(models.parallel_efficiency(one)[0]),
        statistical_efficiency=float(models.convergence.efficiency(batch, reference)[0]),
        extrapolated=row.extrapolated,
        why_extrapolated=_why_extrapolated(survey, row, one),
        feeding=feeding_of(row, models, inputs.catalog),
    )


def format_forecasts(inputs: PlanInputs, rows: Sequence[Forecast]) -> str:
    job, catalog = inputs.job_file.job.name, inputs.provenance.catalog
    content = {"job": job, "catalog": catalog, "rows": [row.model_dump(mode="json") for row in rows]}
    return json.dumps(six_digits(content), indent=2, ensure_ascii=False)


def _why_extrapolated(survey: Survey, row: Candidate, one: Configurations) -> str | None:
    reasons = [survey.models.why_extrapolated(one)]
    low, high = survey.models.convergence.range_
    if not low <= row.global_batch <= high:
        known = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        reasons.append(f"batch {row.global_batch:,}, samples to the target known at {known}")
    return "; ".join(reason for reason in reasons if reason) or None


def _grid(inputs: PlanInputs, request: ForecastRequest, count: int) -> Configurations:
    """Every way to take the batch on that many nodes; empty where it cannot be spread evenly."""
    catalog, instance_type = inputs.catalog, request.instance_type
    if (shape := inputs.job_file.job.workload.transformer) is not None:
        return _strategies(inputs, request, count, shape)
    if request.gpu_batch is None:
        return every_split(catalog, instance_type, CountRange(count, count), _batches(inputs, request))
    micro_steps, rest = 1, 0
    if request.global_batch is not None:
        each = count * instance_type.gpu_count * request.gpu_batch
        micro_steps, rest = divmod(request.global_batch.low, each)
    one = Configurations.of(
        catalog, instance_type, nodes=count, gpu_batch=request.gpu_batch, accumulation_steps=micro_steps
    )
    return one.at(np.array([rest == 0]))


def _strategies(inputs: PlanInputs, request: ForecastRequest, count: int, shape: TransformerShape) -> Configurations:
    """The same of a job with a shape: in every way that its script can do, or in the one that is named."""
    if request.strategy is not None:
        gpus = request.instance_type.gpu_count
        check_strategy(shape, Strategy(gpus=count * gpus, gpus_per_node=gpus, **request.strategy.model_dump()))
    workload, wanted = inputs.job_file.job.workload, Wanted(request.global_batch, request.gpu_batch, request.strategy)
    if request.gpu_batch is None:
        wanted = wanted._replace(global_batch=_batches(inputs, request))
    nodes, options = CountRange(count, count), workload.strategies_or_default
    table = strategy_table(inputs.catalog, request.instance_type, nodes, shape, options, wanted)
    return table.configurations.at(table.differs)


def _batches(inputs: PlanInputs, request: ForecastRequest) -> CountRange:
    return request.global_batch or inputs.job_file.job.workload.global_batch


def _best(inputs: PlanInputs, survey: Survey, request: ForecastRequest, rows: Configurations) -> Candidate | None:
    """Of those that fit the memory, by the job's objective; None when none does."""
    job = inputs.job_file.job
    fitting = rows.at(survey.predictors.fits(rows))
    if not len(fitting.nodes):
        return None
    found = evaluate(
        job, inputs.catalog, fitting, survey.regions, survey.predictors, request.market, request.on_demand_base
    )
    if not found:
        how = "on demand" if request.market == "on_demand" else "as spot"
        raise InputError(f"{request.instance_type.name} is not sold {how} in {', '.join(survey.regions)}")
    return min(found, key=lambda row: preference(row, job.objective_or_default))


def _indivisible(request: ForecastRequest, count: int) -> InputError:
    gpus = count * request.instance_type.gpu_count
    if request.global_batch is None or request.global_batch.low != request.global_batch.high:
        return InputError(f"none of the job's global batches can be spread over {gpus} GPUs")
    step, batch = gpus * (request.gpu_batch or 1), request.global_batch.low
    near = [number for number in (batch // step * step, (batch // step + 1) * step) if 0 < number <= LARGEST_BATCH]
    each = f" by {request.gpu_batch} samples" if request.gpu_batch else ""
    hint = f"{' or '.join(f'{number:,}' for number in near)} would do"
    return InputError(f"a global batch of {batch:,} cannot be spread evenly over {gpus} GPUs{each}; {hint}")


def _too_large(survey: Survey, request: ForecastRequest, rows: Configurations) -> InputError:
    smallest = int(rows.gpu_batch.min())
    if isinstance(survey.models.memory, ShardedMemoryModel):
        needed = float(survey.models.memory.formula_bytes(rows).min())
    else:
        needed = survey.models.memory.needed_bytes(smallest)
    return InputError(
        f"{smallest:,} samples per GPU need about {needed / 2**30:,.1f} GiB, more than is free on "
        f"the {rows.gpu.name} of {request.instance_type.name} ({rows.gpu.memory_gib:,.0f} GiB)"
    )


def _spread(items: Sequence[Item]) -> list[Item]:
    """Evenly, with both ends."""
    if len(items) <= MOST_ROWS:
        return list(items)
    places = np.unique(np.round(np.linspace(0, len(items) - 1, MOST_ROWS)).astype(int))
    return [items[place] for place in places.tolist()]
