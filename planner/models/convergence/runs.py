"""Runs that reached the target: what they say together of each batch size, and how much runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from planner.columns import Floats

# How many runs' worth of evidence the usual figures are, for how much runs differ and for what laws miss. Benchmarks
# differ a lot in both: from 2 % to 26 % between runs.
SCALE_DEGREES = 2.0
# A run counts as no further from its batch's median than this many standard deviations: some are typing errors.
FURTHEST_SDS = 3.0
_SD_OVER_MEAN_DEVIATION = 1.2533  # of a normal distribution: sqrt(pi / 2)


class RunsToTarget(NamedTuple):
    """What was tried: one row per batch size, smallest first."""

    batch: Floats
    log_samples: Floats
    repeats: Floats
    variance: Floats  # of a single run, for each of the spreads that may be usual

    @classmethod
    def pooled(cls, points: Sequence[tuple[float, float]], usual_log_sd: Floats) -> Self:
        """Repeated runs at a batch count as their mean, and say together with `usual_log_sd` how much runs differ."""
        batches, samples = (np.array(column, dtype=float) for column in zip(*sorted(points), strict=True))
        batch, row = np.unique(batches, return_inverse=True)
        repeats = np.bincount(row).astype(float)
        medians = np.array([np.median(np.log(samples[row == i])) for i in range(len(batch))])
        beyond = len(row) - len(batch)
        deviation = np.log(samples) - medians[row]
        furthest = FURTHEST_SDS * _SD_OVER_MEAN_DEVIATION * np.abs(deviation).sum() / max(beyond, 1)
        deviation = np.clip(deviation, -furthest, furthest)
        shift = np.bincount(row, weights=deviation) / repeats
        scatter = float(((deviation - shift[row]) ** 2).sum())
        variance = (SCALE_DEGREES * usual_log_sd**2 + scatter) / (SCALE_DEGREES + beyond)
        return cls(batch, medians + shift, repeats, variance)
