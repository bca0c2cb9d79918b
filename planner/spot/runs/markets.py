"""Simulated capacity step by step, for policies that decide on the way."""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Floats
from planner.errors import InputError
from planner.spot.rates.process import AGE_EDGES_HOURS, SpotProcess, cumulative_hazard


def sample_markets(process: SpotProcess, runs: int, steps: int, step_hours: float, seed: int) -> tuple[Flags, Floats]:
    """Whether the gang is there, a row per run and a column per step; and the age of each run's first state.

    The first state is drawn from what the process does in the long run.
    """
    if process.availability <= 0:
        raise InputError("spot capacity never comes back in this history: availability is zero")
    generator = np.random.default_rng(seed)
    unknown = np.array([[process.log_sd], [process.loss_log_sd]])
    gone_level, there_level = np.exp(unknown * generator.standard_normal((2, runs)))
    up, age = _long_run(process, gone_level, there_level, generator)
    gone_risk, there_risk = (_risks(rates, step_hours) for rates in (process.return_per_hour, process.loss_per_hour))
    oldest = len(there_risk) - 1
    result, first_age = np.empty((steps, runs), dtype=bool), age
    steps_old = np.minimum(age / step_hours, oldest).astype(np.int64)
    for step in range(steps):
        result[step] = up
        risk = np.where(up, there_risk[steps_old] * there_level, gone_risk[steps_old] * gone_level)
        changed = generator.standard_exponential(runs) < risk
        up = up ^ changed
        steps_old = np.where(changed, 0, np.minimum(steps_old + 1, oldest))
    return np.ascontiguousarray(result.T), first_age


def _risks(rates: Floats, step_hours: float) -> Floats:
    """The risk of each step of a stretch; from the last age on it stays the same."""
    ages = np.arange(int(np.ceil(AGE_EDGES_HOURS[-1] / step_hours)) + 2, dtype=np.float64) * step_hours
    return np.diff(cumulative_hazard(rates, ages))


def _long_run(
    process: SpotProcess, gone_level: Floats, there_level: Floats, generator: np.random.Generator
) -> tuple[Flags, Floats]:
    """State and age met at a random moment: of each by the hours spent in it."""
    runs = len(gone_level)
    if np.isinf(process.mean_up_hours):
        return np.full(runs, True), np.full(runs, AGE_EDGES_HOURS[-1])
    gone_hours, gone_age = _met(process.return_per_hour, gone_level, generator)
    there_hours, there_age = _met(process.loss_per_hour, there_level, generator)
    up = generator.random(runs) * (gone_hours + there_hours) < there_hours
    return up, np.where(up, there_age, gone_age)


def _met(rates: Floats, level: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Mean hours of a stretch, and the age of one that is met at a random moment: old ages are met as they survive."""
    risk = np.maximum(np.outer(level, rates), 1e-12)
    passed = np.cumsum(risk[:, :-1] * np.diff(AGE_EDGES_HOURS), axis=1)
    reached = np.exp(-np.pad(passed, ((0, 0), (1, 0))))
    ending = -np.expm1(-risk * np.append(np.diff(AGE_EDGES_HOURS), np.inf))
    hours = reached * ending / risk
    share = np.cumsum(hours, axis=1)
    bucket = (generator.random(len(level))[:, None] * share[:, -1:] > share[:, :-1]).sum(axis=1)
    row = np.arange(len(level))
    within = -np.log1p(-generator.random(len(level)) * ending[row, bucket]) / risk[row, bucket]
    return share[:, -1], AGE_EDGES_HOURS[bucket] + within
