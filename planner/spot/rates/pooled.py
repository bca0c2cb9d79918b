"""What is assumed of a zone that nobody has recorded: the zones of public recordings, as a distribution.

From `benchmarks/spot.py --data DIR --pool`, on one-, four- and sixteen-node recordings of p2, p3 and r5 machines of
2022 and 2023. Zones differ in how often they lose nodes and in how soon these are back: the spreads are between zones,
and hold that capacity may not be there when it is asked for. GPU models explain none of it, so none is asked.
"""

from __future__ import annotations

import numpy as np

from planner.spot.rates.process import SpotProcess

POOLED = SpotProcess(
    loss_per_hour=np.array([0.21, 1.64, 0.96, 0.35, 0.158, 0.060]),
    return_per_hour=np.array([0.34, 2.65, 1.29, 0.47, 0.243, 0.054]),
    log_sd=0.43,
    own_loss_log_sd=0.41,
    day_log_sd=0.25,
)
# Of the gang's size, at each age. A gang is hardly lost more often than a node that is as old: where capacity goes, it
# goes for all. What a gang has less of is old age.
LOSS_EXPONENT, RETURN_EXPONENT = 0.03, 0.0
