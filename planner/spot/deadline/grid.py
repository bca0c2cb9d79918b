"""Values on a grid of work left, read between its points."""

from __future__ import annotations

import numpy as np

from planner.columns import Floats


def with_more_work(value: Floats, units: float) -> Floats:
    """The value at so many points more (or less) work left; never beyond the last point, which is the whole job.

    What is infinite stays so: nothing between it and its neighbour can be had.
    """
    whole = int(np.floor(units))
    last = value.shape[-1] - 1
    places = np.arange(last + 1) + whole
    low = np.take(value, places, axis=-1, mode="clip")
    if units == whole:
        return low
    high = np.take(value, places + 1, axis=-1, mode="clip")
    return np.asarray(low + (units - whole) * (high - np.where(np.isinf(high), 0.0, low)))
