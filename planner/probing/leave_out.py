"""Error by leaving probes out: each is predicted from the others, inside their range and beyond it apart.

A probe is a configuration with all its repeats. Where several share the most nodes or the largest local batch, no
single one of them lies beyond the rest, so these are left out together as well: that is what extrapolation costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Literal, NamedTuple

import numpy as np

from planner.columns import Ints, Prediction, Quantiles
from planner.models import MeasuredRows, StepTimeModel, spread_subset
from planner.probing.baselines import forest, physical

FEWEST_PROBES = 3
MOST_REFITS = 24  # with more probes than this, several are left out at a time
MANY_ROWS, FEW_REFITS = 60, 8  # refitting to many rows takes longer
MOST_ROWS = 120  # of one type
SEED = 0
SCAV = "scav"

Beyond = Literal["interpolation", "extrapolation"]
Model = Callable[[StepTimeModel, str, Ints], Prediction | None]


class HeldOut(NamedTuple):
    """One probe, and what a model said of it without having seen it."""

    model: str
    instance_type: str
    nodes: int
    gpu_batch: int
    beyond: Beyond
    measured_seconds: float
    predicted: Quantiles

    @property
    def error(self) -> float:
        return abs(self.predicted.p50 / self.measured_seconds - 1)

    @property
    def inside(self) -> bool:
        return self.predicted.p05 <= self.measured_seconds <= self.predicted.p95


class ErrorRow(NamedTuple):
    """Mean absolute percentage error (as a share) and how many probes lie inside their 90 % interval."""

    model: str
    beyond: Beyond
    probes: int
    error: float
    inside: int


def hold_out(model: StepTimeModel, *, baselines: bool = False) -> list[HeldOut]:
    """`model` is fitted; every probe is then left out of a fit like it. Baselines see the same rows."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # as in the fit itself
        return _hold_out(_trimmed(model), baselines)


def _hold_out(model: StepTimeModel, baselines: bool) -> list[HeldOut]:
    models: dict[str, Model] = {SCAV: _without}
    if baselines:
        models |= {"plain forest": forest, "physical form": physical}
    found: list[HeldOut] = []
    many = sum(len(rows) for rows in model.rows_.values()) > MANY_ROWS
    most = (FEW_REFITS if many else MOST_REFITS) // max(len(model.rows_), 1)
    for name, rows in model.rows_.items():
        for left_out in left_out_sets(rows, max(most, 2)):
            beyond = _beyond(rows, left_out)
            for label, predict in models.items():
                prediction = predict(model, name, left_out)
                if prediction is not None:
                    found += _held_out(label, name, rows.at(left_out), beyond, prediction)
    return found


def _without(model: StepTimeModel, name: str, left_out: Ints) -> Prediction:
    """What scav's model says of these rows, fitted to the others."""
    rows = model.rows_[name]
    kept = rows.at(np.delete(np.arange(len(rows)), left_out))
    return model.with_rows(name, kept).predict(model.measured(name).at(left_out))


def error_table(held_out: Sequence[HeldOut]) -> list[ErrorRow]:
    """Interpolation first, models in the order in which they were asked."""
    table = []
    for beyond in ("interpolation", "extrapolation"):
        for label in dict.fromkeys(row.model for row in held_out):
            rows = [row for row in held_out if (row.model, row.beyond) == (label, beyond)]
            if rows:
                error = float(np.mean([row.error for row in rows]))
                table.append(ErrorRow(label, beyond, len(rows), error, sum(row.inside for row in rows)))
    return table


def cross_validated_error(model: StepTimeModel) -> float | None:
    """None with too few probes to leave one out."""
    if sum(len(rows) for rows in model.rows_.values()) < FEWEST_PROBES:
        return None
    return mean_error(hold_out(model))


def mean_error(held_out: Sequence[HeldOut]) -> float | None:
    """Of scav's model over all probes left out, as a share."""
    errors = [row.error for row in held_out if row.model == SCAV]
    return float(np.mean(errors)) if errors else None


def _trimmed(model: StepTimeModel) -> StepTimeModel:
    """With some of many rows, always the same: their error hardly changes with more of them."""
    trimmed = copy(model)
    trimmed.rows_ = {name: spread_subset(rows, MOST_ROWS, SEED) for name, rows in model.rows_.items()}
    return trimmed


def left_out_sets(rows: MeasuredRows, most: int) -> list[Ints]:
    """Each row alone, or in `most` groups when there are more; then both ends that several rows share."""
    count = len(rows)
    group = np.random.default_rng(SEED).permutation(count) % most if count > most else np.arange(count)
    sets = [np.flatnonzero(group == number) for number in range(min(count, most))]
    for column in (rows.placements.nodes, rows.placements.gpu_batch):
        end = np.flatnonzero(column == column.max())
        if 1 < len(end) < count and not any(np.array_equal(end, known) for known in sets):
            sets.append(end)
    return sets


def _beyond(rows: MeasuredRows, left_out: Ints) -> list[Beyond]:
    """By whether a row lies outside what the rest spans in nodes or local batch."""
    kept = np.delete(np.arange(len(rows)), left_out)
    outside = np.full(len(left_out), not len(kept))
    for column in (rows.placements.nodes, rows.placements.gpu_batch):
        if len(kept):
            outside |= (column[left_out] < column[kept].min()) | (column[left_out] > column[kept].max())
    return ["extrapolation" if flag else "interpolation" for flag in outside.tolist()]


def _held_out(
    label: str, name: str, rows: MeasuredRows, beyond: Sequence[Beyond], prediction: Prediction
) -> Iterator[HeldOut]:
    columns = (rows.placements.nodes.tolist(), rows.placements.gpu_batch.tolist(), beyond, np.exp(rows.log_step))
    for nodes, gpu_batch, where, seconds, quantiles in zip(*columns, prediction.rows(), strict=True):
        yield HeldOut(label, name, nodes, gpu_batch, where, float(seconds), quantiles)
