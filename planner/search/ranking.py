"""Which candidate is better: cheapest within the deadline, fastest within the budget, or the knee between.

What is within a near tie of the best counts as good by the objective: then a batch that people would run goes before
an odd one, and a cluster that is at least as good in everything else, the faster (or cheaper) and smaller one, before
the best itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.columns import Floats
from planner.inputs import Job, Objective
from planner.search.pricing import NEAR_TIE, Candidate, pareto_rows


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    hours = np.array([row.hours_limit for row in candidates])
    usd = np.array([row.usd_limit for row in candidates])
    return [candidates[row] for row in pareto_rows(hours, usd)] if candidates else []


def feasible(candidates: Sequence[Candidate], job: Job) -> list[Candidate]:
    most_hours, most_usd = (limit or math.inf for limit in (job.constraints.deadline_hours, job.constraints.budget_usd))
    return [row for row in candidates if row.hours_limit <= most_hours and row.usd_limit <= most_usd]


def excess(candidate: Candidate, job: Job) -> float:
    """The worst limit's use: 1.2 is 20 % over it."""
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    return max(candidate.hours_limit / deadline if deadline else 0.0, candidate.usd_limit / budget if budget else 0.0)


def choose(candidates: Sequence[Candidate], objective: Objective) -> Candidate | None:
    """The best of candidates that keep the limits already."""
    if not candidates:
        return None
    candidates = fed_if_any(candidates)
    if objective == "knee":
        curve = front(candidates)
        return curve[knee(np.array([c.hours_limit for c in curve]), np.array([c.usd_limit for c in curve]))]
    return min(candidates, key=lambda row: preference(row, objective))


class Settled(NamedTuple):
    """What is taken, and what would have been by the objective alone where a near tie decided."""

    winner: Candidate
    beaten: Candidate | None


def settle(
    candidates: Sequence[Candidate], objective: Objective, noise: Callable[[Candidate, Candidate], float]
) -> Settled | None:
    """`noise`: how far the ratio of two candidates may be off, as a share: what is closer is a tie whatever it is."""
    best = choose(candidates, objective)
    if best is None or objective == "knee":
        return None if best is None else Settled(best, None)

    def ties(with_this: Candidate) -> list[Candidate]:
        least = value(with_this, objective)
        return [
            row
            for row in fed_if_any(candidates)
            if row is not with_this and value(row, objective) <= least * (1 + max(NEAR_TIE, noise(row, with_this)))
        ]

    tied = ties(best)
    usual = best if best.usual_batch else choose([row for row in tied if row.usual_batch], objective) or best
    tied = [row for row in tied if row.usual_batch or not usual.usual_batch]
    better = [row for row in tied if otherwise_better(row, usual, objective)]
    winner = _smallest_of_quickest(better, objective) if better else usual
    return Settled(winner, None if winner is best else best)


def value(row: Candidate, objective: Objective) -> float:
    return row.hours_limit if objective == "time" else row.usd_limit


def _other_value(row: Candidate, objective: Objective) -> float:
    return row.usd_limit if objective == "time" else row.hours_limit


def otherwise_better(row: Candidate, than: Candidate, objective: Objective) -> bool:
    """Clearly faster (where time is the objective: cheaper) or smaller, and not worse in the other of both."""
    here, there = _other_value(row, objective), _other_value(than, objective)
    as_good = here <= there and row.nodes <= than.nodes
    return as_good and (here * (1 + NEAR_TIE) < there or row.nodes < than.nodes)


def _smallest_of_quickest(rows: Sequence[Candidate], objective: Objective) -> Candidate:
    least = min(_other_value(row, objective) for row in rows)
    near = [row for row in rows if _other_value(row, objective) <= least * (1 + NEAR_TIE)]
    return min(near, key=lambda row: (row.nodes, *preference(row, objective)))


def fed_if_any(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Without those whose GPUs would wait for data by a table that says little of this job, unless there is no other.

    Once that is measured or said, the price alone decides.
    """
    return [row for row in candidates if row.fed] or candidates


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
