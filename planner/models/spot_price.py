"""What a spot node will cost when the run starts, over what the snapshot says.

Within a day prices hardly move; a snapshot is weeks or months old, and the cheapest zone of a region is so partly by
chance. The interval is what the cheapest zone cost 90 days later in the public AWS price history of 2022 to 2025
(p05 0.64, p50 1.03, p95 1.91: `benchmarks/spot_price_drift.py`). A fresh snapshot deserves a narrower one.
"""

from __future__ import annotations

import numpy as np

from planner.models.prediction import Prediction


def spot_price_drift() -> Prediction:
    return Prediction(p05=np.array([0.64]), p50=np.array([1.0]), p95=np.array([1.91]), extrapolated=np.array([False]))
