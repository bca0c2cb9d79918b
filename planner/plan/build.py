"""From a job, a catalogue and measurements to a plan: models, search, choice, and the account of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from planner.catalog import Catalog, InstanceType
from planner.catalog.selection import select_instance_types
from planner.errors import InputError
from planner.evaluation import cross_validated_error, further_probe
from planner.job import Job, JobFile
from planner.measurements import Measurement
from planner.models import memory
from planner.models.fitted import FittedModels, fit_models
from planner.models.interruption.sources import SpotHistory
from planner.models.spot_price import spot_price_drift
from planner.plan import wording
from planner.plan.account import Account
from planner.plan.schema import Inputs, Plan
from planner.plan.spot import SpotOutcome, simulated
from planner.pricing import Candidate, Predictors
from planner.search import SearchResult, choose, excess, feasible, search
from planner.spot_mix import SpotMarkets

_MOST_SIMULATED = 10  # of the best by closed form; if none of them holds, spot is too close to a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan follows from, and the hashes that name it."""

    job_file: JobFile
    catalog: Catalog
    measurements: tuple[Measurement, ...]
    provenance: Inputs
    measured_noise: float | None = None
    history: tuple[tuple[Measurement, ...], ...] = ()
    spot_history: SpotHistory = field(default_factory=SpotHistory)


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
    kinds, regions, predictors = _kinds(inputs), _regions(inputs), _predictors(job, models, inputs.spot_history)
    found = search(job, catalog, kinds, regions, predictors)
    return Outlook(kinds=kinds, regions=regions, models=models, predictors=predictors, found=found)


def make_plan(inputs: PlanInputs, outlook: Outlook | None = None, candidate: Candidate | None = None) -> Plan:
    """Raises NoFeasiblePlan when nothing keeps the job's limits. The outlook is that of the inputs.

    A candidate that was chosen by another rule is written down as it is.
    """
    job, outlook = inputs.job_file.job, outlook or look_out(inputs)
    found, models = outlook.found, outlook.models
    if candidate is None:
        chosen, outcome, finalists = choose_candidate(inputs, outlook)
    else:
        (chosen, outcome), finalists = _simulated(candidate, inputs, outlook), found.finalists
    account = Account(
        job=job,
        catalog=inputs.catalog,
        kinds=outlook.kinds,
        models=models,
        measurements=inputs.measurements,
        measured_noise=inputs.measured_noise,
        found=replace(found, finalists=finalists),
        candidate=chosen,
        outcome=outcome,
        cross_validated_error=cross_validated_error(models.step_time),
        further=further_probe(job, inputs.catalog, models, finalists, outcome.expected if outcome else chosen),
    )
    return account.plan(inputs.provenance)


class Chosen(NamedTuple):
    """`finalists` are those of the search, with what a simulation found instead where one lost by it."""

    candidate: Candidate
    outcome: SpotOutcome | None
    finalists: tuple[Candidate, ...]


def choose_candidate(inputs: PlanInputs, outlook: Outlook) -> Chosen:
    """Raises NoFeasiblePlan when nothing keeps the job's limits.

    The search averages what losing spot nodes costs; who wins is simulated, and loses if that breaks a limit.
    """
    job, found = inputs.job_file.job, outlook.found
    finalists, left = found.finalists, feasible(found.finalists, job)
    for _ in range(_MOST_SIMULATED):
        candidate = choose(left, job.objective_or_default)
        if candidate is None:
            break
        checked, outcome = _simulated(candidate, inputs, outlook)
        if outcome is None or (outcome.finishes(job.constraints.confidence) and excess(checked, job) <= 1.0):
            return Chosen(checked, outcome, finalists)
        left = [row for row in left if row is not candidate]
        finalists = tuple(checked if row is candidate else row for row in finalists)
    candidate = choose([row for row in left if row.market == "on_demand"], job.objective_or_default)
    if candidate is None:
        raise wording.nothing_feasible(finalists, found.left_out, job)
    return Chosen(candidate, None, finalists)


def _simulated(candidate: Candidate, inputs: PlanInputs, outlook: Outlook) -> tuple[Candidate, SpotOutcome | None]:
    """Where there is anything to simulate."""
    markets = outlook.predictors.spot_markets
    if candidate.market == "on_demand" or markets is None:
        return candidate, None
    return simulated(candidate, inputs.job_file.job, inputs.catalog, outlook.predictors, markets)


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


def _predictors(job: Job, models: FittedModels, history: SpotHistory) -> Predictors:
    overheads = models.overheads
    markets = SpotMarkets(
        history=history,
        save_seconds=overheads.save_seconds,
        restart_seconds=overheads.restart_seconds,
        deadline_hours=job.constraints.deadline_hours,
    )
    return Predictors(
        fits=lambda configurations: memory.fits(configurations, job.workload),
        step_seconds=models.step_time.predict,
        samples=models.convergence.predict,
        startup_seconds=overheads.startup_seconds,
        checkpoint_interval_seconds=overheads.checkpoint_interval_seconds,
        checkpoint_share=overheads.checkpoint_share,
        spot_price=spot_price_drift(),
        spot_markets=markets if job.workload.checkpoint_bytes_or_default > 0 else None,
    )
