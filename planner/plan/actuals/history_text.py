"""Finished jobs of a ledger as lines for a terminal: what came of each, and what all of them say of plans."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.errors import one_line
from planner.plan.actuals.comparison import Compared, Name
from planner.plan.actuals.ledger import Outcome, coverage, oddities
from planner.plan.actuals.text import FIGURES, coverage_text
from planner.plan.review.lines import table
from planner.units import counted

_HEADING = ("id", "date", "job", "cluster", "batch", "hours", "dollars", "samples", "step", "memory")
_LONGEST_NAME = 24


def history_list(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each job: actual over planned, and a star where that was outside of the 90 % interval."""
    rows = [_row(job) for job in outcomes]
    lines = [*table([_HEADING, *rows], "<<<<>>>>>>"), "Figures: actual over planned; * outside of its 90 % interval."]
    if (found := coverage(outcomes)).figures:
        lines.append(f"{coverage_text(found)}.")
    lines += [f"{name}: {learned}" for name, learned in _learned(outcomes)]
    return lines + [f"{job.id}: {odd}" for job in outcomes for odd in oddities(job)]


def history_entry(job: Outcome) -> list[str]:
    heading = ("", "planned (p50)", "90 % interval", "actual", "")
    rows = []
    for row in job.compared:
        name, shown = FIGURES[row.name]
        held = {None: "", True: "held", False: "outside"}[row.held]
        between = f"{shown(row.predicted.p05)} to {shown(row.predicted.p95)}"
        rows.append((name, shown(row.predicted.p50), between, shown(row.actual), held))
    first = f"{one_line(job.job)} ({job.id}), {job.date}: {_cluster(job)}, batch {job.global_batch:,}"
    return [f"{first}, planned by scav {job.scav_version}", *table([heading, *rows], "<>>><"), *oddities(job)]


def _row(job: Outcome) -> tuple[str, ...]:
    by_name = {row.name: row for row in job.compared}
    figures = [_factor(by_name.get(name)) for name in FIGURES]
    return job.id, str(job.date), one_line(job.job, _LONGEST_NAME), _cluster(job), f"{job.global_batch:,}", *figures


def _cluster(job: Outcome) -> str:
    return f"{job.node_count} x {one_line(job.instance_type, _LONGEST_NAME)}"


def _factor(row: Compared | None) -> str:
    if row is None or row.predicted.p50 <= 0:
        return ""
    return f"{row.actual / row.predicted.p50:.2f}{'*' if row.held is False else ''}"


def _learned(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """By how much plans were off on the whole, where two jobs or more say so; what is not possible does not count."""
    found = []
    for name, (shown, _) in FIGURES.items():
        logs = _logs(outcomes, name)
        if len(logs) > 1:
            middle = math.exp(sum(logs) / len(logs))
            ends = f"{math.exp(min(logs)):.2f} to {math.exp(max(logs)):.2f}"
            found.append((shown, f"{middle:.2f} times what was planned, over {counted(len(logs), 'job')} ({ends})"))
    return found


def _logs(outcomes: Sequence[Outcome], name: Name) -> list[float]:
    return [
        math.log(row.actual / row.predicted.p50)
        for job in outcomes
        if not oddities(job)
        for row in job.compared
        if row.name == name and row.held is not None and row.actual > 0 and row.predicted.p50 > 0
    ]
