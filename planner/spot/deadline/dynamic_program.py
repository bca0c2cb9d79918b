"""The cheapest policy in expectation: dynamic programming over work left, time left, market state and what runs.

The market is a chain of twelve states (capacity there or gone, six ages each). A safety net forbids whatever could
break the deadline in the worst case, so that the average is optimised only among policies that keep it.
"""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Floats
from planner.spot.deadline.grid import with_more_work
from planner.spot.deadline.table import STATES, PolicyTable
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, World
from planner.spot.rates.process import AGE_EDGES_HOURS, AGES, SpotProcess, age_bucket, cumulative_hazard

_TOO_LATE = 1e4  # dearer than any way to be in time, and still a number that can be averaged


def solve(
    world: World, process: SpotProcess, longest_deadline_hours: float, margin_hours: float = 0.0, points: int = 25
) -> PolicyTable:
    """One table serves every deadline up to the longest, since time left is part of the state."""
    step = world.step_hours
    units = max(round((float(np.max(world.work_hours)) + 2 * world.interval_hours) / step), 1)
    left = np.asarray(np.arange(units + 1) * step, dtype=np.float64)
    chain = market_chain(process, step)
    value = np.full((3, STATES, units + 1), _TOO_LATE)
    value[:, :, 0] = 0.0
    slack = np.zeros((3, STATES, units + 1))
    for steps_left in range(1, round(longest_deadline_hours / step) + 1):
        time_left = steps_left * step
        value, on_demand = _one_step_earlier(world, chain, value, left, time_left, margin_hours)
        slack = np.where(on_demand, np.maximum(time_left - left + step / 2, 0.0), slack)
    slack[:, :, 0] = slack[:, :, 1]  # with nothing left nothing is decided, but with less than a step's work it is
    chosen = np.unique(np.round(np.linspace(0, units, points)).astype(np.int64))
    return PolicyTable(
        step_hours=step,
        restart_hours=world.restart_hours,
        rollback_hours=world.interval_hours,
        margin_hours=margin_hours,
        spot_share=world.spot_share,
        work_left_hours=tuple(np.round(left[chosen], 3).tolist()),
        slack_hours={
            name: tuple(tuple(row) for row in np.round(slack[mode][:, chosen], 2).tolist())
            for name, mode in (("idle", IDLE), ("spot", SPOT), ("on_demand", ON_DEMAND))
        },
    )


def market_chain(process: SpotProcess, step_hours: float) -> Floats:
    """Probabilities from state to state in one step.

    A chain forgets how long it has been in an age, so it grows older by chance; that chance is set so that as many
    stretches outlive each age as do in truth. With the mean time in an age instead, too many would. An age that is
    shorter than the step is left within it, and what ends meanwhile has run the risks of the ages passed through.
    """
    reached = AGE_EDGES_HOURS + step_hours
    next_age = np.maximum(age_bucket(reached), np.minimum(np.arange(AGES) + 1, AGES - 1))
    passes = reached[:-1] >= AGE_EDGES_HOURS[1:]
    chain = np.zeros((STATES, STATES))
    for side, rates in enumerate((process.loss_per_hour, process.return_per_hour)):
        ends = -np.expm1(cumulative_hazard(rates, AGE_EDGES_HOURS) - cumulative_hazard(rates, reached))
        outlive = np.exp(-rates[:-1] * np.diff(AGE_EDGES_HOURS))
        ending = ends[:-1] * outlive / np.maximum((1 - outlive) * (1 - ends[:-1]), 1e-12)
        older = np.where(rates[:-1] > 0, np.minimum(ending, 1.0), step_hours / np.diff(AGE_EDGES_HOURS))
        grows = np.append(np.where(passes, 1.0, older), 0.0)
        for age in range(AGES):
            state = side * AGES + age
            chain[state, (1 - side) * AGES] += ends[age]
            chain[state, state] += (1 - ends[age]) * (1 - grows[age])
            chain[state, side * AGES + next_age[age]] += (1 - ends[age]) * grows[age]
    return chain


def _one_step_earlier(
    world: World, chain: Floats, value: Floats, left: Floats, time_left: float, margin_hours: float
) -> tuple[Floats, Flags]:
    step, restart = world.step_hours, world.restart_hours
    expected = chain @ value  # by mode, then state before the step, then work
    for age, rollback in enumerate(_rollbacks(world)):  # whoever ran on spot and finds it gone has also lost work
        lost = with_more_work(value[IDLE, AGES], rollback / step)
        expected[SPOT, age] = chain[age, :AGES] @ value[SPOT, :AGES] + chain[age, AGES] * lost
    slack = time_left - left
    wait = np.where(slack >= step + restart + margin_hours, step * world.idle_share + expected[IDLE], _TOO_LATE)
    spot_on = step * world.spot_share + with_more_work(expected[SPOT], -1)
    spot_on = np.where(slack >= world.interval_hours + restart + margin_hours, spot_on, _TOO_LATE)
    spot_new = step * world.spot_share + with_more_work(expected[SPOT], restart / step - 1)
    spot_new = np.where(slack >= step + restart + margin_hours, spot_new, _TOO_LATE)
    spot_on[AGES:], spot_new[AGES:] = np.inf, np.inf
    demand_on = step + with_more_work(expected[ON_DEMAND], -1)
    demand_new = step + with_more_work(expected[ON_DEMAND], restart / step - 1)
    other = np.stack([np.minimum(wait, spot_new), np.minimum(wait, spot_on), np.minimum(wait, spot_new)])
    demand = np.stack([demand_new, demand_new, demand_on])
    on_demand = (demand < other) & (left > 0)
    earlier = np.where(on_demand, demand, other)
    earlier[:, :, 0] = 0.0
    return np.minimum(earlier, _TOO_LATE), on_demand


def _rollbacks(world: World) -> list[float]:
    """Half an interval on average, but never more than was done since the restart or in this step."""
    middles = np.maximum((AGE_EDGES_HOURS[:-1] + AGE_EDGES_HOURS[1:]) / 2, world.step_hours)
    done = np.append(np.maximum(middles - world.restart_hours, 0.0), np.inf)
    capped = np.minimum(done, world.interval_hours)
    return [float(hours * (1 - hours / (2 * world.interval_hours))) for hours in capped]
