"""Policies without a model of the market, to compare with: greedy, uniform progress."""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Ints
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, Moment, Policy, World


def greedy(world: World) -> Policy:
    """Spot whenever it is there, else wait, until only on-demand can still make it."""

    def decide(moment: Moment) -> Ints:
        return np.asarray(np.where(_must_hurry(world, moment), ON_DEMAND, np.where(moment.up, SPOT, IDLE)))

    return decide


def uniform_progress(world: World, deadline_hours: float) -> Policy:
    """Can't Be Late (NSDI'24): never behind an even pace; back from on-demand only when two restarts ahead of it."""

    def decide(moment: Moment) -> Ints:
        progress = world.work_hours - moment.work_left
        passed = deadline_hours - moment.time_left
        pace = world.work_hours / deadline_hours
        behind = progress < passed * pace
        ahead = progress >= (passed + 2 * world.restart_hours) * pace
        from_on_demand = np.where(moment.up & ahead, SPOT, ON_DEMAND)
        otherwise = np.where(moment.up, SPOT, np.where(behind, ON_DEMAND, IDLE))
        chosen = np.where(moment.mode == ON_DEMAND, from_on_demand, otherwise)
        # Ahead of the pace and without spot there is nothing to hurry for.
        chosen = np.where((moment.mode == ON_DEMAND) & ~moment.up & ahead, IDLE, chosen)
        return np.asarray(np.where(_must_hurry(world, moment), ON_DEMAND, chosen))

    return decide


def _must_hurry(world: World, moment: Moment) -> Flags:
    """The paper's safety net: R(t) < C(t) + 2 d. Rolled-back work is not in it, so a late loss can still break it.

    The paper decides all the time: where a step is longer than a restart, the net is as wide as two of them.
    """
    net = 2 * max(world.restart_hours, world.step_hours)
    stay = (moment.mode == ON_DEMAND) & (moment.time_left < moment.work_left + net + world.restart_hours)
    return np.asarray((moment.time_left < moment.work_left + net) | stay)
