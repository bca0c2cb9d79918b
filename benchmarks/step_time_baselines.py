"""What scav's step-time model is compared with: a plain forest, Pollux's form, the ring form, a forest on top of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from sklearn.ensemble import RandomForestRegressor
from step_time_data import Group

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Z95 = 1.6449
TREES = 100
FORMS = {"pollux": 7, "ring": 8}


def predict(model: str, group: Group, fit: Ints, test: Ints) -> tuple[Floats, Floats]:
    """Log seconds of the test rows, and the half-width of their nominal 90 % interval."""
    target = np.log(group.step_seconds)
    form, _, forest = model.partition("+")
    base = np.zeros(len(group)) if form == "forest" else fitted_form(form, group, fit)
    if form != "forest" and not forest:
        errors = target[fit] - base[fit]
        return base[test], np.full(len(test), Z95 * float(np.std(errors)))
    trees = RandomForestRegressor(TREES, min_samples_leaf=1, max_features=0.8, oob_score=True, random_state=0)
    inputs = features(group)
    trees.fit(inputs[fit], (target - base)[fit])
    errors = np.abs((target - base)[fit] - trees.oob_prediction_)
    errors = errors[np.isfinite(errors)]
    return base[test] + trees.predict(inputs[test]), np.full(len(test), float(np.quantile(errors, 0.9)))


def features(group: Group) -> Floats:
    columns = (group.nodes, group.workers, group.most_per_node, group.gpu_batch, group.gpu_batch * group.workers)
    return np.log(np.stack(columns, axis=1).astype(float))


def fitted_form(form: str, group: Group, fit: Ints) -> Floats:
    """Log seconds of every row from the form fitted to some, robustly, from three starts."""
    target = np.log(group.step_seconds)
    one = float(np.median(group.step_seconds[fit]))
    scale = np.full(FORMS[form], one)
    scale[1] = one / float(np.median(group.gpu_batch[fit]))

    def log_seconds(parameters: Floats, rows: Ints) -> Floats:
        return _log_seconds(form, np.exp(np.minimum(parameters[:-1], 50)) * scale[:-1], parameters[-1], group, rows)

    def errors(parameters: Floats) -> Floats:
        return log_seconds(parameters, fit) - target[fit]

    low, high = np.full(FORMS[form], -12.0), np.full(FORMS[form], 3.0)
    low[-1], high[-1] = 1.0, 10.0
    starts = [np.r_[np.full(FORMS[form] - 1, start), 2.0] for start in (-1.0, -2.5, -5.0)]
    found = [least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=0.1) for start in starts]
    best = min(found, key=lambda result: float(result.cost))
    return log_seconds(best.x, np.arange(len(group)))


def _log_seconds(form: str, scales: Floats, overlap: float, group: Group, rows: Ints) -> Floats:
    nodes, workers, batch = (column[rows].astype(float) for column in (group.nodes, group.workers, group.gpu_batch))
    compute = scales[0] + scales[1] * batch
    if form == "pollux":
        inside = scales[2] + scales[3] * np.maximum(workers - 2, 0)
        between = scales[4] + scales[5] * np.maximum(workers - 2, 0)
        sync = np.where(nodes > 1, between, np.where(workers > 1, inside, 0.0))
    else:
        inside = scales[2] + scales[3] * (1 - 1 / group.most_per_node[rows])
        between = scales[4] + scales[5] * (nodes - 1) / nodes + scales[6] * np.log2(nodes)
        sync = np.where(group.most_per_node[rows] > 1, inside, 0.0) + np.where(nodes > 1, between, 0.0)
    longer = np.maximum(compute, sync)
    shorter = np.minimum(compute, sync)
    return np.asarray(np.log(longer) + np.log1p((shorter / longer) ** overlap) / overlap)
