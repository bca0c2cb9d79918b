"""What the physical form misses near its probes, and how sure it all is.

    log step = physical form + deviation + noise

Deviations are normal, and alike for neighbours: smoothly over nodes and GPUs, and along the batch decaying from the
first step on (exp(-doublings / reach)). Kernels change with the batch, so that neighbours may deviate in turn, and a
smooth deviation would carry the last slope beyond the probes. The correction is the deviation to expect from the errors
of the fitted form, and returns to zero away from them.

Its variance is that of deviation and parameters together, the form linearised: what the probes cannot tell apart counts
once. Leaving a group of probes out is then an identity, without a refit: with Q the inverse covariance of all probes,
group b's errors are Q_bb^-1 (Q z)_b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats, Ints
from planner.models.step_time.posterior import Posterior
from planner.models.step_time.rows import MeasuredRows, Placements, spread_subset

DEVIATION, NOISE = 0.1, 0.05  # standard deviations of log seconds: of the form, and of one window
# Distances over which deviations are alike, in doublings: nodes, GPUs on the fullest node, on each other node.
REACH = np.array([1.2, 1.8, 1.8])
BATCH_REACH = 2.0


@dataclass(frozen=True, slots=True)
class Correction:
    """Fitted to the errors of a posterior."""

    rows: MeasuredRows
    slope: Floats  # how the rows answer to the parameters, times the parameters' prior variance
    known: Floats  # the inverse covariance of deviations and noise
    solved: Floats  # the same times the errors
    precision: Floats  # the inverse covariance of parameters, deviations and noise
    error: Floats  # from the prior's mean, the form linearised

    def predict(self, posterior: Posterior, placements: Placements) -> tuple[Floats, Floats]:
        """The deviation to expect, and the variance that is left of parameters, deviation and noise."""
        alike, slope = likeness(placements, self.rows.placements), posterior.slope(placements)
        shared = alike + slope @ self.slope.T
        before = DEVIATION**2 + slope**2 @ posterior.prior.sd**2
        left = before - np.einsum("ij,ij->i", shared @ self.precision, shared)
        noise = NOISE**2 + self.rows.repeat_variance
        return alike @ self.solved, np.maximum(left, 1e-3 * DEVIATION**2) + noise

    def explained(self, placements: Placements) -> Floats:
        """How much of a row's deviation its neighbours tell: 1 on top of many of them, 0 far from all."""
        alike = likeness(placements, self.rows.placements)
        return np.asarray(np.clip(np.einsum("ij,ij->i", alike @ self.known, alike) / DEVIATION**2, 0.0, 1.0))

    def left_out(self, group: Ints) -> tuple[Floats, Floats]:
        """Errors of the rows when their group is predicted from the others, and the variance expected of them."""
        solved = self.precision @ self.error
        found, variance = np.empty(len(group)), np.empty(len(group))
        for name in range(int(group.max()) + 1):
            block = np.flatnonzero(group == name)
            left = np.linalg.inv(self.precision[np.ix_(block, block)])
            found[block], variance[block] = left @ solved[block], np.diag(left)
        return found, variance


def fit_correction(rows: MeasuredRows, posterior: Posterior) -> Correction:
    rows = spread_subset(rows)
    slope = posterior.slope(rows.placements)
    error = rows.log_step - posterior.log_step(rows.placements)
    covariance = likeness(rows.placements, rows.placements) + np.diag((NOISE**2 + rows.spread) / rows.weight)
    known = np.asarray(np.linalg.inv(covariance))
    uncertain = slope * posterior.prior.sd**2
    return Correction(
        rows=rows,
        slope=uncertain,
        known=known,
        solved=known @ error,
        precision=np.asarray(np.linalg.inv(covariance + uncertain @ slope.T)),
        error=error + slope @ (posterior.theta - posterior.prior.mean),
    )


def likeness(some: Placements, others: Placements) -> Floats:
    """Covariance of the deviations of two lists of placements: Matérn 5/2 over placements, decaying along the batch."""
    from scipy.spatial.distance import cdist

    one, other = some.features(), others.features()
    scaled = np.sqrt(5.0) * cdist(one[:, :3] / REACH, other[:, :3] / REACH)
    batch = np.abs(one[:, 3][:, None] - other[:, 3]) / BATCH_REACH
    return np.asarray(DEVIATION**2 * (1 + scaled + scaled * scaled / 3) * np.exp(-scaled - batch))
