"""What a spot node will cost when the run starts, over what the snapshot says.

Within a day prices hardly move; a snapshot is weeks or months old, and the cheapest zone of a region is so partly by
chance. The intervals are what the cheapest zone cost some days later in the public AWS price history of 2022 to 2025
(`benchmarks/spot_price_drift.py`). A fresh snapshot deserves a narrower one.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from planner.columns import Z95, Floats, Prediction

SNAPSHOT_AGE_DAYS = 90.0  # assumed of every snapshot: a plan must not depend on the day it is made

# Days after the snapshot, and the interval then.
_DAYS = (0.0, 1.0, 7.0, 30.0, 90.0)
_P05 = (1.0, 0.98, 0.90, 0.79, 0.64)
_P95 = (1.0, 1.03, 1.14, 1.46, 1.91)


def spot_price_drift(age_days: float = SNAPSHOT_AGE_DAYS) -> Prediction:
    """Between the days of the table it widens as a random walk does; beyond it nothing was looked at."""
    place = np.sqrt([max(age_days, 0.0)])
    low, high = (np.exp(np.interp(place, np.sqrt(_DAYS), np.log(side))) for side in (_P05, _P95))
    return Prediction(p05=low, p50=np.array([1.0]), p95=high, extrapolated=np.array([age_days > _DAYS[-1]]))


def spot_price_draws(runs: int, seed: int, age_days: float = SNAPSHOT_AGE_DAYS) -> Floats:
    """A factor on the snapshot's price for each simulated run. Log-normal; each side has the interval's own width."""
    drift = spot_price_drift(age_days)
    normal = ndtri(np.random.default_rng(seed).random(runs)) / Z95
    return np.asarray(np.where(normal >= 0, drift.p95**normal, drift.p05**-normal))
