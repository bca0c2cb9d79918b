"""The search must equal plain loops over every candidate, and only keep what nothing else beats."""

from __future__ import annotations

import itertools

import brute_force
import numpy as np
import plain_search
import pytest
import random_jobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import NoFeasiblePlan
from planner.inputs.catalog.snapshot import parse_catalog
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.fields import CountRange
from planner.inputs.job.parse import JobFile
from planner.inputs.job.schema import Job
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.models.fitted import fit_models
from planner.outside import assets
from planner.plan.build import make_plan
from planner.plan.review.decision import compared
from planner.search.candidates import every_split
from planner.search.pricing import NEAR_TIE, Candidate, pareto_rows
from planner.search.ranking import choose, feasible, front, knee
from planner.search.survey import Survey, take_survey

HASH = "0" * 64
CATALOG = parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="snapshot.json")


def inputs_of(job: Job, catalog: Catalog) -> PlanInputs:
    provenance = Provenance(
        job_sha256=HASH, measurements_sha256=None, catalog_sha256=HASH, catalog="test", catalog_date=catalog.date
    )
    job_file = JobFile(job=job, file="scav.yaml", lines={})
    return PlanInputs(job_file=job_file, catalog=catalog, measurements=(), provenance=provenance)


@pytest.mark.slow
def test_the_choice_equals_a_loop_over_every_candidate() -> None:
    feasible = []

    @settings(max_examples=450, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(random_jobs.jobs(), random_jobs.catalogs())
    def compare(job: Job, catalog: Catalog) -> None:
        feasible.append(_agree(job, catalog))

    compare()
    assert sum(feasible) >= 200, "most random jobs must have a plan, or this shows nothing"


def _agree(job: Job, catalog: Catalog) -> bool:
    """Whether there is a plan at all; fails where planner and loops differ."""
    given_numbers = brute_force.given(job, catalog, fit_models(job, catalog, ()))
    rows = list(plain_search.every_candidate(job, catalog, given_numbers))
    kept = [row for row in rows if plain_search.keeps_limits(row, job)]
    inputs = inputs_of(job, catalog)
    survey = take_survey(inputs)
    left = feasible(survey.found.finalists, job)
    chosen = choose(left, job.objective_or_default)
    assert survey.found.candidate_count == len(rows)
    if not kept:
        assert chosen is None
        with pytest.raises(NoFeasiblePlan):
            make_plan(inputs, survey)
        return False
    assert chosen is not None
    best = plain_search.best(kept, job.objective_or_default)
    assert (chosen.hours_limit, chosen.usd_limit) == pytest.approx((best.hours, best.usd), rel=1e-9)
    assert any(_is_choice(row, chosen) for row in kept)
    assert len(front(survey.found.finalists)) == len(plain_search.undominated(rows))
    if len(rows) % 3 == 0:  # a plan is simulated, which takes far longer than to search
        _check_plan(inputs, survey, chosen)
    return True


def _check_plan(inputs: PlanInputs, survey: Survey, chosen: Candidate) -> None:
    """The plan is as good as what the search chose, up to a near tie and to what simulating changes; or on spot."""
    job = inputs.job_file.job
    try:
        plan = make_plan(inputs, survey)
    except NoFeasiblePlan:
        assert all(row.market == "spot" for row in feasible(survey.found.finalists, job))
        return
    if chosen.market == "on_demand" and job.objective_or_default != "knee":
        at = compared(plan.estimate)
        mine, theirs = (
            (at.hours, chosen.hours_limit) if job.objective_or_default == "time" else (at.usd, chosen.usd_limit)
        )
        assert mine <= theirs * (1 + NEAR_TIE) * 1.04
    for limit in (plan.constraints.deadline_hours, plan.constraints.budget_usd):
        assert limit is None or limit.probability >= job.constraints.confidence - 1e-3
    for one, other in itertools.permutations(front(survey.found.finalists), 2):
        assert other.hours_limit > one.hours_limit or other.usd_limit > one.usd_limit


def _is_choice(row: plain_search.Row, chosen: Candidate) -> bool:
    names = ("instance_type", "zone", "market", "nodes", "on_demand_count", "gpu_batch", "accumulation_steps")
    return all(getattr(row, name) == getattr(chosen, name) for name in names)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=60))
def test_the_front_holds_every_undominated_point_once(points: list[tuple[int, int]]) -> None:
    hours, usd = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    kept = {points[row] for row in pareto_rows(hours, usd)}
    assert len(kept) == len(pareto_rows(hours, usd))
    for point in points:
        dominated = any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
        assert (point in kept) == (not dominated)


def test_the_knee_is_where_more_hours_stop_paying() -> None:
    assert knee(np.array([1.0, 2.0, 3.0, 10.0]), np.array([100.0, 20.0, 15.0, 10.0])) == 1


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 9), st.integers(0, 9), st.integers(1, 3000), st.integers(0, 3000))
def test_every_split_of_the_batch_adds_up(gpus: int, first: int, more: int, low: int, width: int) -> None:
    instance_type = next(each for each in CATALOG.instance_types if each.gpu_count == gpus)
    grid = every_split(CATALOG, instance_type, CountRange(first, first + more), CountRange(low, low + width))
    assert (grid.nodes * gpus * grid.gpu_batch * grid.accumulation_steps == grid.global_batch).all()
    assert ((grid.global_batch >= low) & (grid.global_batch <= low + width)).all()
    rows = list(zip(grid.nodes, grid.gpu_batch, grid.accumulation_steps, strict=True))
    assert len(set(rows)) == len(rows)


def test_a_batch_that_only_divides_exactly_is_still_found() -> None:
    eight = next(each for each in CATALOG.instance_types if each.gpu_count == 8)
    grid = every_split(CATALOG, eight, CountRange(1, 1), CountRange(1000, 1000))
    assert {(batch, steps) for batch, steps in zip(grid.gpu_batch, grid.accumulation_steps, strict=True)} == {
        (125, 1),
        (25, 5),
        (5, 25),
    }
