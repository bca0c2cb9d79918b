"""Samples to the target at batch sizes nobody has trained with: all curves of two laws, by how likely the runs are.

Log samples are a law, plus what the law misses (a Gaussian process that follows the runs and fades within a factor of
two or so of the batch), plus the noise of single runs. The law's parameter, and how much larger than usual misses and
noise are, are grids; given both, everything is normal and the likelihood of the runs a closed form. A prediction
averages over all of them.

Two batch sizes leave nothing to check a law against, and the prior decides what lies beyond them. There, unless
gradient noise speaks, the median goes half the way, in logarithms, to the plain hyperbola through both. It stays inside
the interval, which is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.special import ndtr

from planner.columns import Floats, Ints, Prediction
from planner.models.convergence.laws import BELIEFS, NOISE_SCALE_LOG_SD, Beliefs, Law, laws, plain_hyperbola
from planner.models.convergence.runs import SCALE_DEGREES, RunsToTarget

_KNOTS = 2.0 ** np.arange(0.0, 24.01, 0.25)  # with the batches tried: interpolation between them errs by 0.2 %
# What laws miss, and how much runs differ, over what is usual: runs that contradict every law make all less sure.
_SCALES = 2.0 ** np.arange(-2.0, 6.1, 1.0)
_NORMAL_95 = 1.6449
_HALVINGS = 30
_UNCHECKED_SIZES = 2  # with one more, leaving one out says whether a curve holds
_PLAIN_SHARE = 0.5  # neither is known to be the better


class ConvergenceModel:
    """Predicts samples to the target at batch sizes nobody has trained with."""

    def __init__(self, beliefs: Beliefs = BELIEFS) -> None:
        self.beliefs = beliefs

    def fit(
        self,
        points: Sequence[tuple[float, float]],
        noise_scale: float | None = None,
        noise_log_sd: float = NOISE_SCALE_LOG_SD,
    ) -> Self:
        """`points` are (batch, samples) of runs that reached the target, at least one; their order does not matter.

        A gradient noise scale (in samples) says where the critical batch lies, with this standard deviation of its
        logarithm; runs at two batch sizes or more calibrate it.
        """
        self.weigh(points, noise_scale, noise_log_sd)
        knots = np.unique(np.concatenate((_KNOTS, self.runs_.batch)))
        self.log_knots_ = np.log(knots)
        self.knot_quantiles_ = self._quantiles_at(knots)
        return self

    def weigh(self, points: Sequence[tuple[float, float]], noise_scale: float | None, noise_log_sd: float) -> Self:
        """How likely each law is after these runs, and how likely these runs were (`log_evidence_`)."""
        self.runs_ = RunsToTarget.pooled(points, self.beliefs.run_log_sd * _SCALES)
        self.range_ = (float(self.runs_.batch[0]), float(self.runs_.batch[-1]))
        self.laws_ = laws(*self.range_, noise_scale, noise_log_sd, self.beliefs)
        self.is_unchecked_ = len(self.runs_.batch) == _UNCHECKED_SIZES and noise_scale is None
        self._weigh()
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

    def _quantiles_at(self, batches: Floats) -> Floats:
        """Of the log samples of one more run at each of these batches."""
        asked, known = self._position(batches), self._position(self.runs_.batch)
        near = self._miss(asked, known)
        weight = self.weight_.sum(axis=0)
        share = self.weight_ / np.maximum(weight, np.finfo(float).tiny)  # of each scale in a curve
        middle = self._curves(asked) + ((self._height[:, None, :] + near @ self._pull) * share[:, None, :]).sum(axis=0)
        pulled = near @ self._precision
        variance = self._miss_sd[:, None] ** 2 - (pulled * near).sum(axis=2) + self.runs_.variance[:, None]
        variance += (1 - pulled.sum(axis=2)) ** 2 / self._precision.sum(axis=(1, 2))[:, None]  # of the height
        low, median, high = _quantiles(middle, weight, _half_width(np.sqrt(variance), self.weight_.sum(axis=1)))
        if self.is_unchecked_:
            plain = plain_hyperbola(known, self.runs_.log_samples, asked)
            median += _PLAIN_SHARE * (np.clip(plain, low, high) - median)
        return np.stack((low, median, high))

    def _weigh(self) -> None:
        """The chance of each scale (rows) and curve (columns), and what a prediction needs of them."""
        position = self._position(self.runs_.batch)
        noise = self.runs_.variance[:, None, None] * np.diag(1 / self.runs_.repeats)
        self._precision = np.linalg.inv(self._miss(position, position) + noise)
        level = self._precision.sum(axis=1)
        total = level.sum(axis=1)
        residual = self.runs_.log_samples[:, None] - self._curves(position)
        self._height = level @ residual / total[:, None]
        residual = residual - self._height[:, None, :]
        self._pull = self._precision @ residual
        misfit = (residual * self._pull).sum(axis=1)
        # The height may be anything; its evidence is what is left of the others'.
        spread = (np.linalg.slogdet(self._precision)[1] - np.log(total)) / 2
        log_weight = _log_prior_of_scales()[:, None] + spread[:, None] - misfit / 2 + _log_prior_of_curves(self.laws_)
        self.log_evidence_ = float(np.logaddexp.reduce(log_weight, axis=None))
        self.weight_ = np.exp(log_weight - self.log_evidence_)
        ends = np.cumsum([len(law.parameter) for law in self.laws_])[:-1]
        shares = np.split(self.weight_.sum(axis=0), ends)
        self.law_weights_ = {law.name: float(share.sum()) for law, share in zip(self.laws_, shares, strict=True)}

    @property
    def _miss_sd(self) -> Floats:
        return self.beliefs.miss_log_sd * _SCALES

    def _miss(self, left: Floats, right: Floats) -> Floats:
        """Covariance of what the laws miss, for each scale."""
        alike = np.exp(-np.abs(left[:, None] - right) / self.beliefs.miss_log_range)
        return np.asarray(self._miss_sd[:, None, None] ** 2 * alike)

    def _position(self, batches: Floats) -> Floats:
        return np.log(batches / self.range_[0])

    def _curves(self, position: Floats) -> Floats:
        return np.hstack([law.curves(position) for law in self.laws_])


def _log_prior_of_scales() -> Floats:
    """An inverse gamma distribution of the variance around the usual one."""
    log_weight = -SCALE_DEGREES * (np.log(_SCALES) + 0.5 / _SCALES**2)
    return np.asarray(log_weight - np.logaddexp.reduce(log_weight))


def _log_prior_of_curves(both: Sequence[Law]) -> Floats:
    return np.concatenate([np.log(law.belief) + law.log_prior for law in both])


def _half_width(sd: Floats, weight: Floats) -> Floats:
    """Between the median and 95 % of normal distributions of these spreads (rows), mixed by weight, in each column."""
    high = _NORMAL_95 * sd.max(axis=0)
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = weight @ ndtr(middle / sd) < 0.95
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.asarray((low + high) / 2)


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
