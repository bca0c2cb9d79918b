"""Which of a search's finalists are worth simulating, and which of those are shown beside the choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from planner.inputs import Job
from planner.search.pricing import NEAR_TIE, Candidate
from planner.search.ranking import Settled, choose, excess, feasible, otherwise_better, preference, value

_MOST_SIMULATED = 8
_MOST_TIES = 3  # of those; the fastest
_MOST_SHOWN = 4


def shortlisted(finalists: Sequence[Candidate], job: Job) -> list[Candidate]:
    """The best by closed form, what may tie with it, and the best of every other type. Empty where nothing is feasible.

    A simulation may move either by a few percent, so ties are looked for twice as far away.
    """
    objective, kept = job.objective_or_default, feasible(finalists, job)
    best = choose(kept, objective)
    if best is None:
        return []
    most = value(best, objective) * (1 + 2 * NEAR_TIE)
    ties = [row for row in kept if value(row, objective) <= most and otherwise_better(row, best, objective)]
    ties.sort(key=lambda row: (not row.usual_batch, row.hours_limit, row.usd_limit))
    others = (_usual_instead(row, finalists, job) for row in _best_of_each(_ranked(finalists, job), best))
    rows: dict[int, Candidate] = {}
    # Of the others only as many are looked at as there is room for: each looks through all finalists.
    for row in chain((best, _usual_instead(best, kept, job)), ties[:_MOST_TIES], others):
        rows.setdefault(id(row), row)
        if len(rows) == _MOST_SIMULATED:
            break
    return list(rows.values())


def _usual_instead(row: Candidate, rows: Sequence[Candidate], job: Job) -> Candidate:
    """The same with a batch that people would run, where this one is odd and wins by no more than a near tie."""
    if row.usual_batch:
        return row
    objective = job.objective_or_default
    most, kind = value(row, objective) * (1 + NEAR_TIE), (row.instance_type, row.market)
    near = [other for other in rows if (other.instance_type, other.market) == kind and value(other, objective) <= most]
    usual = [other for other in near if other.usual_batch and excess(other, job) <= max(excess(row, job), 1.0)]
    return choose(usual, objective) or row


def shown_beside(rivals: Sequence[Candidate], settled: Settled, job: Job) -> tuple[Candidate, ...]:
    """What a near tie beat, then the best of every other instance type, and of the same one in the other market."""
    winner, beaten = settled
    others = _best_of_each(_ranked([row for row in rivals if row is not beaten], job), winner)
    own = (winner.instance_type, winner.market)
    others = [row for row in others if (row.instance_type, row.market) != own]
    return (*([beaten] if beaten else []), *others)[:_MOST_SHOWN]


def without(job: Job, limit: str) -> Job:
    """The same job without a deadline or a budget."""
    return job.model_copy(update={"constraints": job.constraints.model_copy(update={limit: None})})


def _ranked(rows: Sequence[Candidate], job: Job) -> list[Candidate]:
    """Those that keep the limits first, then the nearest misses."""
    return sorted(rows, key=lambda row: (max(excess(row, job), 1.0), *preference(row, job.objective_or_default)))


def _best_of_each(ranked: Sequence[Candidate], choice: Candidate) -> list[Candidate]:
    """Of every instance type, and of the choice's in either market."""
    best: dict[tuple[str, str], Candidate] = {}
    for row in ranked:
        best.setdefault((row.instance_type, row.market if row.instance_type == choice.instance_type else ""), row)
    return list(best.values())
