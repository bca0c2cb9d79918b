"""The choice: the best candidate that keeps the limits, on the same ruler as all that is shown beside it.

The search averages what losing spot nodes costs, and so compares millions. Of what it likes best, a shortlist is
simulated, all of it in the same runs, and the choice is made anew among these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from planner.errors import NoFeasiblePlan
from planner.inputs import Job, PlanInputs
from planner.search.pricing import NEAR_TIE, Candidate
from planner.search.ranking import choose, excess, feasible, preference, settle, value
from planner.search.shortlist import shortlisted, shown_beside, without
from planner.search.simulated import Simulated, SpotOutcome, ratio_noise, simulated
from planner.search.survey import Survey
from planner.units import format_hours, format_usd

_ROUNDS = 3  # of a shortlist each; if none of them holds, spot is too close to a limit


class Chosen(NamedTuple):
    """The choice and what stands beside it: hours and dollars of all these are of the same runs, or none of any."""

    measured: Simulated
    expected: Candidate  # the choice as the search saw it and all others: to be compared with these
    rivals: tuple[Candidate, ...] = ()  # best first
    beaten: Candidate | None = None  # better by the objective alone, but by no more than a near tie
    without_deadline: Candidate | None = None  # better, were there none
    without_budget: Candidate | None = None
    exact: bool = False  # in closed form: nothing that is compared can lose nodes

    @property
    def candidate(self) -> Candidate:
        return self.measured.candidate

    @property
    def outcome(self) -> SpotOutcome | None:
        return self.measured.outcome


def choose_candidate(inputs: PlanInputs, survey: Survey) -> Chosen:
    """Raises NoFeasiblePlan when nothing keeps the job's limits."""
    ruler = Ruler(inputs, survey, exact=not _may_lose_nodes(inputs.job_file.job, survey))
    left = survey.found.finalists
    for _ in range(_ROUNDS):
        if found := _chosen_of(left, ruler):
            return found
        left = ruler.with_measured(left)
    if found := _chosen_of(_with_room(survey.found.finalists, ruler), ruler):
        return found
    on_demand = [row for row in survey.found.finalists if row.market == "on_demand"]
    if found := _chosen_of(on_demand, replace(ruler, exact=True)):
        return found
    raise _nothing_feasible(left, ruler)


def simulated_choice(candidate: Candidate, inputs: PlanInputs, survey: Survey) -> Simulated:
    """Of a candidate that another rule chose."""
    exact = not _may_lose_nodes(inputs.job_file.job, survey)
    return Ruler(inputs, survey, exact=exact).measured(candidate)


def cluster(candidate: Candidate) -> str:
    return f"{candidate.nodes} x {candidate.instance_type}"


def _may_lose_nodes(job: Job, survey: Survey) -> bool:
    return job.constraints.spot != "never" and survey.predictors.spot_markets is not None


