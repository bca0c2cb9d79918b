"""From a job, a catalogue and measurements to a plan: models, search, choice, and the account of them."""

from __future__ import annotations

from planner.inputs import PlanInputs
from planner.plan.schema import Plan
from planner.plan.writer import PlanWriter
from planner.probing import cross_validated_error, further_probe
from planner.search import Candidate, Chosen, Survey, choose_candidate, simulated_choice, take_survey


def make_plan(inputs: PlanInputs, survey: Survey | None = None, candidate: Candidate | None = None) -> Plan:
    """Raises NoFeasiblePlan when nothing keeps the job's limits. The survey is that of the inputs.

    A candidate that was chosen by another rule is written down as it is.
    """
    job, survey = inputs.job_file.job, survey or take_survey(inputs)
    found, models = survey.found, survey.models
    chosen = choose_candidate(inputs, survey) if candidate is None else _as_it_is(candidate, inputs, survey)
    return PlanWriter(
        job=job,
        catalog=inputs.catalog,
        instance_types=survey.instance_types,
        models=models,
        measurements=inputs.measurements,
        measured_noise=inputs.measured_noise,
        found=found,
        chosen=chosen,
        cross_validated_error=cross_validated_error(models.step_time),
        further=further_probe(job, inputs.catalog, models, found.finalists, chosen.expected),
    ).plan(inputs.provenance)


def _as_it_is(candidate: Candidate, inputs: PlanInputs, survey: Survey) -> Chosen:
    return Chosen(simulated_choice(candidate, inputs, survey), expected=candidate)
