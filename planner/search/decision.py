"""The choice: the best candidate that keeps the limits, by simulation where nodes can be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from planner.errors import NoFeasiblePlan
from planner.inputs import Job, PlanInputs
from planner.search.pricing import Candidate
from planner.search.ranking import choose, excess, feasible, preference
from planner.search.simulated import SpotOutcome, simulated
from planner.search.survey import Survey
from planner.units import format_hours, format_usd

_MOST_SIMULATED = 10  # of the best by closed form; if none of them holds, spot is too close to a limit


class Chosen(NamedTuple):
    """`finalists` are those of the search, with what a simulation found instead where one lost by it."""

    candidate: Candidate
    outcome: SpotOutcome | None
    finalists: tuple[Candidate, ...]


def choose_candidate(inputs: PlanInputs, survey: Survey) -> Chosen:
    """Raises NoFeasiblePlan when nothing keeps the job's limits.

    The search averages what losing spot nodes costs; who wins is simulated, and loses if that breaks a limit.
    """
    job, found = inputs.job_file.job, survey.found
    finalists, left = found.finalists, feasible(found.finalists, job)
    for _ in range(_MOST_SIMULATED):
        candidate = choose(left, job.objective_or_default)
        if candidate is None:
            break
        checked, outcome = simulated_choice(candidate, inputs, survey)
        if outcome is None or (outcome.finishes(job.constraints.confidence) and excess(checked, job) <= 1.0):
            return Chosen(checked, outcome, finalists)
        left = [row for row in left if row is not candidate]
        finalists = tuple(checked if row is candidate else row for row in finalists)
    candidate = choose([row for row in left if row.market == "on_demand"], job.objective_or_default)
    if candidate is None:
        raise _nothing_feasible(finalists, survey, job)
    return Chosen(candidate, None, finalists)


def simulated_choice(candidate: Candidate, inputs: PlanInputs, survey: Survey) -> tuple[Candidate, SpotOutcome | None]:
    """Where there is anything to simulate."""
    markets = survey.predictors.spot_markets
    if candidate.market == "on_demand" or markets is None:
        return candidate, None
    return simulated(candidate, inputs.job_file.job, inputs.catalog, survey.predictors, markets)


def cluster(candidate: Candidate) -> str:
    return f"{candidate.nodes} x {candidate.instance_type}"


def _nothing_feasible(finalists: Sequence[Candidate], survey: Survey, job: Job) -> NoFeasiblePlan:
    """Two nearest misses on different instance types, and what each would need."""
    if not finalists:
        left_out, fixed = survey.found.left_out, survey.models.memory.fixed_bytes_
        reasons = "; ".join(f"{count} of the instance types {reason}" for reason, count in left_out.items())
        needed = f"every GPU holds the whole model, {fixed / 2**30:,.0f} GiB before activations"
        return NoFeasiblePlan(f"no feasible plan: {reasons} ({needed})")
    ranked = sorted(finalists, key=lambda row: (excess(row, job), *preference(row, "cost")))
    nearest = [ranked[0], *[row for row in ranked if row.instance_type != ranked[0].instance_type][:1]]
    lines = [f"no feasible plan at {job.constraints.confidence * 100:g} % confidence; the nearest misses:"]
    lines += [f"  {_miss(row, job)}" for row in nearest]
    return NoFeasiblePlan("\n".join(lines))


def _miss(row: Candidate, job: Job) -> str:
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    needs = []
    if deadline and row.hours_limit > deadline:
        needs.append(f"a deadline of {format_hours(row.hours_limit)} instead of {format_hours(deadline)}")
    if budget and row.usd_limit > budget:
        needs.append(f"a budget of {format_usd(row.usd_limit)} instead of {format_usd(budget)}")
    return f"{cluster(row)} ({row.market.replace('_', '-')}): {' and '.join(needs)}"
