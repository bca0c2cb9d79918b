"""What the physical form misses near the probes: a Gaussian process on log(measured / physical) that returns to zero.

Four sources of error, each with a size that the measurements choose: communication that deviates smoothly over nodes,
GPUs and batch (felt as far as the step waits for communication); work that deviates over GPUs per node and batch; a
placement's own luck; noise of a window, of work and of communication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from planner.columns import Floats
from planner.models.step_time.posterior import Posterior, spread_subset
from planner.models.step_time.rows import MeasuredRows, Placements

# Log sizes of: sync, work, placement, work noise, sync noise; and how far a job may be from them.
SIZE_MEAN = np.log([0.12, 0.05, 0.05, 0.03, 0.05])
SIZE_SD = 0.6
# Distances over which deviations are alike, in doublings: nodes, most_per_node, GPUs per other node, batch.
SYNC_REACH = np.array([1.2, 1.8, 1.8, 3.0])
WORK_REACH = np.array([np.inf, 1.5, np.inf, 2.0])
PLACEMENT_REACH = 2.0
LEAST_ELASTICITY = 0.5  # communication that seems hidden still shows now and then
TAIL = 4.0  # degrees of freedom of a Student-t: how soon an odd window loses its say
MOST_ROWS = 600
ROWS_FOR_SIZES = 250
SEED = 1


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where rows are, and how much of a deviation of communication they feel."""

    position: Floats
    elasticity: Floats

    def parts(self, other: Coordinates) -> tuple[Floats, Floats, Floats]:
        """Correlations with other rows, by source."""
        sync = matern(distances(self.position / SYNC_REACH, other.position / SYNC_REACH))
        work = matern(distances(self.position / WORK_REACH, other.position / WORK_REACH))
        same = distances(self.position[:, :3], other.position[:, :3]) < 1e-5
        batch = np.abs(self.position[:, 3][:, None] - other.position[:, 3]) / PLACEMENT_REACH
        return (
            sync * np.multiply.outer(self.elasticity, other.elasticity),
            work * np.multiply.outer(1 - self.elasticity, 1 - other.elasticity),
            np.where(same, matern(batch), 0.0),
        )


@dataclass(frozen=True, slots=True)
class GaussianResidual:
    """Fitted: predicts the mean, the remaining and the original variance of the deviation, and the noise."""

    at: Coordinates
    sizes: Floats  # log standard deviations, in the order of SIZE_MEAN
    factor: Floats  # Cholesky factor of the covariance of the rows
    solved: Floats
    repeat_variance: float

    def predict(self, where: Coordinates) -> tuple[Floats, Floats, Floats]:
        """Mean, variance left, variance before any measurement."""
        from scipy.linalg import solve_triangular

        covariance = _sum(where.parts(self.at), self.sizes)
        explained = solve_triangular(self.factor, covariance.T, lower=True, check_finite=False)
        before = _before(where, self.sizes)
        left = np.maximum(before - np.einsum("ij,ij->j", explained, explained), 1e-3 * before)
        return covariance @ self.solved, left, before

    def covariance(self, where: Coordinates) -> Floats:
        """Of the deviations of rows with one another, before any measurement."""
        return _sum(where.parts(where), self.sizes)

    def noise(self, where: Coordinates) -> Floats:
        return _noise(where, self.sizes) + self.repeat_variance


def coordinates(posterior: Posterior, placements: Placements) -> Coordinates:
    felt = np.maximum(posterior.sync_elasticity(placements), LEAST_ELASTICITY)
    return Coordinates(placements.features(), np.where(placements.workers > 1, felt, 0.0))


def fit_gaussian(rows: MeasuredRows, posterior: Posterior) -> GaussianResidual:
    """Of log measured minus the posterior's prediction."""
    some = spread_subset(rows, ROWS_FOR_SIZES, SEED)
    sizes = _fit_sizes(some, posterior)
    kept = spread_subset(rows, MOST_ROWS, SEED)
    at = coordinates(posterior, kept.placements)
    error = kept.log_step - posterior.log_step(kept.placements)
    covariance = _sum(at.parts(at), sizes)
    factor, solved, _ = solve_robustly(covariance, _row_noise(kept, at, sizes), error, np.ones(len(kept)), passes=2)
    return GaussianResidual(at, sizes, factor, solved, kept.repeat_variance)


