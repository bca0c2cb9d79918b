"""Simulated capacity step by step, for policies that decide on the way."""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Floats
from planner.spot.rates.process import AGE_EDGES_HOURS, SpotProcess, cumulative_hazard
from planner.spot.runs.stretches import at_a_random_moment, check_ever_there, first_day, next_day


def sample_markets(process: SpotProcess, runs: int, steps: int, step_hours: float, seed: int) -> tuple[Flags, Floats]:
    """Whether the gang is there, a row per run and a column per step; and the age of each run's first state.

    The first state is drawn from what the process does in the long run.
    """
    check_ever_there(process)
    generator = np.random.default_rng(seed)
    unknown = np.array([[process.log_sd], [process.loss_log_sd]])
    gone_level, there_level = np.exp(unknown * generator.standard_normal((2, runs)))
    day, began = first_day(process, runs, generator), np.zeros(runs)
    up, age = at_a_random_moment(
        process, there_level * np.exp(day), gone_level * np.exp(-day), generator.random((2, runs))
    )
    gone_risk, there_risk = (_risks(rates, step_hours) for rates in (process.return_per_hour, process.loss_per_hour))
    oldest = len(there_risk) - 1
    result = np.empty((steps, runs), dtype=bool)
    steps_old = np.minimum(age / step_hours, oldest).astype(np.int64)
    for step in range(steps):
        result[step] = up
        level = np.where(up, there_level * np.exp(day), gone_level * np.exp(-day))
        risk = level * np.where(up, there_risk[steps_old], gone_risk[steps_old])
        changed = generator.standard_exponential(runs) < risk
        rows = np.flatnonzero(changed)
        day[rows] = next_day(day[rows], (step - began[rows]) * step_hours, process, generator)
        began[rows] = step
        up = up ^ changed
        steps_old = np.where(changed, 0, np.minimum(steps_old + 1, oldest))
    return np.ascontiguousarray(result.T), age


def _risks(rates: Floats, step_hours: float) -> Floats:
    """The risk of each step of a stretch; from the last age on it stays the same."""
    ages = np.arange(int(np.ceil(AGE_EDGES_HOURS[-1] / step_hours)) + 2, dtype=np.float64) * step_hours
    return np.diff(cumulative_hazard(rates, ages))
