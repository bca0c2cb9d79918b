"""What the physical form misses near its probes, and how sure it all is.

    log step = physical form + deviation + noise

Deviations are normal, and alike for neighbours: of communication over nodes, GPUs and batch (felt as far as the step
waits for it), of work over GPUs per node and batch, and a placement's own luck. Along the batch their likeness decays
from the first step on (exp(-doublings / reach)): kernels change with the batch, so that neighbours may deviate in turn,
and a smooth deviation would carry the last slope beyond the probes. The correction is the deviation to expect from the
errors of the fitted form, and returns to zero away from them. It counts as far as it has helped on the job's own rows,
where whole placements, or whole batches, are predicted from the others.

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

# Standard deviations of log seconds: deviations of communication, work and placements, then the noise of one window.
SYNC, WORK, PLACEMENT = 0.1, 0.05, 0.05
WORK_NOISE, SYNC_NOISE = 0.03, 0.05
# Distances over which deviations are alike, in doublings: nodes, GPUs on the fullest node, on each other node.
SYNC_REACH = np.array([1.2, 1.8, 1.8])
WORK_REACH = 1.5  # GPUs on the fullest node
BATCH_REACH = 2.0
LEAST_ELASTICITY = 0.5  # communication that seems hidden still shows now and then
TAIL = 4.0  # degrees of freedom of a Student-t: how soon an odd window loses its say
OUTLIER = 3.0  # single errors count as no more than this many standard deviations when the correction is judged
BELIEF = 100.0  # it is taken to help, as if that many rows had said so
MOST_ROWS = 400
SEED = 1


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where rows are, how much of a deviation of communication they feel, and how they answer to the parameters."""

    position: Floats
    elasticity: Floats
    slope: Floats

    def likeness(self, other: Coordinates) -> Floats:
        """Covariance of deviations with those of other rows."""
        batch = np.exp(-np.abs(self.position[:, 3][:, None] - other.position[:, 3]) / BATCH_REACH)
        one, another = (each.position[:, :3] / SYNC_REACH for each in (self, other))
        sync = matern(distances(one, another)) * np.multiply.outer(self.elasticity, other.elasticity)
        crowd = np.abs(self.position[:, 1][:, None] - other.position[:, 1]) / WORK_REACH
        work = matern(crowd) * np.multiply.outer(1 - self.elasticity, 1 - other.elasticity)
        same = distances(self.position[:, :3], other.position[:, :3]) < 1e-5
        return np.asarray(batch * (SYNC**2 * sync + WORK**2 * work + PLACEMENT**2 * same))

    def variance(self) -> Floats:
        """Of each row's deviation, before any measurement."""
        return np.asarray((SYNC * self.elasticity) ** 2 + (WORK * (1 - self.elasticity)) ** 2 + PLACEMENT**2)

    def noise(self) -> Floats:
        """Variance of one window."""
        return np.asarray(WORK_NOISE**2 + (SYNC_NOISE * self.elasticity) ** 2)


@dataclass(frozen=True, slots=True)
class Correction:
    """Fitted to the errors of a posterior."""

    rows: MeasuredRows
    at: Coordinates
    parameter_variance: Floats
    known: Floats  # the inverse covariance of deviations and noise
    solved: Floats  # the same times the errors, as far as they count
    precision: Floats  # the inverse covariance of parameters, deviations and noise
    error: Floats  # from the prior's mean, the form linearised

    def predict(self, where: Coordinates) -> tuple[Floats, Floats]:
        """The deviation to expect, and the variance that is left of parameters, deviation and noise."""
        likeness = where.likeness(self.at)
        shared = likeness + (where.slope * self.parameter_variance) @ self.at.slope.T
        deviation = where.variance()
        before = deviation + (where.slope**2) @ self.parameter_variance
        left = before - np.einsum("ij,ij->i", shared @ self.precision, shared)
        noise = where.noise() + self.rows.repeat_variance
        return likeness @ self.solved, np.maximum(left, 1e-3 * deviation) + noise

    def explained(self, where: Coordinates) -> Floats:
        """How much of a row's deviation its neighbours tell: 1 on top of many of them, 0 far from all."""
        likeness = where.likeness(self.at)
        share = np.einsum("ij,ij->i", likeness @ self.known, likeness) / where.variance()
        return np.asarray(np.clip(share, 0.0, 1.0))

    def left_out(self, group: Ints) -> tuple[Floats, Floats]:
        """Errors of the rows when their group is predicted from the others, and the variance expected of them."""
        return left_out(self.precision, self.error, group)


