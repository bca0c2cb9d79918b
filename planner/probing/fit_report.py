"""What `scav fit` answers: how well left-out probes are predicted, what limits that, and which probe would help."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from planner.contract import Contract, Share, six_digits
from planner.inputs import PlanInputs
from planner.models import FittedModels, StepTimeModel
from planner.probing.further_probe import FurtherProbe, further_probe
from planner.probing.leave_out import FEWEST_PROBES, Beyond, error_table, hold_out, mean_error
from planner.probing.limits import accuracy_limits
from planner.probing.sentences import convergence_source, worth
from planner.search import Candidate, Survey, choose, feasible
from planner.units import counted

_OF_STRATEGIES = (
    "probes of a transformer are not left out; docs/accuracy.md has the error of its model on public tables"
)


class ErrorEntry(Contract):
    """One model on the probes inside, or beyond, the range of the others."""

    model: str
    beyond: Beyond
    probes: PositiveInt
    error: NonNegativeFloat
    inside: NonNegativeInt


class NextProbe(Contract):
    instance_type: str
    node_count: PositiveInt
    gpu_batch: PositiveInt
    price_usd: NonNegativeFloat
    gain_usd: NonNegativeFloat
    repays: bool


class FitReport(Contract):
    """Errors are mean absolute percentage errors of the step time, as shares."""

    job: str
    measurements: NonNegativeInt
    probes: Mapping[str, PositiveInt] = Field(description="distinct configurations by instance type")
    errors: tuple[ErrorEntry, ...]
    missing: str | None = Field(description="why there is no error table")
    cross_validated_error: NonNegativeFloat | None
    convergence: str
    law_weights: Mapping[str, Share]
    limits: tuple[str, ...]
    warnings: tuple[str, ...]
    next_probe: NextProbe | None
    advice: str


def report_fit(inputs: PlanInputs, survey: Survey) -> FitReport:
    """With any number of measurements, none included."""
    job, models = inputs.job_file.job, survey.models
    choice = choose(feasible(survey.found.finalists, job), job.objective_or_default)
    convergence = convergence_source(job, inputs.measured_noise)
    batch = choice.global_batch if choice else job.workload.global_batch.high
    missing = _missing(models.step_time) if models.sharded_step_time is None else _OF_STRATEGIES
    held_out = [] if missing else hold_out(models.step_time, baselines=True)
    further = further_probe(job, inputs.catalog, models, survey.found.finalists, choice) if choice else None
    report = FitReport(
        job=job.name,
        measurements=len(inputs.measurements),
        probes=_probes(inputs, models),
        errors=tuple(ErrorEntry(**row._asdict()) for row in error_table(held_out)),
        missing=missing,
        cross_validated_error=mean_error(held_out),
        convergence=convergence,
        law_weights=models.convergence.law_weights_,
        limits=tuple(accuracy_limits(job, models, choice, convergence=convergence, batch=batch)),
        warnings=models.warnings,
        next_probe=_next_probe(further),
        advice=_advice(choice, further, first=not models.probed_types),
    )
    return FitReport.model_validate(six_digits(report.model_dump(mode="json")))


def _probes(inputs: PlanInputs, models: FittedModels) -> dict[str, int]:
    if models.sharded_step_time is None:
        return {name: len(rows) for name, rows in models.step_time.rows_.items()}
    names = [row.instance_type for row in inputs.measurements]
    return {name: names.count(name) for name in models.probed_types}


def _missing(model: StepTimeModel) -> str | None:
    count = sum(len(rows) for rows in model.rows_.values())
    if count >= FEWEST_PROBES:
        return None
    found = counted(count, "probe") if count else "no probe"
    return f"{found} so far; from {FEWEST_PROBES} on, each is predicted from the others"


def _next_probe(further: FurtherProbe | None) -> NextProbe | None:
    if further is None:
        return None
    return NextProbe(
        instance_type=further.instance_type,
        node_count=further.nodes,
        gpu_batch=further.gpu_batch,
        price_usd=further.price_usd,
        gain_usd=further.gain_usd,
        repays=further.repays,
    )


def _advice(choice: Candidate | None, further: FurtherProbe | None, *, first: bool) -> str:
    if choice is None:
        return "nothing keeps the job's limits, so no probe can be weighed; scav plan says what to relax"
    if further is None:
        return "nothing left to probe that could change the choice"
    return worth(further, first=first)
