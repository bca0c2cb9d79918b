"""The physical form fitted as a posterior.

It is fitted three times, taking the GPU, its host or the wait for samples for the slowest at first. Where that ends in
several explanations of the same measurements, all stay, weighted by their evidence: they differ most where nothing was
measured. Unidentified parameters stay at their prior. Errors count robustly (pseudo-Huber): a window taken while the
machine was busy must not bend the fit. Many rows of one campaign repeat each other's peculiarities, so that their
common weight is limited; what they know beyond that is left to the correction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.models.step_time.formula import NAMES, WAITING, gradients, log_step, positions
from planner.models.step_time.prior import Prior
from planner.models.step_time.rows import MeasuredRows, Placements, spread_subset

# How far the form is from what it is fitted to, about as far as two nodes of one type are from each other.
STEP_SD = 0.09
WORK_SD = 0.07
ROBUST = 0.7  # where the pseudo-Huber loss turns linear, in standard deviations
# How communication grows with the GPUs of a node, and waiting: alike on most node types, but far from it on a few.
LONG_TAILED = positions("link_power", "width_power", "balance_power", "wait")
PRIOR_ROBUST = 1.5
SLOWER = 0.7  # log of how much slower than the GPU its host, or the wait, is where such a fit starts
SAME = 0.1  # fits that end this close, in standard deviations of the prior, are one
EFFECTIVE_ROWS = 80.0
MOST_DOUBT = 3.0
MOST_ROWS = 400
EVIDENCE_SHARE = 0.5  # the evidence of correlated rows, tempered
SEED = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters that explain the measurements better than any near them, and their covariance."""

    theta: Floats
    covariance: Floats
    cost: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """The average of what explains the measurements. `prior` is in seconds."""

    fits: tuple[Fit, ...]
    weights: Floats
    prior: Prior
    reference_batch: float
    reference_log_seconds: float

    def log_step(self, placements: Placements) -> Floats:
        return np.asarray(self.weights @ self._each(placements))

    def disagreement(self, placements: Placements) -> Floats:
        """Variance of the logarithm between the explanations."""
        each = self._each(placements)
        return np.asarray(self.weights @ (each - self.weights @ each) ** 2)

    def slope(self, placements: Placements) -> Floats:
        """How the logarithm answers to each parameter of the best explanation (rows, parameters)."""
        return gradients(self.best.theta, placements, self.reference_batch)[0]

    def sync_elasticity(self, placements: Placements) -> Floats:
        """By how many percent a step grows when communication takes one percent longer."""
        total = np.zeros(len(placements))
        for weight, fit in zip(self.weights, self.fits, strict=True):
            moved = fit.theta.copy()
            moved[WAITING] += 1e-4
            more = log_step(moved, placements, self.reference_batch)[0]
            total += weight * (more - log_step(fit.theta, placements, self.reference_batch)[0]) / 1e-4
        return total

    def work_share(self, placements: Placements) -> Floats:
        """Work over the whole step."""
        share = np.zeros(len(placements))
        for weight, fit in zip(self.weights, self.fits, strict=True):
            step, work = log_step(fit.theta, placements, self.reference_batch)
            share += weight * np.exp(work - step)
        return np.minimum(share, 1.0)  # not one and the last bit of a rounding

    @property
    def best(self) -> Fit:
        return min(self.fits, key=lambda fit: fit.cost)

    def _each(self, placements: Placements) -> Floats:
        return np.stack([log_step(fit.theta, placements, self.reference_batch)[0] for fit in self.fits])


def fit_posterior(rows: MeasuredRows, prior: Prior) -> Posterior:
    """`prior`: in seconds relative to the work at the reference batch."""
    reference, seconds = reference_point(rows)
    rows, prior = spread_subset(rows, MOST_ROWS, SEED), prior.shifted(seconds)
    fits: list[Fit] = []
    for fit in _fits(rows, prior, reference):
        if all((np.abs(fit.theta - other.theta) > SAME * prior.sd).any() for other in fits):
            fits.append(fit)
    cost = np.array([fit.cost for fit in fits])
    weight = np.exp(-EVIDENCE_SHARE * (cost - cost.min()))
    return Posterior(tuple(fits), weight / weight.sum(), prior, reference, seconds)


def reference_point(rows: MeasuredRows) -> tuple[float, float]:
    """A batch in the middle of the measured ones, and about how many log seconds a micro-step works on one."""
    batch = float(np.exp(np.median(np.log(rows.placements.gpu_batch))))
    steps = np.log(rows.placements.accumulation_steps)
    known = np.isfinite(rows.log_work)
    work = (rows.log_work - steps)[known] if known.any() else rows.log_step - steps
    return batch, float(np.median(work))


def _fits(rows: MeasuredRows, prior: Prior, reference: float) -> Iterator[Fit]:
    from scipy.optimize import least_squares

    crowding = np.sqrt(np.maximum(1.0, rows.weight.sum() / EFFECTIVE_ROWS) / rows.weight)
    # Measurements that contradict each other count less, but still more than none.
    doubt = np.sqrt(1 + np.minimum(rows.spread / STEP_SD**2, MOST_DOUBT))
    has_work = np.isfinite(rows.log_work)
    scale = np.concatenate((STEP_SD * crowding * doubt, WORK_SD * crowding[has_work]))
    target = np.concatenate((rows.log_step, rows.log_work[has_work]))

    def errors(theta: Floats) -> Floats:
        step, work = log_step(theta, rows.placements, reference)
        return np.asarray((np.concatenate((step, work[has_work])) - target) / scale)

    def residuals(theta: Floats) -> Floats:
        return np.concatenate((_robust(errors(theta), ROBUST)[0], _from_prior(theta, prior)[0]))

    def jacobian(theta: Floats) -> Floats:
        step, work = gradients(theta, rows.placements, reference)
        slope = np.concatenate((step, work[has_work])) / scale[:, None]
        slope = slope * _robust(errors(theta), ROBUST)[1][:, None]
        return np.concatenate((slope, np.diag(_from_prior(theta, prior)[1] / prior.sd)))

    for start in _starts(prior):
        found = least_squares(residuals, start, jac=jacobian, max_nfev=60, xtol=1e-4, ftol=1e-5)
        curvature = jacobian(found.x)
        yield Fit(np.asarray(found.x), np.asarray(np.linalg.inv(curvature.T @ curvature)), float(found.cost))


def _starts(prior: Prior) -> Iterator[Floats]:
    """The prior's mean; a host that takes longer than the GPU; three nodes that wait longer than they work."""
    yield prior.mean
    host_bound, wait_bound = prior.mean.copy(), prior.mean.copy()
    host_bound[positions("scale", "floor")] += -SLOWER, SLOWER - prior.mean[NAMES.index("floor")]
    wait_bound[NAMES.index("wait")] = SLOWER
    yield host_bound
    yield wait_bound


def _from_prior(theta: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """How far the parameters are from usual, in standard deviations, and the derivative by them."""
    far = (theta - prior.mean) / prior.sd
    slope = np.ones_like(far)
    far[LONG_TAILED], slope[LONG_TAILED] = _robust(far[LONG_TAILED], PRIOR_ROBUST)
    return far, slope


def _robust(errors: Floats, bend: float) -> tuple[Floats, Floats]:
    """The number whose square is the pseudo-Huber loss, and its derivative."""
    stretch = np.sqrt(1 + (errors / bend) ** 2)
    size = bend * np.sqrt(2 * (stretch - 1))
    slope = np.divide(np.abs(errors), stretch * size, out=np.ones_like(errors), where=size > 1e-6)
    return np.sign(errors) * size, slope
