"""The limit: the cheapest way to meet the deadline for whoever knows all availability in advance.

It lives in the same world as every policy: it decides once a step, so before a loss it either leaves a step early or
loses half a checkpoint interval on average. Nobody who has to find out is cheaper on average.
"""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Floats
from planner.spot.deadline.grid import with_more_work
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, World


def omniscient_cost(
    world: World,
    up: Flags,
    deadline_hours: float,
    prices: Floats | None = None,
    idle_prices: Floats | None = None,
) -> Floats:
    """For each run (a row of `up`), in hours of on-demand. Infinite when even on-demand would be late."""
    steps = round(deadline_hours / world.step_hours)
    whole = np.maximum(np.round(np.asarray(world.work_hours) / world.step_hours), 1)
    work = np.broadcast_to(whole.astype(np.int64), len(up))
    restart = max(round(world.restart_hours / world.step_hours), 0)
    units = int(work.max()) + max(restart - 1, 0)  # a restart of several steps is work on top of the whole job
    cost = np.full((3, len(up), units + 1), np.inf)
    cost[:, :, 0] = 0.0
    for step in reversed(range(steps)):
        here = up[:, step, None]
        spot = world.spot_share if prices is None else prices[:, step, None]
        idle = world.idle_share if idle_prices is None else idle_prices[:, step, None]
        lost = with_more_work(cost[IDLE], world.interval_hours / 2 / world.step_hours)
        gone = ~up[:, step + 1, None] if step + 1 < up.shape[1] else np.zeros_like(here)
        cost[SPOT] = np.where(gone, lost, cost[SPOT])
        cost[:, :, 0] = 0.0
        cost = _one_step_earlier(world.step_hours, cost, here, (idle, spot), restart)
    return np.asarray(cost[IDLE, np.arange(len(up)), work])


def _one_step_earlier(
    step_hours: float, cost: Floats, up: Flags, prices: tuple[Floats | float, Floats | float], restart: int
) -> Floats:
    """`cost` after this step, by what was rented in it; `prices` of waiting and of spot."""
    idle, spot = prices
    spot_on = step_hours * spot + _after(cost[SPOT], 1)
    spot_new = step_hours * spot + _after(cost[SPOT], 1 - restart)
    spot_on, spot_new = np.where(up, spot_on, np.inf), np.where(up, spot_new, np.inf)
    demand_on = step_hours + _after(cost[ON_DEMAND], 1)
    demand_new = step_hours + _after(cost[ON_DEMAND], 1 - restart)
    wait = step_hours * idle + cost[IDLE]
    earlier = np.empty_like(cost)
    earlier[IDLE] = np.minimum(np.minimum(wait, spot_new), demand_new)
    earlier[SPOT] = np.minimum(np.minimum(wait, np.minimum(spot_on, spot_new)), demand_new)
    earlier[ON_DEMAND] = np.minimum(np.minimum(wait, spot_new), demand_on)
    earlier[:, :, 0] = 0.0
    return earlier


def _after(cost: Floats, units: int) -> Floats:
    """By work left before the step; a restart longer than a step is work added."""
    shifted = np.full_like(cost, np.inf)
    if units > 0:
        shifted[:, units:] = cost[:, :-units]
        shifted[:, :units] = cost[:, :1]
    elif units == 0:
        shifted[:] = cost
    else:
        shifted[:, :units] = cost[:, -units:]
    return shifted