def _fit_sizes(rows: MeasuredRows, posterior: Posterior) -> Floats:
    """By marginal likelihood with a prior; odd windows are weighted down in between."""
    at = coordinates(posterior, rows.placements)
    error = rows.log_step - posterior.log_step(rows.placements)
    parts = at.parts(at)
    sizes, trust = SIZE_MEAN, np.ones(len(rows))
    for _ in range(2):
        misfit = partial(_misfit, parts=parts, rows=rows, at=at, error=error, trust=trust)
        sizes = descend(misfit, sizes)
        trust = solve_robustly(_sum(parts, sizes), _row_noise(rows, at, sizes), error, trust, passes=1)[2]
    return sizes


def _misfit(
    sizes: Floats,
    parts: tuple[Floats, Floats, Floats],
    rows: MeasuredRows,
    at: Coordinates,
    error: Floats,
    trust: Floats,
) -> float:
    """Minus the log posterior of the sizes."""
    from scipy.linalg import cholesky, solve_triangular

    covariance = _sum(parts, sizes)
    covariance[np.diag_indices_from(covariance)] += _row_noise(rows, at, sizes) / trust
    factor = cholesky(covariance, lower=True, check_finite=False, overwrite_a=True)
    white = solve_triangular(factor, error, lower=True, check_finite=False)
    far = (sizes - SIZE_MEAN) / SIZE_SD
    return float(white @ white / 2 + np.log(np.diag(factor)).sum() + far @ far / 2)


def descend(misfit: Callable[[Floats], float], start: Floats) -> Floats:
    """Coordinate by coordinate, twice, with halved steps: a few dozen evaluations, no gradients."""
    best, lowest = start, misfit(start)
    for step in (0.5, 0.25):
        for index in range(len(start)):
            for direction in (step, -step):
                before = lowest
                while True:
                    trial = best.copy()
                    trial[index] += direction
                    value = misfit(trial)
                    if value >= lowest:
                        break
                    best, lowest = trial, value
                if lowest < before:
                    break
    return best


def solve_robustly(
    covariance: Floats, noise: Floats, error: Floats, trust: Floats, passes: int
) -> tuple[Floats, Floats, Floats]:
    """Cholesky factor, solution, and how far each row is trusted after its own share of noise is seen."""
    from scipy.linalg import cho_solve, cholesky

    for remaining in range(passes, 0, -1):
        factor = cholesky(covariance + np.diag(noise / trust), lower=True, check_finite=False)
        solved = cho_solve((factor, True), error, check_finite=False)
        seen = (solved * noise / trust) ** 2 / noise
        now = np.minimum(1.0, (TAIL + 1) / (TAIL + seen))
        if remaining > 1 or passes == 1:
            trust = now
    return factor, solved, trust


def _row_noise(rows: MeasuredRows, at: Coordinates, sizes: Floats) -> Floats:
    return np.asarray((_noise(at, sizes) + rows.spread) / rows.weight)


def _sum(parts: tuple[Floats, Floats, Floats], sizes: Floats) -> Floats:
    sync, work, placement = np.exp(2 * sizes[:3])
    return np.asarray(sync * parts[0] + work * parts[1] + placement * parts[2])


def _before(where: Coordinates, sizes: Floats) -> Floats:
    sync, work, placement = np.exp(2 * sizes[:3])
    return np.asarray(sync * where.elasticity**2 + work * (1 - where.elasticity) ** 2 + placement)


def _noise(where: Coordinates, sizes: Floats) -> Floats:
    work, sync = np.exp(2 * sizes[3:])
    return np.asarray(work + sync * where.elasticity**2)


def distances(one: Floats, other: Floats) -> Floats:
    squares = (one * one).sum(axis=1)[:, None] + (other * other).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def matern(distance: Floats) -> Floats:
    """Matérn 5/2: twice differentiable, as step times over batch and workers are but for noise."""
    scaled = np.sqrt(5.0) * distance
    return np.asarray((1 + scaled + scaled * scaled / 3) * np.exp(-scaled))
