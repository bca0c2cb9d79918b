"""Good and bad days: as far apart at any hour, and half forgotten after the better part of a day."""

from __future__ import annotations

import numpy as np
import pytest

from planner.spot.rates.pooled import POOLED
from planner.spot.runs.stretches import first_day, next_day

RUNS = 200_000


@pytest.mark.parametrize("hours", [1.0, 24.0, 240.0])
def test_days_stay_as_far_apart_and_are_forgotten_by_the_hour(hours: float) -> None:
    generator = np.random.default_rng(1)
    now = first_day(POOLED, RUNS, generator)
    later = next_day(now, np.full(RUNS, hours), POOLED, generator)
    assert now.std() == pytest.approx(POOLED.day_log_sd, rel=0.01)
    assert later.std() == pytest.approx(POOLED.day_log_sd, rel=0.01)
    assert np.corrcoef(now, later)[0, 1] == pytest.approx(np.exp(-hours / 24), abs=0.01)
