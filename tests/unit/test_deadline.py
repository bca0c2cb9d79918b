"""Laws of deadline policies: the table never misses, nobody beats the omniscient, what is written is what decides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.errors import InputError
from planner.spot.deadline.baselines import greedy, uniform_progress
from planner.spot.deadline.dynamic_program import market_chain, solve
from planner.spot.deadline.grid import with_more_work
from planner.spot.deadline.omniscient import omniscient_cost
from planner.spot.deadline.table import STATES, PolicyTable, decide_each
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, Moment, World, act
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import AGES, cumulative_hazard

WORLD = World(work_hours=4.0, spot_share=0.4)
NO_ROLLBACK = World(work_hours=4.0, spot_share=0.4, interval_hours=1e-6)
TABLE = solve(WORLD, POOLED, longest_deadline_hours=8.0)
STEPS = 80


def spot_only(moment: Moment) -> np.ndarray:
    """However late it gets."""
    return np.where(moment.up, SPOT, IDLE)


def on_demand_only(moment: Moment) -> np.ndarray:
    return np.full(len(moment.work_left), ON_DEMAND)


@st.composite
def markets(draw: st.DrawFn, runs: int = 8) -> np.ndarray:
    """Capacity that comes and goes in stretches of any length."""
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    change = draw(st.floats(0.005, 0.6))
    flips = generator.random((runs, STEPS)) < change
    return (np.cumsum(flips, axis=1) + generator.integers(0, 2, (runs, 1))) % 2 == 1


@given(markets(), st.floats(1.08, 2.0), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_table_never_misses_whatever_the_market_does(up: np.ndarray, factor: float, seed: int) -> None:
    outcome = act(WORLD, TABLE.decide, up, np.zeros(len(up)), factor * 4.0, seed)
    assert not outcome.missed.any()


@given(markets(), st.sampled_from([1.2, 1.5, 2.0]))
@settings(max_examples=25, deadline=None)
def test_nobody_who_is_in_time_is_cheaper_than_the_omniscient(up: np.ndarray, factor: float) -> None:
    deadline = factor * 4.0
    limit = omniscient_cost(NO_ROLLBACK, up, deadline)
    policies = (on_demand_only, greedy(NO_ROLLBACK), uniform_progress(NO_ROLLBACK, deadline), TABLE.decide)
    for policy in policies:
        outcome = act(NO_ROLLBACK, policy, up, np.zeros(len(up)), deadline, seed=0)
        assert (outcome.cost >= limit - 1e-3)[~outcome.missed].all()


@given(markets())
@settings(max_examples=10, deadline=None)
def test_more_time_never_makes_the_optimum_dearer(up: np.ndarray) -> None:
    costs = [omniscient_cost(WORLD, up, factor * 4.0) for factor in (1.2, 1.5, 2.0)]
    assert (costs[0] >= costs[1] - 1e-9).all()
    assert (costs[1] >= costs[2] - 1e-9).all()


def test_on_demand_only_is_the_closed_form() -> None:
    outcome = act(WORLD, on_demand_only, np.zeros((2, STEPS), bool), np.zeros(2), 6.0, seed=0)
    assert outcome.hours == pytest.approx(4.1)
    assert outcome.cost == pytest.approx(4.1)
    assert not outcome.losses.any()


def test_spot_that_never_leaves_costs_its_hours_at_the_spot_price() -> None:
    up = np.ones((2, STEPS), bool)
    for policy in (spot_only, greedy(WORLD), TABLE.decide):
        outcome = act(WORLD, policy, up, np.zeros(2), 8.0, seed=0)
        assert outcome.cost == pytest.approx(4.1 * 0.4)
    assert omniscient_cost(WORLD, up, 8.0) == pytest.approx(4.1 * 0.4)


def test_without_spot_the_optimum_and_the_table_rent_on_demand() -> None:
    up = np.zeros((1, STEPS), bool)
    assert omniscient_cost(WORLD, up, 6.0) == pytest.approx(4.1)
    assert act(WORLD, TABLE.decide, up, np.zeros(1), 6.0, seed=0).cost == pytest.approx(4.1)


def test_the_table_decides_the_same_after_a_round_trip_through_json() -> None:
    again = PolicyTable.model_validate_json(TABLE.model_dump_json())
    generator = np.random.default_rng(0)
    moment = Moment(
        work_left=generator.random(500) * 4,
        time_left=5.0,
        up=generator.random(500) < 0.5,
        age_hours=generator.random(500) * 6,
        mode=generator.integers(0, 3, 500),
    )
    assert (again.decide(moment) == TABLE.decide(moment)).all()
    assert (decide_each([again, TABLE], np.arange(500) % 2, moment) == TABLE.decide(moment)).all()
    assert len(TABLE.model_dump_json()) < 20_000


def test_the_table_takes_spot_when_there_is_time_and_on_demand_when_there_is_none() -> None:
    up, age = np.array([True, False]), np.array([1.0, 1.0])
    idle = np.full(2, IDLE)
    assert TABLE.decide(Moment(np.full(2, 1.0), 8.0, up, age, idle)).tolist() == [SPOT, IDLE]
    assert TABLE.decide(Moment(np.full(2, 1.0), 1.15, up, age, idle)).tolist() == [ON_DEMAND, ON_DEMAND]


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.floats(0.01, 50.0))
def test_a_market_goes_somewhere(loss: float, returns: float, step: float) -> None:
    """And whoever is new there is lost by the end of the step as often as the process says, however long the step."""
    process = POOLED.scaled(loss=loss, returns=returns)
    chain = market_chain(process, step)
    assert chain.sum(axis=1) == pytest.approx(np.ones(STATES))
    assert (chain >= 0).all()
    lasts = np.exp(-cumulative_hazard(process.loss_per_hour, np.array([step])))
    assert chain[0, :AGES].sum() == pytest.approx(lasts[0])


def test_waiting_that_is_paid_for_is_in_every_cost() -> None:
    waits = World(work_hours=4.0, spot_share=0.4, idle_share=0.25)
    up = np.zeros((1, STEPS), bool)
    up[:, 10:] = True
    assert act(waits, spot_only, up, np.zeros(1), 8.0, seed=0).cost == pytest.approx(0.25 + 4.1 * 0.4)
    assert omniscient_cost(waits, up, 8.0) == pytest.approx(0.25 + 4.1 * 0.4)


@pytest.mark.parametrize("wrong", [{"spot_share": -0.1}, {"spot_share": 0.4, "interval_hours": 0.0}])
def test_a_world_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        World(work_hours=4.0, **wrong)


def test_a_run_that_is_late_pays_for_a_restart_only_if_it_has_to_start() -> None:
    no_spot = np.zeros((1, 20), bool)
    running = act(WORLD, on_demand_only, no_spot, np.zeros(1), 2.0, seed=0)
    waiting = act(WORLD, spot_only, no_spot, np.zeros(1), 2.0, seed=0)
    assert (running.hours[0], running.cost[0]) == (pytest.approx(4.1), pytest.approx(4.1))
    assert (waiting.hours[0], waiting.cost[0]) == (pytest.approx(2 + 4.1), pytest.approx(4.1))
    assert running.missed.all()


def test_a_policy_that_is_told_more_work_than_there_is_goes_on_demand_earlier_but_ends_when_it_is_done() -> None:
    up = np.zeros((1, STEPS), bool)
    knows, told = (
        act(WORLD, TABLE.decide, up, np.zeros(1), 7.0, seed=0, assumed_work_hours=work) for work in (None, 5.0)
    )
    assert told.hours[0] == pytest.approx(knows.hours[0] - 1.0, abs=0.11)
    assert told.cost == pytest.approx(knows.cost)
    truth = act(WORLD, TABLE.decide, up, np.zeros(1), 7.0, seed=0, assumed_work_hours=4.0)
    assert truth.hours == pytest.approx(knows.hours)


def _broken(change: str) -> dict[str, Any]:
    table = json.loads(TABLE.model_dump_json())
    match change:
        case "mode":
            del table["slack_hours"]["spot"]
        case "rows":
            table["slack_hours"]["idle"] = table["slack_hours"]["idle"][:4]
        case "row":
            table["slack_hours"]["on_demand"][3] = [1.0]
        case "order":
            table["work_left_hours"] = table["work_left_hours"][::-1]
        case "one":
            table["work_left_hours"] = [1.0]
        case "ages":
            table["age_edges_hours"] = [0.0, 1.0]
    return table


@pytest.mark.parametrize("change", ["mode", "rows", "row", "order", "one", "ages"])
def test_a_table_of_another_shape_is_refused(change: str) -> None:
    with pytest.raises(ValidationError, match=r"slack_hours|work_left_hours|age_edges_hours"):
        PolicyTable.model_validate(_broken(change))


def test_between_points_of_a_grid() -> None:
    value = np.array([0.0, 1.0, 3.0, np.inf])
    assert with_more_work(value, 1).tolist() == [1.0, 3.0, np.inf, np.inf]
    assert with_more_work(value, -0.5).tolist() == [0.0, 0.5, 2.0, np.inf]
