"""The physical form fitted as a posterior.

It is fitted three times, taking the GPU, its host or the wait for samples for the slowest at first, and the best is
kept. Unidentified parameters stay at their prior. Errors count robustly (pseudo-Huber): a window taken while the
machine was busy must not bend the fit; nor is a job that is unlike others held to them. Many rows of one campaign
repeat each other's peculiarities, so that their common weight is limited; what they know beyond that is left to the
correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.models.step_time.formula import NAMES, gradients, log_step, positions
from planner.models.step_time.prior import Prior
from planner.models.step_time.rows import MeasuredRows, Placements, spread_subset

# How far the form is from what it is fitted to, about as far as two nodes of one type are from each other.
STEP_SD = 0.09
WORK_SD = 0.07
ROBUST = 0.7  # where the pseudo-Huber loss turns linear, in standard deviations
PRIOR_ROBUST = 1.5  # and the prior's: what is alike in most jobs is far from it in a few
FIXED = NAMES.index("fixed")
REACHES = 3 * np.sinh(np.linspace(-4, 4, 41)) / np.sinh(4)  # in standard deviations of the prior, closer near the fit
SLOWER = 0.7  # log of how much slower than the GPU its host, or the wait, is where such a fit starts
EFFECTIVE_ROWS = 80.0
MOST_DOUBT = 3.0
MOST_ROWS = 400
SEED = 0


@dataclass(frozen=True, slots=True)
class Posterior:
    """The parameters that explain the measurements best, and their covariance. `prior` is in seconds."""

    theta: Floats
    covariance: Floats
    prior: Prior
    reference_batch: float
    reference_log_seconds: float

    def log_step(self, placements: Placements) -> Floats:
        return log_step(self.theta, placements, self.reference_batch)[0]

    def slope(self, placements: Placements) -> Floats:
        """How the logarithm answers to each parameter (rows, parameters)."""
        return gradients(self.theta, placements, self.reference_batch)[0]

    def work_share(self, placements: Placements) -> Floats:
        """Work over the whole step."""
        step, work = log_step(self.theta, placements, self.reference_batch)
        return np.minimum(np.exp(work - step), 1.0)  # not one and the last bit of a rounding


def reference_point(rows: MeasuredRows) -> tuple[float, float]:
    """A batch in the middle of the measured ones, and about how many log seconds a micro-step works on one."""
    batch = float(np.exp(np.median(np.log(rows.placements.gpu_batch))))
    steps = np.log(rows.placements.accumulation_steps)
    known = np.isfinite(rows.log_work)
    work = (rows.log_work - steps)[known] if known.any() else rows.log_step - steps
    return batch, float(np.median(work))


def fit_posterior(rows: MeasuredRows, prior: Prior) -> Posterior:
    """`prior`: in seconds relative to the work at the reference batch."""
    from scipy.optimize import least_squares

    reference, seconds = reference_point(rows)
    rows, prior = spread_subset(rows, MOST_ROWS, SEED), prior.shifted(seconds)
    crowding = np.sqrt(np.maximum(1.0, rows.weight.sum() / EFFECTIVE_ROWS) / rows.weight)
    # Measurements that contradict each other count less, but still more than none.
    doubt = np.sqrt(1 + np.minimum(rows.spread / STEP_SD**2, MOST_DOUBT))
    has_work = np.isfinite(rows.log_work)
    scale = np.concatenate((STEP_SD * crowding * doubt, WORK_SD * crowding[has_work]))
    target = np.concatenate((rows.log_step, rows.log_work[has_work]))

    def errors(theta: Floats) -> Floats:
        step, work = log_step(theta, rows.placements, reference)
        return np.asarray((np.concatenate((step, work[has_work])) - target) / scale)

    def from_prior(theta: Floats) -> Floats:
        return np.asarray((theta - prior.mean) / prior.sd)

    def residuals(theta: Floats) -> Floats:
        return np.concatenate((robust(errors(theta), ROBUST)[0], robust(from_prior(theta), PRIOR_ROBUST)[0]))

    def jacobian(theta: Floats) -> Floats:
        step, work = gradients(theta, rows.placements, reference)
        slope = np.concatenate((step, work[has_work])) / scale[:, None]
        usual = np.diag(robust(from_prior(theta), PRIOR_ROBUST)[1] / prior.sd)
        return np.concatenate((slope * robust(errors(theta), ROBUST)[1][:, None], usual))

    fits = [
        least_squares(residuals, start, jac=jacobian, max_nfev=60, xtol=1e-4, ftol=1e-5) for start in _starts(prior)
    ]
    theta = _in_the_middle(np.asarray(min(fits, key=lambda fit: float(fit.cost)).x), prior, residuals)
    curvature = jacobian(theta)
    return Posterior(theta, np.asarray(np.linalg.inv(curvature.T @ curvature)), prior, reference, seconds)


def _in_the_middle(theta: Floats, prior: Prior, residuals: Callable[[Floats], Floats]) -> Floats:
    """The fit with the median of what its measurements allow for the share of work that does not grow with the batch.

    Where all of them are bound by the host, any growth up to some bound explains them, and the fit stops at the bound.
    """
    each = np.repeat(theta[None, :], len(REACHES), axis=0)
    each[:, FIXED] += REACHES * prior.sd[FIXED]
    cost = np.array([np.sum(residuals(row) ** 2) / 2 for row in each])
    weight = np.exp(cost.min() - cost) * np.gradient(REACHES)
    below = np.cumsum(weight) - weight / 2
    middle = theta.copy()
    middle[FIXED] = np.interp(weight.sum() / 2, below, each[:, FIXED])
    return middle


def _starts(prior: Prior) -> Iterator[Floats]:
    """The prior's mean; a host that takes longer than the GPU; three nodes that wait longer than they work."""
    yield prior.mean
    host_bound, wait_bound = prior.mean.copy(), prior.mean.copy()
    host_bound[positions("scale", "floor")] += -SLOWER, SLOWER - prior.mean[NAMES.index("floor")]
    wait_bound[NAMES.index("wait")] = SLOWER
    yield host_bound
    yield wait_bound


def robust(errors: Floats, bend: float) -> tuple[Floats, Floats]:
    """The number whose square is the pseudo-Huber loss, and its derivative."""
    stretch = np.sqrt(1 + (errors / bend) ** 2)
    size = bend * np.sqrt(2 * (stretch - 1))
    slope = np.divide(np.abs(errors), stretch * size, out=np.ones_like(errors), where=size > 1e-6)
    return np.sign(errors) * size, slope
