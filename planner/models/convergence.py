"""How many samples the target takes at a batch size: S(B) = S_min * (1 + B / B_crit).

Small batches make every sample count; past B_crit they mostly repeat each other. What is known of B_crit (a prior,
a noise scale, runs at several batch sizes) becomes weights over a grid of its values, so that knowing little shows
as a wide interval and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from planner.models.prediction import Z95, Floats, Ints, Prediction

# B_crit over the smallest batch in use, on ten MLPerf benchmarks: median 8, log standard deviation 1.1
# (reference convergence points, MLCommons logging repository).
PRIOR_RATIO = 8.0
PRIOR_LOG_SD = 1.1
# A gradient noise scale alone gives the order of magnitude.
NOISE_SCALE_LOG_SD = 0.8
# Runs with other seeds need this much more or less.
RUN_LOG_SD = 0.05

_GRID = np.exp(np.linspace(0.0, np.log(1e9), 256))
_KNOTS = 2.0 ** np.arange(0.0, 24.01, 0.25)  # the curve is smooth: interpolation between them errs below 0.1 %


class ConvergenceModel:
    """Predicts samples to the target at batch sizes nobody has trained with."""

    def fit(self, points: Sequence[tuple[float, float]], noise_scale: float | None = None) -> Self:
        """`points` are (batch, samples); the first is the job's own target."""
        batches, samples = (np.array(column, dtype=float) for column in zip(*points, strict=True))
        centre, sd = (PRIOR_RATIO * batches[0], PRIOR_LOG_SD)
        if noise_scale is not None:
            centre, sd = noise_scale, NOISE_SCALE_LOG_SD
        log_curve = np.log1p(batches[:, None] / _GRID)
        log_smallest = np.log(samples)[:, None] - log_curve  # each point's S_min, for each B_crit
        self.log_smallest_ = log_smallest.mean(axis=0)
        misfit = ((log_smallest - self.log_smallest_) ** 2).sum(axis=0)
        # Runs that contradict every curve of the family make the family less sure, not the answer arbitrary.
        variance = max(RUN_LOG_SD**2, float(misfit.min()) / len(points))
        log_weight = -((np.log(_GRID / centre) / sd) ** 2) / 2 - misfit / (2 * variance)
        weight = np.exp(log_weight - log_weight.max())
        self.weight_ = weight / weight.sum()
        self.noise_ = float(np.sqrt(variance))
        self.range_ = (float(batches.min()), float(batches.max()))
        self.knot_quantiles_ = self._quantiles(_KNOTS)
        return self

    def predict(self, global_batch: Ints) -> Prediction:
        position = np.log(global_batch)
        low, middle, high = (np.exp(np.interp(position, np.log(_KNOTS), column)) for column in self.knot_quantiles_)
        outside = (global_batch < self.range_[0]) | (global_batch > self.range_[1])
        return Prediction(p05=low, p50=middle, p95=high, extrapolated=outside)

    def critical_batch(self) -> float:
        """The most plausible one."""
        return float(_GRID[int(np.argmax(self.weight_))])

    def _quantiles(self, batches: Floats) -> Floats:
        """Log samples at 5, 50 and 95 %, shape (3, batches): uncertainty of the curve and of a single run."""
        curves = self.log_smallest_ + np.log1p(batches[:, None] / _GRID)
        order = np.argsort(curves, axis=1)
        ranked = np.take_along_axis(curves, order, axis=1)
        middle_of_step = np.cumsum(self.weight_[order], axis=1) - self.weight_[order] / 2
        low, middle, high = (
            np.array([np.interp(q, rank, values) for rank, values in zip(middle_of_step, ranked, strict=True)])
            for q in (0.05, 0.5, 0.95)
        )
        run = Z95 * self.noise_
        return np.stack((middle - np.hypot(middle - low, run), middle, middle + np.hypot(high - middle, run)))
