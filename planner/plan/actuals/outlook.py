"""What a running job will take, from what its loss did while somebody watched it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.models import LEAST_POINTS, Curve
from planner.plan.actuals.comparison import Actuals, compare
from planner.plan.actuals.run import MetricTarget, ObservedRun
from planner.plan.run_state import RunState
from planner.plan.schema import Plan


def loss_outlook(
    plan: Plan, state: RunState, points: Sequence[tuple[float, float]], target_loss: float
) -> Actuals | None:
    """`points`: samples and the loss there, in order; None before there are enough, and after the end."""
    if state.over or len(points) < LEAST_POINTS:
        return None
    samples, loss = np.array(points, dtype=float).T
    run = ObservedRun(
        source="what it printed",
        sha256="",
        samples=float(samples[-1]),
        hours=state.hours.so_far,
        usd=state.usd.so_far,
        curve=Curve(samples, loss),
    )
    return compare(plan, run, MetricTarget("loss", True, target_loss))


def watched_points(points: Sequence[tuple[float, float]], state: RunState) -> list[tuple[float, float]]:
    """With this look's, if it says something new; a run that went back to a checkpoint is there again."""
    samples, loss = state.training.samples, state.training.loss
    if not samples or loss is None:
        return [*points]
    return [*(point for point in points if point[0] < samples), (samples, loss)]
