"""The physical form fitted as a posterior.

It is fitted three times, taking the GPU, its host or the wait for samples for the slowest at first, and the best is
kept. Unidentified parameters stay at their prior. Errors count robustly (the pseudo-Huber loss): a window taken while
the machine was busy must not bend the fit; nor is a job that is unlike others held to them. Many rows of one campaign
repeat each other's peculiarities, so that their common weight is limited; what they know beyond that is left to the
correction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from planner.columns import Flags, Floats
from planner.models.step_time.formula import gradients, log_step, positions
from planner.models.step_time.prior import Prior
from planner.models.step_time.rows import MeasuredRows, Placements, spread_subset

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

# How far the form is from what it is fitted to, about as far as two nodes of one type are from each other.
FORM_SD = 0.08
ROBUST = 0.7  # where the loss turns linear, in standard deviations; what is alike in most jobs is far from it in a few
SCALE, FIXED, FLOOR, WAIT = positions("scale", "fixed", "floor", "wait")
NEVER = -30.0  # as the logarithm of a share: none of it
REACHES = 3 * np.sinh(np.linspace(-4, 4, 41)) / np.sinh(4)  # in standard deviations of the prior, closer near the fit
SLOWER = 0.7  # log of how much slower than the GPU its host, or the wait, is where such a fit starts
EFFECTIVE_ROWS = 80.0
MOST_DOUBT = 3.0


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
    errors = _Errors.of(rows, prior)
    found = min((errors.least(start) for start in _starts(errors.prior)), key=lambda fit: float(fit.cost))
    return errors.posterior(errors.in_the_middle(np.asarray(found.x)), found.jac)


def without_host(rows: MeasuredRows, prior: Prior, fitted: Posterior) -> Posterior:
    """The plain form, in which work on one GPU is all there is. Its fit begins where the other one ended."""
    mean, start = prior.mean.copy(), fitted.theta.copy()
    mean[FLOOR] = start[FLOOR] = NEVER
    errors = _Errors.of(rows, replace(prior, mean=mean))
    found = errors.least(start)
    return errors.posterior(np.asarray(found.x), found.jac)


@dataclass(frozen=True, slots=True)
class _Errors:
    """Of parameters, from the rows and from the prior, in standard deviations."""

    placements: Placements
    target: Floats  # log steps, and log work where that was measured apart
    has_work: Flags
    sd: Floats  # of the target
    prior: Prior  # in seconds
    reference: tuple[float, float]

    @classmethod
    def of(cls, rows: MeasuredRows, prior: Prior) -> Self:
        reference, rows = reference_point(rows), spread_subset(rows)
        crowding = np.sqrt(np.maximum(1.0, rows.weight.sum() / EFFECTIVE_ROWS) / rows.weight)
        # Measurements that contradict each other count less, but still more than none.
        doubt = np.sqrt(1 + np.minimum(rows.spread / FORM_SD**2, MOST_DOUBT))
        has_work = np.isfinite(rows.log_work)
        target = np.concatenate((rows.log_step, rows.log_work[has_work]))
        sd = FORM_SD * np.concatenate((crowding * doubt, crowding[has_work]))
        return cls(rows.placements, target, has_work, sd, prior.shifted(reference[1]), reference)

    def __call__(self, theta: Floats) -> Floats:
        step, work = log_step(theta, self.placements, self.reference[0])
        apart = np.concatenate((step, work[self.has_work])) - self.target
        return np.concatenate((apart / self.sd, (theta - self.prior.mean) / self.prior.sd))

    def slope(self, theta: Floats) -> Floats:
        step, work = gradients(theta, self.placements, self.reference[0])
        rows = np.concatenate((step, work[self.has_work])) / self.sd[:, None]
        return np.concatenate((rows, np.diag(1 / self.prior.sd)))

    def cost(self, theta: Floats) -> float:
        return float(np.sum(ROBUST**2 * (np.sqrt(1 + (self(theta) / ROBUST) ** 2) - 1)))

    def least(self, start: Floats) -> OptimizeResult:
        from scipy.optimize import least_squares

        precise = {"max_nfev": 60, "xtol": 1e-4, "ftol": 1e-5}
        return least_squares(self, start, jac=self.slope, loss="soft_l1", f_scale=ROBUST, **precise)

    def in_the_middle(self, theta: Floats) -> Floats:
        """With the median of what the rows allow for the share of work that does not grow with the batch.

        Where all of them are bound by the host, any growth up to some bound explains them, and fits stop at it.
        """
        each = np.repeat(theta[None, :], len(REACHES), axis=0)
        each[:, FIXED] += REACHES * self.prior.sd[FIXED]
        cost = np.array([self.cost(row) for row in each])
        weight = np.exp(cost.min() - cost) * np.gradient(REACHES)
        below = np.cumsum(weight) - weight / 2
        middle = theta.copy()
        middle[FIXED] = np.interp(weight.sum() / 2, below, each[:, FIXED])
        return middle

    def posterior(self, theta: Floats, jacobian: Floats) -> Posterior:
        return Posterior(theta, np.asarray(np.linalg.inv(jacobian.T @ jacobian)), self.prior, *self.reference)


def _starts(prior: Prior) -> Iterator[Floats]:
    """The prior's mean; a host that takes longer than the GPU; three nodes that wait longer than they work."""
    yield prior.mean
    host_bound, wait_bound = prior.mean.copy(), prior.mean.copy()
    host_bound[[SCALE, FLOOR]] += -SLOWER, SLOWER - prior.mean[FLOOR]
    wait_bound[WAIT] = SLOWER
    yield host_bound
    yield wait_bound
