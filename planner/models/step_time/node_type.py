"""One job on one node type: the physical posterior, corrected near its probes, with an interval that was checked.

    log step = physical + (1 - h) · Gaussian process + h · random forest        h = 0.85 of how much the probes explain

Far from every probe both corrections vanish and the physical form stands alone, with the uncertainty of its
parameters. The forest sees all probed node types of the job together, told apart by their hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.models.step_time.gaussian_process import GaussianResidual, coordinates, fit_gaussian
from planner.models.step_time.intervals import conformal_stretch
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.rows import MeasuredRows, Placements
from planner.models.step_time.step_formula import Prior

FEWEST_FOREST_ROWS = 25  # with fewer, trees repeat single probes
FOREST_SHARE = 0.85
TREES = 60
LEAST_LEAF = 3
# How far the left-out scores of probes stretch an interval says little far away from all of them.
LEAST_STRETCH_AWAY = 1.25
SEED = 0


@dataclass(frozen=True, slots=True)
class NodeTypeModel:
    """Fitted: log seconds, and their standard deviation, of any placement on this node type."""

    posterior: Posterior
    gaussian: GaussianResidual
    forest: Any  # RandomForestRegressor; None with few rows
    hardware: Floats
    stretch: float
    nodes: tuple[int, int]  # fewest and most that were probed
    gpu_batch: tuple[int, int]

    def log_step(self, placements: Placements) -> tuple[Floats, Floats]:
        """Median and standard deviation of the logarithm."""
        physical = self.posterior.log_step(placements)
        where = coordinates(self.posterior, placements)
        near, left, before = self.gaussian.predict(where)
        correction = near
        if self.forest is not None:
            share = FOREST_SHARE * np.clip(1 - left / before, 0.0, 1.0)
            trees = self.forest.predict(forest_features(self.posterior, placements, self.hardware))
            correction = (1 - share) * near + share * trees
        # Probes nearby vouch for the physical parameters too.
        doubt = self.posterior.variance(placements) * np.clip(left / before, 0.05, 1.0)
        away = np.clip(left / before, 0.0, 1.0)
        stretch = self.stretch + away * max(LEAST_STRETCH_AWAY - self.stretch, 0.0)
        return physical + correction, stretch * np.sqrt(left + self.gaussian.noise(where) + doubt)

    def outside(self, placements: Placements) -> Flags:
        """Not between what was probed."""
        sides = ((placements.nodes, self.nodes), (placements.gpu_batch, self.gpu_batch))
        return np.asarray(np.any([(column < low) | (column > high) for column, (low, high) in sides], axis=0))

    def why_extrapolated(self, nodes: int, gpu_batch: int) -> str | None:
        """In words, where a configuration lies outside what was probed."""
        reasons = []
        for value, unit, (low, high) in ((nodes, "nodes", self.nodes), (gpu_batch, "samples per GPU", self.gpu_batch)):
            if value > high:
                reasons.append(f"{value} {unit}, probed up to {high}")
            if value < low:
                reasons.append(f"{value} {unit}, probed from {low} on")
        return "; ".join(reasons) or None


def fit_node_types(
    rows: Mapping[str, MeasuredRows], priors: Mapping[str, Sequence[Prior]], hardware: Mapping[str, Floats]
) -> dict[str, NodeTypeModel]:
    """Every probed node type of one job; `hardware` are columns of equal length that tell the types apart."""
    posteriors = {name: fit_posterior(rows[name], priors[name]) for name in sorted(rows)}
    forest = _fit_forest(rows, posteriors, hardware)
    models = {}
    for name, posterior in posteriors.items():
        gaussian = fit_gaussian(rows[name], posterior)
        models[name] = NodeTypeModel(
            posterior=posterior,
            gaussian=gaussian,
            forest=forest,
            hardware=hardware[name],
            stretch=conformal_stretch(rows[name], posterior, priors[name], gaussian),
            nodes=_ends(rows[name].placements.nodes),
            gpu_batch=_ends(rows[name].placements.gpu_batch),
        )
    return models


def _ends(column: Ints) -> tuple[int, int]:
    return int(column.min()), int(column.max())


def _fit_forest(
    rows: Mapping[str, MeasuredRows], posteriors: Mapping[str, Posterior], hardware: Mapping[str, Floats]
) -> Any:
    if sum(len(group) for group in rows.values()) < FEWEST_FOREST_ROWS:
        return None
    from sklearn.ensemble import RandomForestRegressor  # takes a second to import

    inputs = [forest_features(posteriors[name], rows[name].placements, hardware[name]) for name in posteriors]
    errors = [rows[name].log_step - posteriors[name].log_step(rows[name].placements) for name in posteriors]
    weights = [rows[name].weight for name in posteriors]
    forest = RandomForestRegressor(TREES, max_features=0.7, min_samples_leaf=LEAST_LEAF, random_state=SEED)
    forest.fit(np.concatenate(inputs), np.concatenate(errors), np.concatenate(weights))
    _answer_medians(forest, np.concatenate(inputs), np.concatenate(errors))
    return forest


def _answer_medians(forest: Any, inputs: Floats, errors: Floats) -> None:
    """Each leaf answers the median of its rows, not their mean: one window on a busy machine must not move it."""
    order = np.argsort(errors, kind="stable")
    for tree, leaf in zip(forest.estimators_, forest.apply(inputs[order]).T, strict=True):
        by_leaf = np.argsort(leaf, kind="stable")
        names, first, count = np.unique(leaf[by_leaf], return_index=True, return_counts=True)
        inside = errors[order][by_leaf]
        tree.tree_.value[names, 0, 0] = (inside[first + (count - 1) // 2] + inside[first + count // 2]) / 2


def forest_features(posterior: Posterior, placements: Placements, hardware: Floats) -> Floats:
    """Workers in all and per node, data per step, physical step and communication; then the type's resources."""
    workers = np.log2(placements.workers)
    crowd = np.log2(placements.workers / placements.nodes)
    data = np.log2(placements.workers * placements.gpu_batch * placements.accumulation_steps)
    physical = (posterior.sync_elasticity(placements), posterior.log_step(placements))
    shape = np.stack((workers, crowd, data, *physical), axis=1)
    return np.concatenate((placements.features(), shape, np.tile(hardware, (len(placements), 1))), axis=1)
