"""Predicted against actual, for a terminal and for a comment."""

from __future__ import annotations

from collections.abc import Callable

from planner.plan.actuals.comparison import Actuals, Ahead, Compared, Coverage, LossForecast, Name, TotalForecast
from planner.plan.review.escaping import escaped
from planner.plan.review.forecast_text import seconds_text
from planner.plan.review.lines import entry, table
from planner.plan.schema import Plan
from planner.units import counted, format_count, format_hours, format_percent, format_probability, format_usd

# What each is called, and how its numbers are written.
FIGURES: dict[Name, tuple[str, Callable[[float], str]]] = {
    "hours": ("hours", format_hours),
    "usd": ("dollars", format_usd),
    "samples": ("samples", format_count),
    "step_seconds": ("step", seconds_text),
    "memory_gib": ("memory", lambda gib: f"{gib:,.1f} GiB"),
}
_HEADING = ("", "planned (p50)", "90 % interval", "actual", "")


def actuals_text(plan: Plan, found: Actuals) -> str:
    lines = [entry("Job", f"{found.job}, {_state(found)}"), entry("Source", found.source), ""]
    lines += table([_HEADING, *(_row(row) for row in found.compared)], "<>>><")
    lines += ["", *(entry(label, text) for label, text in _sentences(plan, found))]
    return "\n".join(lines) + "\n"


def outlook_text(plan: Plan, found: Actuals) -> str:
    """Of a running job, below what it is doing."""
    return "".join(entry(label, text) + "\n" for label, text in _sentences(plan, found))


def actuals_markdown(plan: Plan, found: Actuals) -> str:
    rows = [_HEADING, ("---",) * len(_HEADING), *([escaped(cell) for cell in _row(row)] for row in found.compared)]
    lines = [f"## {escaped(found.job)}: {escaped(_state(found))}", ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", *(f"- **{label}**: {escaped(text)}" for label, text in _sentences(plan, found))]
    return "\n".join([*lines, "", f"From {escaped(found.source)}.", ""])


def _state(found: Actuals) -> str:
    if found.state == "finished":
        return "finished"
    return f"running, at {format_percent(found.share)} of the planned samples"


def _row(row: Compared) -> tuple[str, str, str, str, str]:
    name, shown = FIGURES[row.name]
    held = {None: "not there", True: "held", False: "outside"}[row.held]
    between = f"{shown(row.predicted.p05)} to {shown(row.predicted.p95)}"
    return name, shown(row.predicted.p50), between, shown(row.actual), held


def _sentences(plan: Plan, found: Actuals) -> list[tuple[str, str]]:
    said = []
    if found.loss is not None:
        said.append(("Target", _target(found.loss)))
    if found.ahead is not None:
        said.append(("Forecast", _forecast(plan, found, found.ahead)))
    if found.coverage is not None and found.coverage.figures:
        said.append(("Coverage", coverage_text(found.coverage)))
    return [*said, *(("Note", note) for note in found.notes)]


def _target(loss: LossForecast) -> str:
    if loss.reached_at_samples is not None:
        return f"{loss.target}, reached after {format_count(loss.reached_at_samples)} samples"
    now = f"{loss.target}, now {loss.latest:.4g}"
    if loss.reached_probability is None or loss.alone_probability is None:
        return now
    if loss.alone_probability < 0.5:
        flat = "the curve flattens above it" if "<=" in loss.target else "the curve flattens below it"
        now += f"; {flat}: not reached unless something changes, as a falling learning rate would"
    return f"{now}; chance to reach it {format_probability(loss.reached_probability)}"


def _forecast(plan: Plan, found: Actuals, ahead: Ahead) -> str:
    if ahead.samples_factor is None:
        start = f"at {format_percent(found.share)} of the planned samples: the target is not reached, as it goes now"
    else:
        start = f"at {format_percent(found.share)} of the run: {ahead.samples_factor:.2g} times the planned samples"
    parts = [start, f"samples {_between(ahead.samples, format_count)}"]
    for name, total, planned in (
        ("p95 hours", ahead.hours, plan.estimate.hours.p95),
        ("p95", ahead.usd, plan.estimate.usd.p95),
    ):
        if total is not None:
            shown = format_usd if name == "p95" else format_hours
            parts.append(f"{name} {shown(planned)} -> {_end(total.p95, shown)}")
    left = "; outside of the plan's interval" if ahead.left_interval else ""
    return ", ".join(parts) + left


def _between(total: TotalForecast, shown: Callable[[float], str]) -> str:
    return f"{shown(total.p05)} to {_end(total.p95, shown)}"


def _end(value: float | None, shown: Callable[[float], str]) -> str:
    return "not reached" if value is None else shown(value)


def coverage_text(found: Coverage) -> str:
    each = ", ".join(f"{FIGURES[name][0]} {held} of {count}" for name, (held, count) in found.by_figure.items())
    return f"90 % intervals held in {found.held} of {found.figures} over {counted(found.jobs, 'finished job')}: {each}"
