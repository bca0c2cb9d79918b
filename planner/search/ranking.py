"""Which candidate is better: cheapest within the deadline, fastest within the budget, or the knee between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Floats
from planner.inputs import Job, Objective
from planner.search.pricing import Candidate, pareto_rows


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    hours = np.array([row.hours_limit for row in candidates])
    usd = np.array([row.usd_limit for row in candidates])
    return [candidates[row] for row in pareto_rows(hours, usd)] if candidates else []


def feasible(candidates: Sequence[Candidate], job: Job) -> list[Candidate]:
    return [row for row in candidates if excess(row, job) <= 1.0]


def excess(candidate: Candidate, job: Job) -> float:
    """The worst limit's use: 1.2 is 20 % over it."""
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    return max(candidate.hours_limit / deadline if deadline else 0.0, candidate.usd_limit / budget if budget else 0.0)


def choose(candidates: Sequence[Candidate], objective: Objective) -> Candidate | None:
    """The best of candidates that keep the limits already."""
    if not candidates:
        return None
    if objective == "knee":
        curve = front(candidates)
        return curve[knee(np.array([c.hours_limit for c in curve]), np.array([c.usd_limit for c in curve]))]
    return min(candidates, key=lambda row: preference(row, objective))


def preference(candidate: Candidate, objective: Objective) -> tuple[float, float, str, str]:
    """Smaller is better; ties go to the other measure, then to the name, so that the answer is always the same."""
    hours, usd = candidate.hours_limit, candidate.usd_limit
    first, second = (hours, usd) if objective == "time" else (usd, hours)
    return first, second, candidate.instance_type, candidate.zone


def knee(hours: Floats, usd: Floats) -> int:
    """Kneedle on a falling curve: the row furthest below the straight line between its ends."""
    if len(hours) < 3:
        return len(hours) - 1
    across = (hours - hours[0]) / (hours[-1] - hours[0])
    down = (usd - usd[-1]) / (usd[0] - usd[-1])
    return int(np.argmax(1.0 - across - down))
