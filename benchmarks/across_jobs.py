"""What a simple law misses over many jobs at once: features of job, hardware and configuration, one row per run.

For stores in which every run is another model or sequence length, so that no job has enough rows for a form of its own
(large language models at a constant share of peak flops, for one). Half a Gaussian process, which finds the runs that
fit nothing else and takes their say away, half a random forest that trusts them as little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns import Floats
from planner.models.step_time.correction import TAIL, distances, matern

SIZE_MEAN = np.log([0.2, 0.03])  # of the deviation and of the noise
SIZE_SD = 0.6
ROUNDS = 4
TREES = 200
FOREST_SHARE = 0.5
SEED = 0


@dataclass(frozen=True, slots=True)
class AcrossJobs:
    """Fitted: log(measured / law) for rows of features, with its standard deviation."""

    features: Floats
    reach: Floats
    centre: float
    sizes: Floats
    factor: Floats
    solved: Floats
    forest: Any  # RandomForestRegressor

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        from scipy.linalg import solve_triangular

        deviation, noise = np.exp(2 * self.sizes)
        covariance = deviation * matern(distances(features / self.reach, self.features / self.reach))
        explained = solve_triangular(self.factor, covariance.T, lower=True)
        left = np.maximum(deviation - np.einsum("ij,ij->j", explained, explained), 0.0)
        near = self.centre + covariance @ self.solved
        trees = self.forest.predict(features)
        return (1 - FOREST_SHARE) * near + FOREST_SHARE * trees, np.sqrt(left + noise)


def fit_across_jobs(features: Floats, log_ratio: Floats, reach: Floats) -> AcrossJobs:
    """`reach`: over which difference in each feature runs stop resembling each other. Rows in any order."""
    from scipy.linalg import cholesky, solve_triangular
    from sklearn.ensemble import RandomForestRegressor

    order = np.lexsort((log_ratio, *features.T))
    features, log_ratio = features[order], log_ratio[order]
    centre = float(np.median(log_ratio))
    error = log_ratio - centre
    alike = matern(distances(features / reach, features / reach))
    sizes, trust = SIZE_MEAN, np.ones(len(error))

    def misfit(trial: Floats) -> float:
        deviation, noise = np.exp(2 * trial)
        factor = cholesky(deviation * alike + np.diag(noise / trust), lower=True)
        white = solve_triangular(factor, error, lower=True)
        far = (trial - SIZE_MEAN) / SIZE_SD
        return float(white @ white / 2 + np.log(np.diag(factor)).sum() + far @ far / 2)

    for _ in range(ROUNDS):
        sizes = descend(misfit, sizes)
        deviation, noise = np.exp(2 * sizes)
        trust = solve_robustly(deviation * alike, np.full(len(error), noise), error, trust)[2]
    factor, solved, _ = solve_robustly(deviation * alike, np.full(len(error), noise), error, trust)
    forest = RandomForestRegressor(TREES, random_state=SEED).fit(features, log_ratio, trust**2)
    return AcrossJobs(features, reach, centre, sizes, factor, solved, forest)


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


def solve_robustly(covariance: Floats, noise: Floats, error: Floats, trust: Floats) -> tuple[Floats, Floats, Floats]:
    """Cholesky factor, solution, and how far each row is trusted after its own share of noise is seen."""
    from scipy.linalg import cho_solve, cholesky

    factor = cholesky(covariance + np.diag(noise / trust), lower=True, check_finite=False)
    solved = cho_solve((factor, True), error, check_finite=False)
    seen = (solved * noise / trust) ** 2 / noise
    return factor, solved, np.minimum(1.0, (TAIL + 1) / (TAIL + seen))
