"""Predicted against actual, and what a running job will take by what is known now.

Hours go on as they went: every sample still to come takes as long as one did so far, pauses included. Samples to come
are the forecast of the loss curve where a target was named, else what the plan says, given that it is not there yet. An
hour costs what the plan says that it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from planner.columns import Quantiles
from planner.contract import Contract, Interval, Share
from planner.models import LEAST_POINTS, first_reached, forecast_curve
from planner.plan.actuals.run import MetricTarget, ObservedRun
from planner.plan.schema import Plan
from planner.units import format_hours, format_usd

Name = Literal["hours", "usd", "samples", "step_seconds", "memory_gib"]
TOTALS: tuple[Name, ...] = ("hours", "usd", "samples")  # of the whole run: before its end they say nothing


class Compared(Contract):
    """One figure of the plan, and what it was."""

    name: Name
    predicted: Interval
    actual: NonNegativeFloat
    held: bool | None = Field(description="whether it is in the 90 % interval; null before the target is reached")


class TotalForecast(Contract):
    """The end of a run, seen from now; null where it is not reached."""

    p05: NonNegativeFloat
    p50: NonNegativeFloat | None
    p95: NonNegativeFloat | None


class LossForecast(Contract):
    target: str
    latest: float
    reached_at_samples: PositiveFloat | None = None
    reached_probability: Share | None = Field(default=None, description="by the curve and what was planned")
    alone_probability: Share | None = Field(default=None, description="by the curve alone, as it goes now")


class Ahead(Contract):
    """What a running job will have taken."""

    samples: TotalForecast
    hours: TotalForecast | None
    usd: TotalForecast | None
    samples_factor: PositiveFloat | None = Field(description="of the p50 over the planned one")
    left_interval: bool = Field(description="the likely samples are outside of what was planned")


class Coverage(Contract):
    """Over the finished jobs of a ledger, by figure and in all."""

    jobs: NonNegativeInt
    held: NonNegativeInt
    figures: NonNegativeInt
    by_figure: dict[Name, tuple[NonNegativeInt, NonNegativeInt]] = Field(description="held, of so many")


class Actuals(Contract):
    schema_version: Literal[1] = 1
    job: str
    run_id: str
    state: Literal["finished", "running"]
    source: str
    share: PositiveFloat = Field(description="samples trained over the planned ones")
    compared: tuple[Compared, ...]
    loss: LossForecast | None = None
    ahead: Ahead | None = Field(default=None, description="null for a finished run")
    coverage: Coverage | None = None
    notes: tuple[str, ...] = ()


def compare(plan: Plan, run: ObservedRun, target: MetricTarget | None) -> Actuals:
    """A run that does not say so has ended when its target is reached, or as much was trained as planned at least."""
    loss, ended = _loss(run, target), run.ended
    if ended is None:
        reached = loss is not None and loss.reached_at_samples is not None
        ended = reached or (loss is None and run.samples >= plan.estimate.samples.p05)
    usd = run.usd if run.usd is not None else None if run.hours is None else run.hours * plan.choice.hourly_usd
    actual: dict[Name, float | None] = {
        "hours": run.hours,
        "usd": usd,
        "samples": (loss.reached_at_samples if loss else None) or run.samples,
        "step_seconds": run.step_seconds,
        "memory_gib": run.peak_memory_gib,
    }
    predicted = _predicted(plan)
    totals_known = ended and (loss is None or loss.reached_at_samples is not None)
    compared = tuple(
        Compared(name=name, predicted=interval, actual=value, held=_held(name, interval, value, totals_known))
        for name, interval in predicted.items()
        if (value := actual[name]) is not None
    )
    ahead = None
    if not ended:
        samples, chances = _samples_to_come(plan, run, target)
        ahead = _ahead(plan, run, usd, samples)
        loss = None if loss is None else loss.model_copy(update=chances)
    return Actuals(
        job=plan.job,
        run_id=plan.run_id,
        state="finished" if ended else "running",
        source=run.source,
        share=run.samples / plan.estimate.samples.p50,
        compared=compared,
        loss=loss,
        ahead=ahead,
        notes=(*run.notes, *_notes(plan, run, target, ahead)),
    )


def _predicted(plan: Plan) -> dict[Name, Interval]:
    estimate = plan.estimate
    found: dict[Name, Interval] = {
        "hours": estimate.hours,
        "usd": Interval(p05=estimate.usd.p05, p50=estimate.usd.p50, p95=estimate.usd.p95),
        "samples": estimate.samples,
        "step_seconds": estimate.step_seconds,
    }
    return found if plan.memory is None else {**found, "memory_gib": plan.memory.allocated_gib}


def _held(name: Name, predicted: Interval, actual: float, totals_known: bool) -> bool | None:
    """A plan whose ends are one number held if that number came, but for the digits that a plan keeps."""
    if name in TOTALS and not totals_known:
        return None
    return predicted.p05 * (1 - 1e-5) <= actual <= predicted.p95 * (1 + 1e-5)


def _loss(run: ObservedRun, target: MetricTarget | None) -> LossForecast | None:
    if target is None or run.curve is None or not len(run.curve.loss):
        return None
    sign = 1.0 if target.falls else -1.0
    reached = first_reached(run.curve, sign * target.value)
    return LossForecast(target=target.text, latest=sign * float(run.curve.loss[-1]), reached_at_samples=reached)


def _samples_to_come(
    plan: Plan, run: ObservedRun, target: MetricTarget | None
) -> tuple[TotalForecast, dict[str, float]]:
    """Of the whole run, with the chances of getting there where a curve tells them."""
    planned = plan.estimate.samples
    if target is None or run.curve is None or len(run.curve.loss) < LEAST_POINTS:
        low, middle, high = (max(value, run.samples) for value in (planned.p05, planned.p50, planned.p95))
        return TotalForecast(p05=low, p50=middle, p95=high), {}
    quantiles = Quantiles(planned.p05, planned.p50, planned.p95)
    found = forecast_curve(run.curve, target.value if target.falls else -target.value, quantiles)
    chances = {"reached_probability": found.reached_probability, "alone_probability": found.alone_probability}
    return TotalForecast(p05=found.p05, p50=found.p50, p95=found.p95), {k: min(c, 1.0) for k, c in chances.items()}


def _ahead(plan: Plan, run: ObservedRun, usd: float | None, samples: TotalForecast) -> Ahead:
    planned, so_far = plan.estimate.samples, run.hours
    hours = cost = None
    if so_far is not None:
        pace = so_far / run.samples
        hours = _each(samples, lambda value: so_far + max(value - run.samples, 0.0) * pace)
        spent = 0.0 if usd is None else usd
        cost = _each(hours, lambda value: spent + (value - so_far) * plan.choice.hourly_usd)
    return Ahead(
        samples=samples,
        hours=hours,
        usd=cost,
        samples_factor=None if samples.p50 is None else samples.p50 / planned.p50,
        left_interval=samples.p50 is None or not planned.p05 <= samples.p50 <= planned.p95,
    )


def _each(total: TotalForecast, value_of: Callable[[float], float]) -> TotalForecast:
    return TotalForecast(
        p05=value_of(total.p05),
        p50=None if total.p50 is None else value_of(total.p50),
        p95=None if total.p95 is None else value_of(total.p95),
    )


def _notes(plan: Plan, run: ObservedRun, target: MetricTarget | None, ahead: Ahead | None) -> list[str]:
    notes = []
    if target is None:
        notes.append("the job's target is a number of samples; --target 'METRIC<=VALUE' says what they are for")
    elif run.curve is not None and len(run.curve.loss) < LEAST_POINTS:
        notes.append(f"{len(run.curve.loss)} values of {target.metric}: a forecast needs {LEAST_POINTS}")
    if ahead is None and target is not None and run.curve is not None:
        if first_reached(run.curve, target.value if target.falls else -target.value) is None:
            notes.append("the run ended before its target: its hours, dollars and samples say nothing of the plan's")
        return notes
    if ahead is None or ahead.hours is None or ahead.usd is None:
        return notes
    limits = plan.constraints
    if limits.deadline_hours and (ahead.hours.p50 is None or ahead.hours.p50 > limits.deadline_hours.limit):
        notes.append(f"the deadline of {format_hours(limits.deadline_hours.limit)} will likely be missed")
    if limits.budget_usd and (ahead.usd.p50 is None or ahead.usd.p50 > limits.budget_usd.limit):
        notes.append(f"the budget of {format_usd(limits.budget_usd.limit)} will likely be exceeded")
    return notes
