"""Scav's step-time model on the node types of `regret_data`: fitted to the rows that were probed, asked for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from regret_data import Problem
from regret_methods import TYPICAL_STEP_SECONDS, StepModel
from step_time import measured, placements
from step_time_data import Group

from planner.models.step_time.node_type import NodeTypeModel, fit_node_types
from planner.models.step_time.rows import MeasuredRows
from planner.models.step_time.step_formula import Prior

Floats = NDArray[np.float64]

# Memory bandwidth of the node types' GPUs in GB/s (T4, V100, A100), which step times of unprobed types follow.
BANDWIDTH = {"aws": 320.0, "azure": 900.0, "dgx-ext": 1555.0}
TRANSFER_SD = 0.5  # of the logarithm: a factor of 1.7 is within the 90 % interval's reach
COLD_SD = 0.7


def scav_with(priors_of: Callable[[str], Sequence[Prior]]) -> StepModel:
    """Log seconds of every configuration and their standard deviation; `priors_of` an application, by its name."""

    def predict(problem: Problem, rows: Sequence[int]) -> tuple[Floats, Floats]:
        models = _fitted(problem, rows, priors_of(problem.app))
        means, sds = zip(*(_predicted(group, models) for group in problem.groups), strict=True)
        return np.concatenate(means), np.concatenate(sds)

    return predict


def _fitted(problem: Problem, rows: Sequence[int], priors: Sequence[Prior]) -> dict[str, NodeTypeModel]:
    found: dict[str, MeasuredRows] = {}
    start = 0
    for group in problem.groups:
        own = np.array([row - start for row in rows if start <= row < start + len(group)], dtype=np.int64)
        if len(own):
            found[group.cluster] = measured(group, own)
        start += len(group)
    hardware = {name: np.log2([BANDWIDTH[name]]) for name in found}
    return fit_node_types(found, dict.fromkeys(found, priors), hardware)


def _predicted(group: Group, models: dict[str, NodeTypeModel]) -> tuple[Floats, Floats]:
    """An unprobed node type is like the probed ones, but for the speed of its GPUs."""
    every = placements(group, np.arange(len(group)))
    if group.cluster in models:
        return models[group.cluster].log_step(every)
    if not models:
        speed = BANDWIDTH[group.cluster] / min(BANDWIDTH.values())
        return np.log(TYPICAL_STEP_SECONDS * group.gpu_batch / speed / group.gpu_batch.mean()), np.full(
            len(group), COLD_SD
        )
    found = [
        (mean + np.log(BANDWIDTH[name] / BANDWIDTH[group.cluster]), sd)
        for name, model in models.items()
        for mean, sd in [model.log_step(every)]
    ]
    means, sds = (np.array(column) for column in zip(*found, strict=True))
    return means.mean(axis=0), np.sqrt(means.var(axis=0) + (sds**2).mean(axis=0) + TRANSFER_SD**2)
