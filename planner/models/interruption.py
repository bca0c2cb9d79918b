"""What spot nodes cost in lost work and waiting: one flat assumption for every type and zone.

Real interruptions differ by zone, come in bursts and drift by the month; until they are modelled from traces the
interval below is wide enough to hold them: p95 is a run that takes 60 % longer.
"""

from __future__ import annotations

import math

import numpy as np

from planner.models.prediction import Prediction

CLUSTER_HOURS_BETWEEN_LOSSES = 10.0
_SHORTEST_INTERVAL_SAVES = 5.0
_SHORTEST_INTERVAL_SECONDS = 60.0
_LONGEST_INTERVAL_SECONDS = 3600.0


def spot_slowdown() -> Prediction:
    """Wall time with spot nodes over wall time without: rework, restarts and waiting for capacity."""
    return Prediction(p05=np.array([1.03]), p50=np.array([1.15]), p95=np.array([1.60]), extrapolated=np.array([False]))


def expected_losses(hours: float) -> float:
    return hours / CLUSTER_HOURS_BETWEEN_LOSSES


def checkpoint_interval_seconds(save_seconds: float) -> float:
    """Young's and Daly's balance between saving too often and losing too much."""
    best = math.sqrt(2 * save_seconds * CLUSTER_HOURS_BETWEEN_LOSSES * 3600)
    shortest = max(_SHORTEST_INTERVAL_SAVES * save_seconds, _SHORTEST_INTERVAL_SECONDS)
    return min(max(best, shortest), _LONGEST_INTERVAL_SECONDS)
