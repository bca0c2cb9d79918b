"""Predictions for millions of configurations from a few thousand: nodes by batch, and monotone in the batch.

Corrections learned near probes could make a larger batch look faster than a smaller one, by noise alone. The table's
log seconds are therefore pooled until they rise with the batch; between its knots they are interpolated, and outside
them the physical form continues with the last correction. Micro-steps enter through the physical form only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.columns import Floats, Ints
from planner.models.step_time.node_type import NodeTypeModel
from planner.models.step_time.rows import Placements

_BEYOND = 8.0  # the corrections are followed this many times below and above the probed batches
_PER_DOUBLING = 4


def tabulated(model: NodeTypeModel, placements: Placements) -> tuple[Floats, Floats]:
    """Median and standard deviation of log seconds; whole nodes of one type, so `nodes` tells the placements apart."""
    if not len(placements):
        return np.zeros(0), np.zeros(0)
    low, high = np.log2(max(1.0, model.gpu_batch.fewest / _BEYOND)), np.log2(model.gpu_batch.most * _BEYOND)
    exponents = np.arange(np.floor(low * _PER_DOUBLING), np.ceil(high * _PER_DOUBLING) + 1) / _PER_DOUBLING
    knots = np.unique(np.round(2.0**exponents)).astype(np.int64)
    _, first, line = np.unique(placements.nodes, return_index=True, return_inverse=True)
    lines = placements.at(np.repeat(first, len(knots)))
    grid = replace(lines, gpu_batch=np.tile(knots, len(first)), accumulation_steps=np.ones(len(lines), dtype=np.int64))
    median, sd = (column.reshape(len(first), len(knots)) for column in model.log_step(grid))
    median = np.stack([rising(row) for row in median])
    edge = np.clip(placements.gpu_batch, knots[0], knots[-1])
    inside = _interpolated(median, line.ravel(), knots, edge)
    at_edge = replace(placements, gpu_batch=edge, accumulation_steps=np.ones_like(edge))
    correction = inside - model.posterior.log_step(at_edge)
    # Beyond the table its doubt goes on growing as the model's does.
    beyond = model.doubt(placements) - model.doubt(at_edge)
    spread = np.sqrt(_interpolated(sd, line.ravel(), knots, edge) ** 2 + beyond)
    return model.posterior.log_step(placements) + correction, spread


def _interpolated(table: Floats, line: Ints, knots: Ints, batch: Ints) -> Floats:
    """Linear in the logarithm of the batch."""
    right = np.clip(np.searchsorted(knots, batch), 1, len(knots) - 1)
    left = right - 1
    share = np.log(batch / knots[left]) / np.log(knots[right] / knots[left])
    return np.asarray((1 - share) * table[line, left] + share * table[line, right])


def rising(values: Floats) -> Floats:
    """The nearest sequence that never falls: neighbours out of order are replaced by their mean."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(values).x)
