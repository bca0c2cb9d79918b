"""What AWS's interruption class adds to what is assumed of a zone that nobody has recorded: little.

The class is the share of instances that AWS took back within a month. It says neither how long these ran nor whether
capacity was there when it was asked for, and read as a rate it fails: g4dn.xlarge, in the second class, lost 0.4 to 1.6
nodes per node and hour in 2020. So it is weak evidence of how scarce a type is. All public recordings are of the last
class, which therefore is the prior itself, as is no class. From the last to the first, losses get as much rarer and
capacity is back as much sooner as zones lie apart: assumed, and what a class shifts is not known by as much.
"""

from __future__ import annotations

import math
from functools import cache

from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import SpotProcess

_LAST_CLASS = 4


@cache
def process_for_class(interruption_class: int | None) -> SpotProcess:
    """Classes 0 to 4 as in the catalogue; None where AWS says nothing."""
    calmer = 0.0 if interruption_class is None else (_LAST_CLASS - interruption_class) / _LAST_CLASS
    loss_shift, return_shift = calmer * POOLED.loss_log_sd, calmer * POOLED.log_sd
    return SpotProcess(
        loss_per_hour=POOLED.loss_per_hour * math.exp(-loss_shift),
        return_per_hour=POOLED.return_per_hour * math.exp(return_shift),
        log_sd=math.hypot(POOLED.log_sd, return_shift),
        own_loss_log_sd=math.hypot(POOLED.loss_log_sd, loss_shift),
        day_log_sd=POOLED.day_log_sd,
    )
