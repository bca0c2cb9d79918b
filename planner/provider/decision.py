"""From what a resource says to the values that Terraform plans with; the same search as `scav plan`'s."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.inputs import JobFile, Provenance, parse_job, strategy_text
from planner.outside import input_files, source, store
from planner.plan import Plan, format_plan, make_plan, questions_left, workspace_variables
from planner.provider.schema import COMPUTED, JOB, OVERRIDES, VARIABLES
from planner.search import take_survey

Attributes = Mapping[str, Any]
_ONE_AT_A_TIME = threading.Lock()  # Terraform asks for ten at once, and one takes all of a processor


class Decision(NamedTuple):
    computed: dict[str, Any]
    followed_from: dict[str, str | None]  # hashes, which Terraform keeps for us beside the state's attributes
    warnings: tuple[str, ...] = ()


def parsed_job(said: Attributes) -> JobFile:
    overrides = {row.name: said[row.name] for row in OVERRIDES if said[row.name] is not None}
    return parse_job(said[JOB], file=JOB, overrides=overrides)


def decide(said: Attributes) -> Decision:
    with _ONE_AT_A_TIME:
        job_file = parsed_job(said)
        inputs = input_files.load_inputs_of(
            job_file,
            _path(said, "catalog"),
            measurements_file=_measurements(said),
            history=_path(said, "history"),
            spot_history=_path(said, "spot_history"),
        )
        survey = take_survey(inputs)
        plan = make_plan(inputs, survey)
        if plan.run.source:
            source.load_source(Path(plan.run.source))  # refuses what the nodes could not be given
    open_questions = [f"before apply, the job must say {question}" for question in questions_left(plan)]
    return Decision(
        planned_values(plan),
        followed_from(plan.inputs),
        (*inputs.warnings, *survey.models.warnings, *open_questions),
    )


def followed_from(provenance: Provenance) -> dict[str, str | None]:
    """By the attribute that says it."""
    return {
        JOB: provenance.job_sha256,
        "measurements": provenance.measurements_sha256,
        "history": provenance.history_sha256,
        "spot_history": provenance.spot_history_sha256,
        "catalog": provenance.catalog_sha256,
    }


def planned_values(plan: Plan) -> dict[str, Any]:
    choice, estimate, kept = plan.choice, plan.estimate, plan.constraints
    values = {
        **choice.model_dump(include={row.name for row in COMPUTED}),
        "instance_type_order": [choice.instance_type, *choice.overrides],
        "availability_zones": [choice.availability_zone, *choice.other_zones],
        "strategy": strategy_text(choice.strategy) if choice.strategy else None,
        "hours_p50": estimate.hours.p50,
        "hours_p95": estimate.hours.p95,
        "usd_p50": estimate.usd.p50,
        "usd_p95": estimate.usd.p95,
        "usd_max": estimate.usd.max,
        "deadline_probability": kept.deadline_hours and kept.deadline_hours.probability,
        "budget_probability": kept.budget_usd and kept.budget_usd.probability,
        "evidence": plan.evidence.statement,
        "catalog_name": plan.inputs.catalog,
        "run_id": plan.run_id,
        "scav_version": plan.scav_version,
        "plan_sha256": store.sha256(format_plan(plan)),
        "variables": module_variables(plan),
    }
    return {row.name: values[row.name] for row in COMPUTED}


def module_variables(plan: Plan) -> dict[str, Any]:
    """Those of the rendered workspace, all of them: null takes a module's default as leaving it out does."""
    if plan.spot and plan.spot.counts_on_fallback:
        message = "is carried out by a file of the workspace that `scav plan` writes; the provider writes none"
        raise InputError(message, file=JOB, key="constraints.on_demand_fallback")
    values = workspace_variables(plan)
    if plan.run.source:
        values["source_folder"] = plan.run.source  # nobody copies it: it stands beside main.tf
    if left := values.keys() - VARIABLES.keys():
        raise ValueError(f"the provider hands on no {', '.join(sorted(left))}")
    return {name: values.get(name) for name in VARIABLES}


def _path(said: Attributes, name: str) -> Path | None:
    return None if said[name] is None else Path(said[name])


def _measurements(said: Attributes) -> Path | None:
    """One that is named has to be there."""
    path = _path(said, "measurements")
    if path is not None:
        store.load_text(path)
    return path
