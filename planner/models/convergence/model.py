"""Samples to the target at batch sizes nobody has trained with: laws averaged by how they predict runs left out.

Log samples are a law, plus what the law misses (a Gaussian process that follows the runs and fades within a factor of
two or so of the batch), plus the noise of single runs, all of a scale that is only roughly known (hence Student's t).
But for the law's one parameter everything is linear, so the posterior, and each run predicted from the others, are
closed forms over the grids of `laws`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.special import stdtrit

from planner.columns import Floats, Ints, Prediction
from planner.models.convergence.laws import BELIEF, laws

# RunsToTarget with other seeds need this much more or less (reference convergence points: root mean square 0.044).
RUN_LOG_SD = 0.05
# What the hyperbola misses on MLPerf benchmarks, over which log distance of batches it does so alike, and how many
# runs' worth of evidence these figures are. Largest marginal likelihood over eight benchmarks; without any one of them
# it lies within 0.01, a factor of 1.4 and a factor of 2.
MISS_LOG_SD = 0.05
MISS_LOG_RANGE = 0.5
SCALE_DEGREES = 8.0

_KNOTS = 2.0 ** np.arange(0.0, 24.01, 0.25)  # with the batches tried: interpolation between them errs by 0.2 %


class RunsToTarget(NamedTuple):
    """What was tried: one row per batch size, smallest first."""

    batch: Floats
    log_samples: Floats
    repeats: Floats
    variance: float  # of a single run

    @classmethod
    def pooled(cls, points: Sequence[tuple[float, float]]) -> Self:
        """Repeated runs at a batch count as their mean; scatter between them beyond the usual widens every interval."""
        batches, samples = (np.array(column, dtype=float) for column in zip(*sorted(points), strict=True))
        batch, row = np.unique(batches, return_inverse=True)
        repeats = np.bincount(row).astype(float)
        log_samples = np.bincount(row, weights=np.log(samples)) / repeats
        scatter = float(((np.log(samples) - log_samples[row]) ** 2).sum())
        return cls(batch, log_samples, repeats, max(RUN_LOG_SD**2, scatter / max(len(points) - len(batch), 1)))


class ConvergenceModel:
    """Predicts samples to the target at batch sizes nobody has trained with."""

    def fit(self, points: Sequence[tuple[float, float]], noise_scale: float | None = None) -> Self:
        """`points` are (batch, samples) of runs that reached the target, at least one; their order does not matter.

        A gradient noise scale (in samples) says where the critical batch lies, to an order of magnitude; runs at two
        batch sizes or more calibrate it.
        """
        runs = RunsToTarget.pooled(points)
        self.range_ = (float(runs.batch[0]), float(runs.batch[-1]))
        self.laws_ = laws(*self.range_, noise_scale)
        position = self._position(runs.batch)
        precision = np.linalg.inv(_miss(position, position) + np.diag(runs.variance / runs.repeats))
        level = precision.sum(axis=0) / precision.sum()  # weights of the runs in a curve's height
        residual = runs.log_samples[:, None] - self._curves(position)
        height = level @ residual
        residual -= height
        pull = precision @ residual
        misfit = (residual * pull).sum(axis=0)
        self._weigh(misfit, pull, freedom=np.diag(precision) - level**2 * precision.sum())

        knots = np.unique(np.concatenate((_KNOTS, runs.batch)))
        near = _miss(self._position(knots), position)
        curves = height + self._curves(self._position(knots)) + near @ pull
        variance = MISS_LOG_SD**2 - ((near @ precision) * near).sum(axis=1)
        variance += (1 - (near @ precision).sum(axis=1)) ** 2 / precision.sum() + runs.variance
        # RunsToTarget that contradict every law make all of them less sure, not the answer arbitrary.
        degrees = SCALE_DEGREES + len(runs.batch) - 1
        stretch = (SCALE_DEGREES + float(misfit @ self.weight_)) / degrees
        self.log_knots_ = np.log(knots)
        self.knot_quantiles_ = _quantiles(curves, self.weight_, stdtrit(degrees, 0.95) * np.sqrt(stretch * variance))
        return self

    def predict(self, global_batch: Ints) -> Prediction:
        """Of a single run."""
        position = np.log(global_batch)
        low, middle, high = (np.exp(np.interp(position, self.log_knots_, column)) for column in self.knot_quantiles_)
        outside = (global_batch < self.range_[0]) | (global_batch > self.range_[1])
        return Prediction(p05=low, p50=middle, p95=high, extrapolated=outside)

    def efficiency(self, global_batch: Ints, reference_batch: int) -> Floats:
        """Statistical efficiency: progress per sample relative to the reference batch, 1.0 there."""
        reference = self.predict(np.array([reference_batch])).p50
        return np.asarray(reference / self.predict(global_batch).p50)

    def _position(self, batches: Floats) -> Floats:
        return np.log(batches / self.range_[0])

    def _curves(self, position: Floats) -> Floats:
        return np.hstack([law.curves(position) for law in self.laws_])

    def _weigh(self, misfit: Floats, pull: Floats, freedom: Floats) -> None:
        """Each law by how well it predicts every run from the others, and curves within a law by how well they fit.

        Leaving run i out takes pull_i^2 / freedom_i off the misfit. The score of a run, on average, counts once for
        each run but one: that is the penalty for few points, and a single run leaves the belief as it was.
        """
        scores, within = [], []
        independent = len(freedom) - 1
        ends = np.cumsum([len(law.parameter) for law in self.laws_])
        for law, end in zip(self.laws_, ends, strict=True):
            own = slice(end - len(law.parameter), end)
            log_weight = law.log_prior + _log_likelihood(misfit[own], independent)
            total = np.logaddexp.reduce(log_weight)
            within.append(np.exp(log_weight - total))
            scores.append(np.log(BELIEF[law.name]))
            if independent:
                without = np.maximum(misfit[own] - pull[:, own] ** 2 / freedom[:, None], 0.0)
                others = np.logaddexp.reduce(law.log_prior + _log_likelihood(without, independent - 1), axis=1)
                scores[-1] += float((total - others).mean()) * independent
        shares = np.exp(scores - np.logaddexp.reduce(scores))
        self.law_weights_ = {law.name: float(share) for law, share in zip(self.laws_, shares, strict=True)}
        self.weight_ = np.concatenate([share * weight for share, weight in zip(shares, within, strict=True)])


def _log_likelihood(misfit: Floats, independent: int) -> Floats:
    """Of runs at one batch size more than `independent`, but for what all curves share."""
    return np.asarray(-(SCALE_DEGREES + independent) / 2 * np.log1p(misfit / SCALE_DEGREES))


def _miss(left: Floats, right: Floats) -> Floats:
    """Covariance of what the laws miss."""
    return np.asarray(MISS_LOG_SD**2 * np.exp(-np.abs(left[:, None] - right) / MISS_LOG_RANGE))


def _quantiles(curves: Floats, weight: Floats, around: Floats) -> Floats:
    """Log samples at 5, 50 and 95 %, shape (3, batches): spread between curves and around them, in quadrature."""
    order = np.argsort(curves, axis=1)
    ranked = np.take_along_axis(curves, order, axis=1)
    middle_of_step = np.cumsum(weight[order], axis=1) - weight[order] / 2
    low, middle, high = (
        np.array([np.interp(q, rank, values) for rank, values in zip(middle_of_step, ranked, strict=True)])
        for q in (0.05, 0.5, 0.95)
    )
    return np.stack((middle - np.hypot(middle - low, around), middle, middle + np.hypot(high - middle, around)))
