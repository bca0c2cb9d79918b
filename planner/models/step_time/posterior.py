"""The physical form fitted as a posterior: both laws, averaged by how well each explains the measurements.

Each law is fitted three times, taking the GPU, its host or the wait for samples for the slowest at first. Where that
ends in several explanations of the same measurements, all stay: they differ most where nothing was measured.
Unidentified parameters stay at their prior. Errors count robustly (pseudo-Huber): a window taken while the machine was
busy must not bend the fit. Many rows of one campaign repeat each other's peculiarities, so that their common weight is
limited; what they know beyond that is left to the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.models.step_time.rows import MeasuredRows, Placements
from planner.models.step_time.step_formula import LONG_TAILED, NAMES, WAITING, Prior, gradients, log_step

STEP_SD = 0.09
WORK_SD = 0.07
ROBUST = 0.7  # where the pseudo-Huber loss turns linear, in standard deviations
PRIOR_ROBUST = 1.5  # the same for parameters that are far from usual now and then
HOST_BOUND = 0.7  # log of the host's time over the GPU's where the second fit starts
WAIT_BOUND = 1.0  # log of the wait over the work it grows with where the third one starts
SAME = 0.1  # fits that end this close, in standard deviations of the prior, are one
EFFECTIVE_ROWS = 80.0
MOST_DOUBT = 3.0
MOST_ROWS = 600
EVIDENCE_SHARE = 0.5  # the evidence of correlated rows, tempered
SEED = 0


@dataclass(frozen=True, slots=True)
class LawFit:
    """Parameters of one law that explain the measurements better than any near them, and their covariance."""

    law: str
    theta: Floats
    covariance: Floats
    cost: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """The average of the laws and of their explanations."""

    fits: tuple[LawFit, ...]
    weights: Floats
    reference_batch: float
    reference_log_seconds: float

    def log_step(self, placements: Placements) -> Floats:
        return np.asarray(self.weights @ self._each(placements))

    def variance(self, placements: Placements) -> Floats:
        """Of the logarithm: inside each explanation, and between them."""
        each = self._each(placements)
        mean = self.weights @ each
        total = np.zeros(len(placements))
        for weight, fit, column in zip(self.weights, self.fits, each, strict=True):
            slope, _ = gradients(fit.theta, placements, self.reference_batch, fit.law)
            inside = np.einsum("ij,jk,ik->i", slope, fit.covariance, slope)
            total += weight * (inside + (column - mean) ** 2)
        return total

    def sync_elasticity(self, placements: Placements) -> Floats:
        """By how many percent a step grows when communication takes one percent longer."""
        total = np.zeros(len(placements))
        for weight, fit in zip(self.weights, self.fits, strict=True):
            moved = fit.theta.copy()
            moved[WAITING] += 1e-4
            more = log_step(moved, placements, self.reference_batch, fit.law)[0]
            total += weight * (more - log_step(fit.theta, placements, self.reference_batch, fit.law)[0]) / 1e-4
        return total

    def work_share(self, placements: Placements) -> Floats:
        """Work over the whole step."""
        share = np.zeros(len(placements))
        for weight, fit in zip(self.weights, self.fits, strict=True):
            step, work = log_step(fit.theta, placements, self.reference_batch, fit.law)
            share += weight * np.exp(work - step)
        return np.minimum(share, 1.0)  # not one and the last bit of a rounding

    def best(self, law: str | None = None) -> LawFit:
        """The most plausible explanation, of any law or of one."""
        return min((fit for fit in self.fits if law in (None, fit.law)), key=lambda fit: fit.cost)

    def _each(self, placements: Placements) -> Floats:
        return np.stack([log_step(fit.theta, placements, self.reference_batch, fit.law)[0] for fit in self.fits])


def fit_posterior(rows: MeasuredRows, priors: Sequence[Prior]) -> Posterior:
    """`priors`: one for each law, in seconds relative to the work at the reference batch."""
    reference, seconds = reference_point(rows)
    rows = spread_subset(rows, MOST_ROWS, SEED)
    fits = tuple(fit for prior in priors for fit in _fit_law(rows, prior.shifted(seconds), reference))
    cost = np.array([fit.cost for fit in fits])
    weight = np.exp(-EVIDENCE_SHARE * (cost - cost.min()))
    return Posterior(fits, weight / weight.sum(), reference, seconds)


def reference_point(rows: MeasuredRows) -> tuple[float, float]:
    """A batch in the middle of the measured ones, and about how many log seconds a micro-step works on one."""
    batch = float(np.exp(np.median(np.log(rows.placements.gpu_batch))))
    steps = np.log(rows.placements.accumulation_steps)
    known = np.isfinite(rows.log_work)
    work = (rows.log_work - steps)[known] if known.any() else rows.log_step - steps
    return batch, float(np.median(work))


def spread_subset(rows: MeasuredRows, most: int, seed: int) -> MeasuredRows:
    """Some of many rows, the same ones every time."""
    if len(rows) <= most:
        return rows
    return rows.at(np.sort(np.random.default_rng(seed).permutation(len(rows))[:most]))


def _fit_law(rows: MeasuredRows, prior: Prior, reference: float) -> list[LawFit]:
    from scipy.optimize import least_squares

    crowding = np.sqrt(np.maximum(1.0, rows.weight.sum() / EFFECTIVE_ROWS) / rows.weight)
    # Measurements that contradict each other count less, but still more than none.
    doubt = np.sqrt(1 + np.minimum(rows.spread / STEP_SD**2, MOST_DOUBT))
    has_work = np.isfinite(rows.log_work)
    scale = np.concatenate((STEP_SD * crowding * doubt, WORK_SD * crowding[has_work]))
    target = np.concatenate((rows.log_step, rows.log_work[has_work]))

    def errors(theta: Floats) -> Floats:
        step, work = log_step(theta, rows.placements, reference, prior.law)
        return np.asarray((np.concatenate((step, work[has_work])) - target) / scale)

    def residuals(theta: Floats) -> Floats:
        return np.concatenate((_robust(errors(theta), ROBUST)[0], _from_prior(theta, prior)[0]))

    def jacobian(theta: Floats) -> Floats:
        step, work = gradients(theta, rows.placements, reference, prior.law)
        slope = np.concatenate((step, work[has_work])) / scale[:, None]
        slope = slope * _robust(errors(theta), ROBUST)[1][:, None]
        return np.concatenate((slope, np.diag(_from_prior(theta, prior)[1] / prior.sd)))

    fits: list[LawFit] = []
    for start in (prior.mean, _host_bound(prior), _wait_bound(prior)):
        found = least_squares(residuals, start, jac=jacobian, max_nfev=60, xtol=1e-4, ftol=1e-5)
        curvature = jacobian(found.x)
        covariance = np.asarray(np.linalg.inv(curvature.T @ curvature))
        fit = LawFit(prior.law, np.asarray(found.x), covariance, float(found.cost))
        if all((np.abs(fit.theta - other.theta) > SAME * prior.sd).any() for other in fits):
            fits.append(fit)
    return fits


def _host_bound(prior: Prior) -> Floats:
    """The prior's mean, but that the host takes longer than the GPU."""
    start = prior.mean.copy()
    start[NAMES.index("scale")] -= HOST_BOUND
    start[NAMES.index("floor")] = HOST_BOUND
    return start


def _wait_bound(prior: Prior) -> Floats:
    """The prior's mean, but that three nodes and more wait longer than they work."""
    start = prior.mean.copy()
    start[NAMES.index("wait")] = WAIT_BOUND
    return start


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
