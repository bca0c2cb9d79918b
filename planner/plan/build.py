"""From a job, a catalogue and measurements to a plan: models, search, choice, and the account of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog import Catalog, InstanceType
from planner.catalog.selection import select_instance_types
from planner.errors import InputError
from planner.evaluation import cross_validated_error, further_probe
from planner.job import Job, JobFile
from planner.measurements import Measurement
from planner.models import memory
from planner.models.fitted import FittedModels, fit_models
from planner.models.interruption import spot_slowdown
from planner.models.spot_price import spot_price_drift
from planner.plan import wording
from planner.plan.account import Account
from planner.plan.schema import Inputs, Plan
from planner.search import Candidate, Predictors, SearchResult, choose, feasible, search


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan follows from, and the hashes that name it."""

    job_file: JobFile
    catalog: Catalog
    measurements: tuple[Measurement, ...]
    provenance: Inputs
    measured_noise: float | None = None
    history: tuple[tuple[Measurement, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What could be rented, and how well it would do as far as is known."""

    kinds: Sequence[InstanceType]
    regions: tuple[str, ...]
    models: FittedModels
    predictors: Predictors
    found: SearchResult


def look_out(inputs: PlanInputs) -> Outlook:
    """Before anything is chosen; there may be nothing that keeps the limits."""
    job, catalog = inputs.job_file.job, inputs.catalog
    models = fit_models(job, catalog, inputs.measurements, inputs.measured_noise, inputs.history)
    kinds, regions, predictors = _kinds(inputs), _regions(inputs), _predictors(job, models)
    found = search(job, catalog, kinds, regions, predictors)
    return Outlook(kinds=kinds, regions=regions, models=models, predictors=predictors, found=found)


def make_plan(inputs: PlanInputs, outlook: Outlook | None = None) -> Plan:
    """Raises NoFeasiblePlan when nothing keeps the job's limits. The outlook is that of the inputs."""
    job, outlook = inputs.job_file.job, outlook or look_out(inputs)
    found, models = outlook.found, outlook.models
    candidate = choose_candidate(inputs, outlook)
    account = Account(
        job=job,
        catalog=inputs.catalog,
        kinds=outlook.kinds,
        models=models,
        measurements=inputs.measurements,
        measured_noise=inputs.measured_noise,
        found=found,
        candidate=candidate,
        cross_validated_error=cross_validated_error(models.step_time),
        further=further_probe(job, inputs.catalog, models, found.finalists, candidate),
    )
    return account.plan(inputs.provenance)


def choose_candidate(inputs: PlanInputs, outlook: Outlook) -> Candidate:
    """Raises NoFeasiblePlan when nothing keeps the job's limits."""
    job, found = inputs.job_file.job, outlook.found
    candidate = choose(feasible(found.finalists, job), job.objective_or_default)
    if candidate is None:
        raise wording.nothing_feasible(found.finalists, found.left_out, job)
    return candidate


def _kinds(inputs: PlanInputs) -> Sequence[InstanceType]:
    try:
        return select_instance_types(inputs.catalog, inputs.job_file.job.constraints.instance_types)
    except InputError as error:
        raise inputs.job_file.error(("constraints", "instance_types"), error.message) from None


def _regions(inputs: PlanInputs) -> tuple[str, ...]:
    known = [region.name for region in inputs.catalog.regions]
    asked = inputs.job_file.job.constraints.regions
    if asked == ("all",):
        return tuple(known)
    for index, region in enumerate(asked):
        if region not in known:
            near = difflib.get_close_matches(region, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the catalogue has {', '.join(known)}"
            raise inputs.job_file.error(("constraints", "regions", index), f"unknown region {region!r}; {hint}")
    return asked


def _predictors(job: Job, models: FittedModels) -> Predictors:
    return Predictors(
        fits=lambda configurations: memory.fits(configurations, job.workload),
        step_seconds=models.step_time.predict,
        samples=models.convergence.predict,
        spot_slowdown=spot_slowdown(),
        spot_price=spot_price_drift(),
        startup_seconds=models.overheads.startup_seconds,
        checkpoint_share=models.overheads.checkpoint_share,
        spot_allowed=job.workload.checkpoint_bytes_or_default > 0,  # without one, a lost node loses everything
    )
