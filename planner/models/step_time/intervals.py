"""How much wider the model's own standard deviations must be for nine in ten measurements to lie inside.

Normalised conformal scores, |error| / standard deviation, of each placement predicted from all the others. Leaving a
placement out is a linear-algebra identity once the physical form is linearised, so no refit is needed: with Q the
inverse covariance of all rows (parameters, deviations and noise together), block b's errors are Q_bb^-1 (Q z)_b.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Z95, Floats
from planner.models.step_time.gaussian_process import GaussianResidual, coordinates
from planner.models.step_time.posterior import Posterior, spread_subset
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.step_formula import Prior, gradients

COVERAGE = 0.9
# With few placements their scores say little: they are joined by this many of a usual job's, with its usual stretch.
USUAL_STRETCH = 1.0
USUAL_COUNT = 20.0
NARROWEST, WIDEST = 0.8, 3.0
MOST_ROWS = 300
SEED = 2


def conformal_stretch(
    rows: MeasuredRows, posterior: Posterior, priors: Sequence[Prior], gaussian: GaussianResidual
) -> float:
    """The factor on every standard deviation."""
    scores = left_out_scores(spread_subset(rows, MOST_ROWS, SEED), posterior, priors, gaussian)
    rank = min(1.0, COVERAGE * (1 + 1 / len(scores)))
    found = float(np.quantile(scores, rank)) / Z95
    share = len(scores) / (len(scores) + USUAL_COUNT)
    stretch = np.exp(share * np.log(found + 1e-9) + (1 - share) * np.log(USUAL_STRETCH))
    return float(np.clip(stretch, NARROWEST, WIDEST))


def left_out_scores(
    rows: MeasuredRows, posterior: Posterior, priors: Sequence[Prior], gaussian: GaussianResidual
) -> Floats:
    """|error| / standard deviation of every row, its placement left out."""
    fit = posterior.best()
    prior = next(one for one in priors if one.law == fit.law).shifted(posterior.reference_log_seconds)
    slope, _ = gradients(fit.theta, rows.placements, posterior.reference_batch, fit.law)
    where = coordinates(posterior, rows.placements)
    covariance = gaussian.covariance(where) + (slope * prior.sd**2) @ slope.T
    covariance[np.diag_indices_from(covariance)] += (gaussian.noise(where) + rows.spread) / rows.weight
    error = rows.log_step - posterior.log_step(rows.placements) + slope @ (fit.theta - prior.mean)
    inverse = np.linalg.inv(covariance)
    solved = inverse @ error
    placement = np.unique(rows.placements.table()[:, :3], axis=0, return_inverse=True)[1].ravel()
    scores = np.empty(len(rows))
    for name in range(int(placement.max()) + 1):
        block = np.flatnonzero(placement == name)
        left = np.linalg.inv(inverse[np.ix_(block, block)])
        scores[block] = np.abs(left @ solved[block]) / np.sqrt(np.diag(left))
    return scores
