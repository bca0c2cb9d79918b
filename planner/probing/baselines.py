"""What scav's step-time model has to beat on the same rows: trees without physics, and physics without doubt."""

from __future__ import annotations

import warnings

import numpy as np

from planner.columns import Floats, Ints, Prediction
from planner.inputs import Gpu, InstanceType, Workload
from planner.models import TERMS, StepTerms, StepTimeModel

TREES = 50
SEED = 0
FEWEST_ROWS = 2  # to a single row there is nothing to compare a tree's answer with
FURTHEST = 5.0  # multipliers of the physical terms stay within e^-5 and e^5


def forest(model: StepTimeModel, name: str, left_out: Ints) -> Prediction | None:
    """A random forest on log step time over all types; the interval from its out-of-bag errors."""
    from sklearn.ensemble import RandomForestRegressor

    inputs, targets = [], []
    for other, rows in model.rows_.items():
        kept = np.delete(np.arange(len(rows)), left_out) if other == name else np.arange(len(rows))
        inputs.append(_features(model, other)[kept])
        targets.append(rows.log_step[kept])
    known, seconds = np.concatenate(inputs), np.concatenate(targets)
    if len(seconds) < FEWEST_ROWS:
        return None
    trees = RandomForestRegressor(TREES, oob_score=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows that every tree has seen: there are none with 50 trees
        trees.fit(known, seconds)
    error = float(np.quantile(np.abs(seconds - trees.oob_prediction_), 0.9))
    median = np.exp(trees.predict(_features(model, name)[left_out]))
    return _within(median, error)


def _features(model: StepTimeModel, name: str) -> Floats:
    """Workers, data per step and resources, in doublings."""
    here = model.measured(name)
    columns = (here.nodes, here.gpus, here.gpu_batch, here.accumulation_steps, here.global_batch)
    resources = hardware_features(here.instance_type, here.gpu, model.workload)
    shape = np.log2(np.stack(columns, axis=1).astype(float))
    return np.concatenate((shape, np.tile(resources, (len(shape), 1))), axis=1)


def hardware_features(instance_type: InstanceType, gpu: Gpu, workload: Workload) -> Floats:
    """Job and resources, in doublings."""
    peak = gpu.peak_flops_per_second(workload.precision) or 1.0
    resources = (peak, gpu.memory_bandwidth_gb_per_second, gpu.memory_gib, instance_type.vcpu / instance_type.gpu_count)
    links = (instance_type.network_baseline_gbps, instance_type.network_peak_gbps, instance_type.gpu_link_gb_per_second)
    demands = (workload.flops_per_sample, workload.gradient_bytes_or_default, workload.activation_bytes_per_sample)
    return np.asarray(np.log2(np.array((*resources, *links, *demands))))


def physical(model: StepTimeModel, name: str, left_out: Ints) -> Prediction:
    """The data sheet's ring form with a multiplier on each term, by least squares on one type's rows alone."""
    from scipy.optimize import least_squares

    rows, every = model.rows_[name], model.terms(model.measured(name)).seconds
    kept = np.delete(np.arange(len(rows)), left_out)
    terms, target = StepTerms(every[kept]), rows.log_step[kept]

    def errors(multipliers: Floats) -> Floats:
        return np.asarray(np.log(terms.step(multipliers)[0]) - target)

    multipliers, error = np.zeros(len(TERMS)), 0.0
    if len(kept):  # else the data sheet as it stands
        multipliers = least_squares(errors, multipliers, bounds=(-FURTHEST, FURTHEST)).x
        error = 1.645 * float(np.sqrt((errors(multipliers) ** 2).sum() / max(len(kept) - len(TERMS), 1)))
    return _within(StepTerms(every[left_out]).step(multipliers)[0], error)


def _within(median: Floats, log_error: float) -> Prediction:
    spread = np.exp(log_error)
    return Prediction(p05=median / spread, p50=median, p95=median * spread, extrapolated=np.zeros(len(median), bool))