def coordinates(posterior: Posterior, placements: Placements) -> Coordinates:
    felt = np.maximum(posterior.sync_elasticity(placements), LEAST_ELASTICITY)
    alone = placements.workers == 1
    return Coordinates(placements.features(), np.where(alone, 0.0, felt), posterior.slope(placements))


def fit_correction(rows: MeasuredRows, posterior: Posterior) -> Correction:
    rows = spread_subset(rows, MOST_ROWS, SEED)
    at = coordinates(posterior, rows.placements)
    error = rows.log_step - posterior.log_step(rows.placements)
    from_prior = error + at.slope @ (posterior.best.theta - posterior.prior.mean)
    likeness, noise = at.likeness(at), (at.noise() + rows.spread) / rows.weight
    variance = posterior.prior.sd**2
    physical, total = (at.slope * variance) @ at.slope.T, at.variance() + noise
    alone, precision = (
        np.asarray(np.linalg.inv(physical + rest)) for rest in (np.diag(total), likeness + np.diag(noise))
    )
    groups = placement_and_batch(rows.placements)
    before, after = (
        np.concatenate([left_out(each, from_prior, by)[0] for by in groups]) for each in (alone, precision)
    )
    known = np.asarray(np.linalg.inv(likeness + np.diag(noise / trusted(likeness, noise, error))))
    return Correction(
        rows=rows,
        at=at,
        parameter_variance=variance,
        known=known,
        solved=helpful_share(before, after, np.tile(np.sqrt(total), len(groups))) * (known @ error),
        precision=precision,
        error=from_prior,
    )


def placement_and_batch(placements: Placements) -> tuple[Ints, Ints]:
    """Which rows belong together, by placement and by batch."""
    placement = np.unique(placements.table()[:, :3], axis=0, return_inverse=True)[1].ravel()
    return placement, np.unique(placements.gpu_batch, return_inverse=True)[1].ravel()


def left_out(precision: Floats, error: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Errors of rows with this inverse covariance when their group is predicted from the others; their variance."""
    solved = precision @ error
    found, variance = np.empty(len(group)), np.empty(len(group))
    for name in range(int(group.max()) + 1):
        block = np.flatnonzero(group == name)
        left = np.linalg.inv(precision[np.ix_(block, block)])
        found[block], variance[block] = left @ solved[block], np.diag(left)
    return found, variance


def helpful_share(before: Floats, after: Floats, sd: Floats) -> float:
    """How much of the step from one set of errors to another makes them least: all of it unless rows say otherwise."""
    errors, step = (np.clip(each / sd, -OUTLIER, OUTLIER) for each in (before, before - after))
    return float(np.clip((errors @ step + BELIEF) / (step @ step + BELIEF), 0.0, 1.0))


def trusted(likeness: Floats, noise: Floats, error: Floats) -> Floats:
    """How far each row is, once its own share of noise is seen: an odd window loses its say."""
    solved = np.linalg.solve(likeness + np.diag(noise), error)
    return np.minimum(1.0, (TAIL + 1) / (TAIL + solved**2 * noise))


def distances(one: Floats, other: Floats) -> Floats:
    squares = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def matern(distance: Floats) -> Floats:
    """Matérn 5/2: twice differentiable, as communication over nodes and GPUs is but for noise."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1 + scaled + scaled * scaled / 3) * np.exp(-scaled))
