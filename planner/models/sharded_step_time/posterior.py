"""The form's parameters, given what was measured: the most probable ones, and how far others would do as well.

Errors are of log seconds, normal but for outliers. Beyond a few dozen rows more of them do not make the form truer, so
their weight is capped: what it misses everywhere must not be taken for knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.models.sharded_step_time.formula import seconds, slope_table
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.prior import ShardedPrior
from planner.models.step_time.rows import spread_indices

MOST_WEIGHT = 60.0  # rows that a fit counts as
_NOISE_BELIEF = 6.0  # the prior's noise counts as so many rows
_ROUNDS = 4
MOST_ROWS = 240  # of which they are counted, the same every time
SEED = 0
_OUTLIER = 2.0  # standard deviations, from where an error counts linearly
_LEAST_SD = 0.003


@dataclass(frozen=True, slots=True)
class StepRows:
    """What was measured; `weight` counts a row fully or less."""

    layout: Layout
    hardware: Hardware
    log_step: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.log_step)

    def at(self, rows: Ints | Flags) -> StepRows:
        return StepRows(self.layout.at(rows), self.hardware.at(rows), self.log_step[rows], self.weight[rows])


def joined_rows(groups: Sequence[StepRows]) -> StepRows:
    """Those of several instance types."""
    sizes = [len(group) for group in groups]
    return StepRows(
        _joined([group.layout for group in groups], sizes),
        _joined([group.hardware for group in groups], sizes),
        np.concatenate([group.log_step for group in groups]),
        np.concatenate([group.weight for group in groups]),
    )


def merged_rows(rows: StepRows) -> StepRows:
    """Each configuration once, with its mean: what the form misses of it, it misses every time that it is measured."""
    columns = [
        np.broadcast_to(getattr(source, field.name), len(rows))
        for source in (rows.layout, rows.hardware)
        for field in fields(source)
    ]
    _, first, kind = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    kind = kind.ravel()
    total, count = np.bincount(kind, weights=rows.weight), np.bincount(kind)
    mean = np.bincount(kind, weights=rows.weight * rows.log_step) / total
    return StepRows(rows.layout.at(first), rows.hardware.at(first), mean, total / count)


_Columns = TypeVar("_Columns", Layout, Hardware)


def _joined(groups: Sequence[_Columns], sizes: Sequence[int]) -> _Columns:
    columns = {
        field.name: np.concatenate(
            [np.broadcast_to(getattr(group, field.name), size) for group, size in zip(groups, sizes, strict=True)]
        )
        for field in fields(groups[0])
    }
    return type(groups[0])(**columns)


@dataclass(frozen=True, slots=True)
class ShardedPosterior:
    """Normal around `theta`; `noise_sd` is what the form misses of single rows."""

    theta: Floats
    covariance: Floats
    noise_sd: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """The form's answer: log seconds, their slopes (rows, parameters), and the share of a step that is done once."""

    log_step: Floats
    slope: Floats
    once_share: Floats


def without_rows(prior: ShardedPrior) -> ShardedPosterior:
    return ShardedPosterior(prior.mean, np.diag(prior.sd**2), prior.noise_sd)


def fit_posterior(rows: StepRows, prior: ShardedPrior) -> ShardedPosterior:
    """Alternates between the parameters and how much the form misses."""
    from scipy.optimize import least_squares

    if not len(rows):
        return without_rows(prior)
    rows = _thinned(merged_rows(rows))
    weight = rows.weight * min(1.0, MOST_WEIGHT / rows.weight.sum())
    theta, noise, scale = prior.mean, prior.noise_sd, prior.noise_sd / np.sqrt(weight)
    for _ in range(_ROUNDS):
        given = (rows, prior, scale)
        found = least_squares(_residuals, theta, jac=_jacobian, args=given, method="lm", max_nfev=40)
        theta = np.asarray(found.x)
        error = rows.log_step - log_step_of(theta, rows.layout, rows.hardware)
        noise = _noise(error, weight, prior)
        scale = noise / np.sqrt(weight)
    curvature = _jacobian(theta, rows, prior, scale)
    return ShardedPosterior(theta, np.asarray(np.linalg.inv(curvature.T @ curvature), dtype=np.float64), noise)


def _thinned(rows: StepRows) -> StepRows:
    """Some of many rows, the same ones every time."""
    return rows if len(rows) <= MOST_ROWS else rows.at(spread_indices(len(rows), MOST_ROWS, SEED))


def _noise(error: Floats, weight: Floats, prior: ShardedPrior) -> float:
    """Between the prior's and what is left of the errors, each counted as no more than an outlier."""
    limit = 3.0 * float(np.median(np.abs(error))) + _LEAST_SD
    square = weight @ np.minimum(np.abs(error), limit) ** 2
    return float(np.sqrt((_NOISE_BELIEF * prior.noise_sd**2 + square) / (_NOISE_BELIEF + weight.sum())))


def _residuals(theta: Floats, rows: StepRows, prior: ShardedPrior, scale: Floats) -> Floats:
    error = log_step_of(theta, rows.layout, rows.hardware) - rows.log_step
    return np.concatenate((_tamed(error / scale), (theta - prior.mean) / prior.sd))


def _jacobian(theta: Floats, rows: StepRows, prior: ShardedPrior, scale: Floats) -> Floats:
    at = predicted(theta, rows.layout, rows.hardware)
    error = (at.log_step - rows.log_step) / scale
    return np.concatenate((at.slope * (_taming(error) / scale)[:, None], np.diag(1.0 / prior.sd)))


def _tamed(error: Floats) -> Floats:
    """Its square grows like the square of small errors, and like the size of large ones."""
    size = np.abs(error) / _OUTLIER
    return np.asarray(np.sign(error) * _OUTLIER * np.sqrt(2.0 * (np.sqrt(1.0 + size**2) - 1.0)))


def _taming(error: Floats) -> Floats:
    """The derivative of that."""
    size = np.maximum(np.abs(error) / _OUTLIER, 1e-6)
    root = np.sqrt(1.0 + size**2)
    return np.asarray(size / root / np.sqrt(2.0 * (root - 1.0)))


def log_step_of(theta: Floats, layout: Layout, hardware: Hardware) -> Floats:
    at = seconds(theta, layout, hardware)
    step: Floats = np.asarray((layout.accumulation - 1.0) * at.again.value + at.once.value)
    return np.log(step)


def predicted(theta: Floats, layout: Layout, hardware: Hardware) -> Predicted:
    at, more = seconds(theta, layout, hardware, slopes=True), np.asarray(layout.accumulation) - 1.0
    whole = at.again * more + at.once
    step = np.asarray(whole.value)
    slope = slope_table(whole, len(step)) / step[:, None]
    return Predicted(np.log(step), slope, np.asarray(at.once.value / step))