@dataclass(frozen=True, slots=True)
class Ruler:
    """Hours and dollars for comparing: of the same simulated runs, or all `exact`, in closed form."""

    inputs: PlanInputs
    survey: Survey
    exact: bool
    known: dict[int, Simulated] = field(default_factory=dict)  # by the candidate's identity

    @property
    def job(self) -> Job:
        return self.inputs.job_file.job

    def measured(self, row: Candidate) -> Simulated:
        markets = self.survey.predictors.spot_markets
        if self.exact or markets is None:
            return Simulated.exactly(row)
        if id(row) not in self.known:
            self.known[id(row)] = simulated(row, self.job, self.inputs.catalog, self.survey.predictors, markets)
        return self.known[id(row)]

    def with_measured(self, rows: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """What was simulated stands where the search's guess stood."""
        return tuple(self.known[id(row)].candidate if id(row) in self.known else row for row in rows)

    def holds(self, each: Simulated, job: Job) -> bool:
        return each.finishes(job.constraints.confidence) and excess(each.candidate, job) <= 1.0

    def noise(self, one: Simulated, other: Simulated) -> float:
        if self.exact:
            return 0.0
        name = "hours" if self.job.objective_or_default == "time" else "usd"
        return ratio_noise(getattr(one, name), getattr(other, name), self.job.constraints.confidence)


def _chosen_of(finalists: Sequence[Candidate], ruler: Ruler) -> Chosen | None:
    """None where nothing on the shortlist keeps the limits once it is measured."""
    job = ruler.job
    rows = [(row, ruler.measured(row)) for row in shortlisted(finalists, job)]
    shortlist = {id(each.candidate): (row, each) for row, each in rows}
    judged = rows[:1] if job.objective_or_default == "knee" else rows  # a knee is one of the whole front
    holding = [each.candidate for _, each in judged if ruler.holds(each, job)]
    settled = settle(
        holding, job.objective_or_default, lambda *two: ruler.noise(*(shortlist[id(row)][1] for row in two))
    )
    if settled is None:
        return None
    expected, winner = shortlist[id(settled.winner)]
    rivals = [each.candidate for _, each in shortlist.values() if each is not winner]
    return Chosen(
        measured=winner,
        expected=expected,
        rivals=shown_beside(rivals, settled, job),
        beaten=settled.beaten,
        without_deadline=_relaxed("deadline_hours", settled.winner, ruler),
        without_budget=_relaxed("budget_usd", settled.winner, ruler),
        exact=ruler.exact,
    )


def _relaxed(limit: str, choice: Candidate, ruler: Ruler) -> Candidate | None:
    """The best without this limit, where that is better than the choice by more than a near tie."""
    job, objective = without(ruler.job, limit), ruler.job.objective_or_default
    if objective == "knee" or getattr(ruler.job.constraints, limit) is None:
        return None
    best = choose(feasible(ruler.survey.found.finalists, job), objective)
    if best is None:
        return None
    found = ruler.measured(best)
    better = value(found.candidate, objective) * (1 + NEAR_TIE) < value(choice, objective)
    return found.candidate if better and ruler.holds(found, job) else None


def _with_room(finalists: Sequence[Candidate], ruler: Ruler) -> list[Candidate]:
    """Those that keep the limits even if the search was as wrong about them as about the worst that was measured."""
    job = ruler.job
    pairs = [
        (excess(ruler.known[id(row)].candidate, job), excess(row, job)) for row in finalists if id(row) in ruler.known
    ]
    wrong = max((found / guess for found, guess in pairs if guess), default=1.0)
    return [row for row in finalists if id(row) not in ruler.known and excess(row, job) * wrong <= 1.0]


def _nothing_feasible(finalists: Sequence[Candidate], ruler: Ruler) -> NoFeasiblePlan:
    """Two nearest misses on different instance types, and what each would need."""
    job, survey = ruler.job, ruler.survey
    if not finalists:
        left_out = survey.found.left_out
        reasons = "; ".join(f"{count} of the instance types {reason}" for reason, count in left_out.items())
        return NoFeasiblePlan(f"no feasible plan: {reasons} ({survey.models.memory.needs})")
    ranked = sorted(finalists, key=lambda row: (excess(row, job), *preference(row, "cost")))
    nearest = [ranked[0], *[row for row in ranked if row.instance_type != ranked[0].instance_type][:1]]
    lines = [f"no feasible plan at {job.constraints.confidence * 100:g} % confidence; the nearest misses:"]
    # What keeps the limits by the search's guess was measured, or would have to be, to say why it does not.
    judged = [ruler.measured(row) if excess(row, job) <= 1.0 else Simulated.exactly(row) for row in nearest]
    lines += [f"  {_miss(each, job)}" for each in judged]
    return NoFeasiblePlan("\n".join(lines))


def _miss(measured: Simulated, job: Job) -> str:
    row, deadline, budget = measured.candidate, job.constraints.deadline_hours, job.constraints.budget_usd
    needs = []
    if not measured.finishes(job.constraints.confidence):
        needs.append("nodes that are not waited for: too few runs end within a year")
    if deadline and row.hours_limit > deadline:
        needs.append(f"a deadline of {format_hours(row.hours_limit)} instead of {format_hours(deadline)}")
    if budget and row.usd_limit > budget:
        needs.append(f"a budget of {format_usd(row.usd_limit)} instead of {format_usd(budget)}")
    return f"{cluster(row)} ({row.market.replace('_', '-')}): {' and '.join(needs)}"
