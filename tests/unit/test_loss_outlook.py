"""What `scav watch --target-loss` says of the end of a run, from the losses of its looks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.plan import NodeLife, Plan, RunState, Seen, loss_outlook, outlook_text, run_state, watched_points

BEGAN = 1_700_000_000.0


@pytest.fixture
def plan(workspace: Any) -> Plan:
    return Plan.model_validate(json.loads((workspace / "scav.plan.json").read_text()))


def looked(plan: Plan, share: float, loss: float | None, *, capacity: int = 1) -> RunState:
    """At the planned pace."""
    said = f"samples: {round(share * plan.estimate.samples.p50)}" + ("" if loss is None else f" loss {loss:.6f}")
    hours = share * plan.estimate.hours.p50
    nodes = [NodeLife(instance_id=f"i-{number}", began=BEGAN) for number in range(plan.choice.node_count)]
    beats = [{"instance_id": node.instance_id, "phase": "running", "said": said, "time": BEGAN} for node in nodes]
    return run_state(plan, Seen(now=BEGAN + hours * 3600, capacity=capacity, nodes=nodes, heartbeats=beats))


def watch(plan: Plan, upto: float, end: float = 1.0, looks: int = 12) -> tuple[RunState, list[tuple[float, float]]]:
    """A power law that is at 1.0 after `end` times the planned samples."""
    points: list[tuple[float, float]] = []
    for look in range(1, looks + 1):
        share = upto * look / looks
        state = looked(plan, share, 0.5 + 0.5 * (share / end) ** -0.3)
        points = watched_points(points, state)
    return state, points


def test_a_run_that_learns_as_planned_is_forecast_as_planned(plan: Plan) -> None:
    state, points = watch(plan, 0.5)
    found = loss_outlook(plan, state, points, 1.0)
    assert found is not None
    assert found.ahead is not None
    assert found.ahead.samples_factor == pytest.approx(1.0, rel=0.15)
    assert not found.ahead.left_interval
    assert found.ahead.hours is not None
    assert found.ahead.hours.p50 == pytest.approx(plan.estimate.hours.p50, rel=0.2)


def test_one_that_needs_three_times_the_samples_leaves_the_plan_and_says_what_that_costs(plan: Plan) -> None:
    state, points = watch(plan, 0.9, end=3.0)
    found = loss_outlook(plan, state, points, 1.0)
    assert found is not None
    assert found.ahead is not None
    assert found.ahead.left_interval
    text = outlook_text(plan, found)
    assert "times the planned samples" in text
    assert "p95 hours" in text
    assert "->" in text
    assert "outside of the plan's interval" in " ".join(text.split())


def test_too_few_looks_say_nothing_and_a_run_that_is_over_neither(plan: Plan) -> None:
    state, points = watch(plan, 0.5)
    assert loss_outlook(plan, state, points[:2], 1.0) is None
    assert loss_outlook(plan, looked(plan, 0.5, 1.0, capacity=0), points, 1.0) is None


def test_a_target_that_is_reached_is_said_to_be(plan: Plan) -> None:
    state, points = watch(plan, 1.3)
    found = loss_outlook(plan, state, points, 1.0)
    assert found is not None
    assert "reached after" in " ".join(outlook_text(plan, found).split())


def test_a_look_counts_once_and_what_went_back_to_a_checkpoint_is_there_again(plan: Plan) -> None:
    first, second = looked(plan, 0.1, 3.0), looked(plan, 0.2, 2.0)
    points = watched_points(watched_points(watched_points([], first), second), second)
    assert len(points) == 2
    assert watched_points(points, looked(plan, 0.15, 2.5))[-1][1] == 2.5
    assert len(watched_points(points, looked(plan, 0.15, 2.5))) == 2
    assert watched_points(points, looked(plan, 0.3, None)) == points
