"""A random forest beside the correction, where the job's own rows say that it knows more.

It learns log(measured / physical), too, and jumps where kernels or machines do. Whether it joins is decided by rows
that its trees have not seen (out of bag) against the correction's errors when each row is left out: it gets the share
that makes their blend err least, or none unless the gain is larger than its standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns import Floats
from planner.models.step_time.correction import NOISE, Correction
from planner.models.step_time.posterior import Posterior
from planner.models.step_time.rows import SEED, MeasuredRows, Placements, spread_indices

FEWEST_ROWS = 25  # with fewer, trees repeat single probes
TREES = 60
LEAST_LEAF = 3
OUTLIER = 5.0  # errors beyond so many times the usual one are taken for that: one busy window must not decide


@dataclass(frozen=True, slots=True)
class Forest:
    trees: Any  # RandomForestRegressor
    share: float  # of the correction, next to rows

    def predict(self, posterior: Posterior, placements: Placements) -> Floats:
        return np.asarray(self.trees.predict(_features(posterior, placements)))


def fit_forest(rows: MeasuredRows, posterior: Posterior, correction: Correction) -> Forest | None:
    """None with few rows, or where trees bring nothing."""
    if len(rows) < FEWEST_ROWS:
        return None
    from sklearn.ensemble import RandomForestRegressor  # takes a second to import

    error = rows.log_step - posterior.log_step(rows.placements)
    trees = RandomForestRegressor(
        TREES, max_features=0.7, min_samples_leaf=LEAST_LEAF, oob_score=True, random_state=SEED
    )
    trees.fit(_features(posterior, rows.placements), _tamed(error, NOISE))
    both = spread_indices(len(rows))  # the correction sees no more than these
    near = correction.left_out(np.arange(len(both)))[0]
    share = blend_share(near, (error - trees.oob_prediction_)[both], NOISE)
    return Forest(trees, share) if share > 0 else None


def blend_share(errors: Floats, others: Floats, usual: float = 0.0) -> float:
    """How much of the second to take so that the blend errs least; none if the gain may be luck."""
    errors, others = _tamed(errors, usual), _tamed(others, usual)
    apart = errors - others
    share = float(np.clip(errors @ apart / max(float(apart @ apart), 1e-12), 0.0, 1.0))
    gain = errors**2 - (errors - share * apart) ** 2
    return share if gain.mean() > gain.std() / np.sqrt(len(gain)) else 0.0


def _tamed(errors: Floats, usual: float) -> Floats:
    """`usual`: the least that is taken for a usual error, however right most of them are."""
    most = OUTLIER * max(usual, float(np.median(np.abs(errors))))
    return np.clip(errors, -most, most)


def _features(posterior: Posterior, placements: Placements) -> Floats:
    """Workers in all and per node, data per step, physical step and its share of work."""
    workers = np.log2(placements.workers)
    crowd = np.log2(placements.workers / placements.nodes)
    data = np.log2(placements.workers * placements.gpu_batch * placements.accumulation_steps)
    physical = (posterior.work_share(placements), posterior.log_step(placements))
    return np.column_stack((placements.features(), workers, crowd, data, *physical))
