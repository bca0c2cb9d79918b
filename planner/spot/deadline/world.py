"""The world a deadline policy acts in: one cluster that runs on spot, on on-demand, or waits; decided every step.

Spot vanishes between two steps and takes back a random share of a checkpoint interval; starting anything costs a
restart; leaving spot by choice saves first. On-demand never fails. Costs are in hours of on-demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.errors import InputError

IDLE, SPOT, ON_DEMAND = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What every policy has to live with; shares are of the whole cluster's on-demand price.

    `work_hours` is one for all runs or each run's own, saves included. `spot_share` holds the on-demand nodes beside
    the spot ones, `idle_share` those of them that wait for the others.
    """

    work_hours: Floats | float
    spot_share: float
    idle_share: float = 0.0
    interval_hours: float = 0.25
    restart_hours: float = 0.1
    step_hours: float = 0.1

    def __post_init__(self) -> None:
        if not self.spot_share > 0 or self.idle_share < 0:
            raise InputError(
                f"spot at {self.spot_share} and waiting at {self.idle_share} of the on-demand price cannot be"
            )
        if not self.interval_hours > 0:
            raise InputError("spot nodes need a job that saves checkpoints: without them a loss costs everything")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known of every run when a step is decided."""

    work_left: Floats
    time_left: float
    up: Flags
    age_hours: Floats  # of `up`, whichever it is
    mode: Ints  # what was rented in the last step and is still there


Policy = Callable[[Moment], Ints]


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    cost: Floats
    hours: Floats
    missed: Flags
    losses: Ints
    waiting_hours: Floats


def act(
    world: World,
    policy: Policy,
    up: Flags,
    age_hours: Floats,
    deadline_hours: float,
    seed: int,
    prices: Floats | None = None,
    idle_prices: Floats | None = None,
    assumed_work_hours: float | None = None,
) -> PolicyOutcome:
    """`up` has a row per run and a column per step; a run that is late goes on with on-demand until it is done.

    `prices` are spot over on-demand for each run and step, where they are not the world's constant share, and
    `idle_prices` those of waiting. Without `assumed_work_hours` the policy knows each run's own work. With it, it
    takes this for all the work, whatever the run's own is; a run that has done it all seems to have one step left.
    """
    runs, steps = up.shape
    generator = np.random.default_rng(seed)
    left, restart = np.full(runs, world.work_hours, dtype=float), np.zeros(runs)
    stint, mode = np.zeros(runs), np.zeros(runs, dtype=np.int64)
    cost, waiting, hours = np.zeros(runs), np.zeros(runs), np.full(runs, np.inf)
    losses = np.zeros(runs, dtype=np.int64)
    by_step = np.ascontiguousarray(up.T)
    age, before = np.array(age_hours, dtype=float), by_step[0]
    for step in range(steps):
        going = np.isinf(hours)
        if not going.any():
            break
        here = by_step[step]
        age[here != before] = 0.0
        lost = (mode == SPOT) & ~here & going
        taken_back = generator.random(runs)
        if lost.any():
            rollback = np.minimum(stint, taken_back * world.interval_hours)
            left = np.where(lost, left + rollback, left)
            losses += lost
            mode = np.where(lost, IDLE, mode)
        passed = step * world.step_hours
        told = _told_hours(left, world, assumed_work_hours)
        chosen = policy(Moment(told, deadline_hours - passed, here, age, mode))
        chosen = np.where((chosen == SPOT) & ~here, IDLE, chosen)
        fresh = chosen != mode
        restart[fresh], stint[fresh] = world.restart_hours, 0.0
        mode = chosen
        waited = np.minimum(restart, world.step_hours)
        idle = mode == IDLE
        worked = np.where(idle, 0.0, np.minimum(world.step_hours - waited, left))
        restart, stint, left = restart - np.where(idle, 0.0, waited), stint + worked, left - worked
        waiting += np.where(idle & going, world.step_hours, 0.0)
        done = going & (left <= 1e-9)
        spent = np.where(done, waited + worked, world.step_hours)
        spot = world.spot_share if prices is None else prices[:, step]
        idling = world.idle_share if idle_prices is None else idle_prices[:, step]
        cost += np.where(going, spent * np.where(idle, idling, np.where(mode == SPOT, spot, 1.0)), 0.0)
        hours = np.where(done, passed + spent, hours)
        age, before = age + world.step_hours, here
    rest = left + np.where(mode == ON_DEMAND, restart, world.restart_hours)
    late = np.isinf(hours)
    hours = np.where(late, steps * world.step_hours + rest, hours)
    return PolicyOutcome(np.where(late, cost + rest, cost), hours, hours > deadline_hours + 1e-6, losses, waiting)


def _told_hours(left: Floats, world: World, assumed_work_hours: float | None) -> Floats:
    """What the policy takes for the work that is left."""
    if assumed_work_hours is None:
        return left
    return np.maximum(assumed_work_hours - (world.work_hours - left), world.step_hours)
