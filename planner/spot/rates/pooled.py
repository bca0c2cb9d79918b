"""The default where nothing is known of a zone: rates pooled over public traces, each zone weighing the same.

From `benchmarks/spot.py --data DIR --pool` on one-, four- and sixteen-node traces of p2, p3 and r5 machines of 2022 and
2023. All of these were in the Spot Advisor's last class, and so is this default.
"""

from __future__ import annotations

import numpy as np

from planner.spot.rates.process import SpotProcess

POOLED = SpotProcess(
    loss_per_hour=np.array([0.47, 1.64, 0.85, 0.30, 0.130, 0.051]),
    return_per_hour=np.array([0.69, 2.68, 1.25, 0.41, 0.155, 0.022]),
    log_sd=0.23,  # between zones, beyond what the ages say
)
