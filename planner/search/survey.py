"""What could be rented for a job, and how well all of it would do as far as is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import InputError, did_you_mean
from planner.inputs import InstanceType, PlanInputs, select_instance_types
from planner.models import FittedModels, fit_models
from planner.search.every_candidate import SearchResult, search
from planner.search.pricing import Predictors
from planner.spot import SpotHistory, SpotMarkets, spot_price_drift


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What could be rented, and how well it would do as far as is known."""

    instance_types: Sequence[InstanceType]
    regions: tuple[str, ...]
    models: FittedModels
    predictors: Predictors
    found: SearchResult


def take_survey(inputs: PlanInputs) -> Survey:
    """Before anything is chosen; there may be nothing that keeps the limits."""
    job, catalog = inputs.job_file.job, inputs.catalog
    models = fit_models(job, catalog, inputs.measurements, inputs.measured_noise, inputs.history)
    instance_types, regions, predictors = _instance_types(inputs), _regions(inputs), _predictors(inputs, models)
    found = search(job, catalog, instance_types, regions, predictors)
    return Survey(instance_types=instance_types, regions=regions, models=models, predictors=predictors, found=found)


def _instance_types(inputs: PlanInputs) -> Sequence[InstanceType]:
    try:
        found = select_instance_types(inputs.catalog, inputs.job_file.job.constraints.instance_types)
    except InputError as error:
        raise inputs.job_file.error(("constraints", "instance_types"), error.message) from None
    most = max(instance_type.gpu_count for instance_type in found)
    asked = inputs.job_file.job.workload.strategies_or_default.tensor_parallel
    if asked > most:
        key = ("workload", "strategies", "tensor_parallel")
        raise inputs.job_file.error(key, f"{asked} is beyond a node: these instance types have at most {most} GPUs")
    return found


def _regions(inputs: PlanInputs) -> tuple[str, ...]:
    known = [region.name for region in inputs.catalog.regions]
    asked = inputs.job_file.job.constraints.regions
    if asked == ("all",):
        return tuple(known)
    for index, region in enumerate(asked):
        if region not in known:
            hint = did_you_mean(region, known) or f"; the catalogue has {', '.join(known)}"
            raise inputs.job_file.error(("constraints", "regions", index), f"unknown region {region!r}{hint}")
    return asked


def _predictors(inputs: PlanInputs, models: FittedModels) -> Predictors:
    job, overheads = inputs.job_file.job, models.overheads
    markets = SpotMarkets(
        history=SpotHistory(recordings=inputs.recordings),
        save_seconds=overheads.save_seconds,
        restart_seconds=overheads.restart_seconds,
        deadline_hours=job.constraints.deadline_hours,
    )
    return Predictors(
        fits=models.memory.fits,
        largest_batch=models.memory.largest_batch,
        step_seconds=models.step_seconds,
        samples=models.convergence.predict,
        startup_seconds=overheads.startup_seconds,
        checkpoint_interval_seconds=overheads.checkpoint_interval_seconds,
        checkpoint_share=overheads.checkpoint_share,
        spot_price=spot_price_drift(),
        feeds=models.feeds,
        least_seconds=models.least_seconds,
        spot_markets=markets if job.workload.checkpoint_bytes_or_default > 0 else None,
    )
