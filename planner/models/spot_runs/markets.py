"""Simulated capacity step by step, for policies that decide on the way."""

from __future__ import annotations

import numpy as np

from planner.models.interruption.process import SpotProcess, age_bucket
from planner.models.prediction import Flags, Floats
from planner.models.spot_runs.monte_carlo import Start

_SETTLING_HOURS = 100.0


def sample_markets(
    process: SpotProcess, runs: int, steps: int, step_hours: float, seed: int, start: Start | None = None
) -> tuple[Flags, Floats]:
    """Whether the gang is there, a row per run and a column per step; and the age of each run's first state.

    Without a `start`, the chain first runs until it has forgotten where it began.
    """
    generator = np.random.default_rng(seed)
    multiplier = np.exp(process.log_sd * generator.standard_normal((2, runs)))
    rates = np.stack([process.return_per_hour, process.loss_per_hour])  # by whether it is there
    up = np.full(runs, start.up if start else True)
    age = np.full(runs, start.age_hours if start else 0.0)
    settling = 0 if start else round(_SETTLING_HOURS / step_hours)
    result, first_age = np.empty((runs, steps), dtype=bool), age
    for step in range(settling + steps):
        if step >= settling:
            result[:, step - settling] = up
            first_age = age if step == settling else first_age
        side = up.astype(np.int64)
        risk = rates[side, age_bucket(age)] * multiplier[side, np.arange(runs)] * step_hours
        changed = generator.random(runs) < -np.expm1(-risk)
        up, age = up ^ changed, np.where(changed, 0.0, age + step_hours)
    return result, first_age
