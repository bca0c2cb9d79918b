"""The Spot Advisor's classes as processes, for types and zones without a recording.

The class is the share of instances that AWS took back within a month. It does not say how long these ran: read as a
hazard it is a loss every few thousand hours, read as a share of instances that live a day it is thirty times as many.
Both readings are within the interval. The last class has no upper end, and all public recordings are of types in it:
there the pooled recordings speak.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from planner.columns import Z95
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import SpotProcess

_SHARE_LOST = (0.025, 0.075, 0.125, 0.175)  # the middles of <5 %, 5-10 %, 10-15 %, 15-20 %
_MONTH_HOURS, _DAY_HOURS = 730.0, 24.0


@cache
def process_for_class(interruption_class: int | None) -> SpotProcess:
    """Classes 0 to 4 as in the catalogue. None: AWS says nothing, which is no good sign, so it counts as class 4."""
    if interruption_class is None or interruption_class >= len(_SHARE_LOST):
        return POOLED
    hazard = -math.log1p(-_SHARE_LOST[interruption_class])
    per_hour = hazard / math.sqrt(_MONTH_HOURS * _DAY_HOURS)
    loss_log_sd = math.log(_MONTH_HOURS / _DAY_HOURS) / 2 / Z95
    scaled = POOLED.scaled(loss=per_hour * POOLED.mean_up_hours)
    # Seldom lost, a gang lives in its last age, so the whole scale follows that age's rate: set it by the mean.
    level = per_hour * scaled.mean_up_hours
    return replace(POOLED.scaled(loss=per_hour * POOLED.mean_up_hours * level), own_loss_log_sd=loss_log_sd)
