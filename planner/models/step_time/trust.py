"""How much a measurement counts: fully, or half where the machine was busy or PyTorch was older than the newest.

Half the weight doubles the variance, so what is doubtful widens the interval and moves the median less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Floats
from planner.inputs import Measurement, torch_version

BUSY_VARIATION = 0.1  # spread between windows over their median
DOUBTFUL = 0.5


def trust(rows: Sequence[Measurement]) -> Floats:
    """Of each row, beside the others of its job. A row that does not say its version is taken for new."""
    versions = [torch_version(row) for row in rows]
    newest = max((version for version in versions if version is not None), default=None)
    older = np.array([version is not None and version != newest for version in versions], dtype=bool)
    busy = np.array([(row.window_variation or 0.0) > BUSY_VARIATION for row in rows], dtype=bool)
    return np.where(older, DOUBTFUL, 1.0) * np.where(busy, DOUBTFUL, 1.0)
