"""Error by leaving probes out: each is predicted from the others, inside their range and beyond it apart.

A probe is a configuration with all its repeats. Where several share the most nodes or the largest local batch, no
single one of them lies beyond the rest, so these are left out together as well: that is what extrapolation costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Literal, NamedTuple

import numpy as np

from planner.columns import Floats, Ints, Prediction, Quantiles
from planner.models import (
    RESIDUAL_SD,
    MeasuredRows,
    Multipliers,
    StepTerms,
    StepTimeModel,
    TypedRows,
    catalogue_priors,
    fit_node_types,
    hardware_features,
    pooled_priors,
    spread_subset,
    tabulated,
    unprobed,
)
from planner.probing.baselines import forest, physical
from planner.probing.measured_type import MeasuredType, data_sheet_terms

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
    refits = Refits(model)
    models: dict[str, Model] = {SCAV: lambda _, name, left_out: refits.predict(name, left_out)}
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
    for nodes, gpu_batch, kind, seconds, quantiles in zip(*columns, prediction.rows(), strict=True):
        yield HeldOut(label, name, nodes, gpu_batch, kind, float(seconds), quantiles)


class Refits:
    """scav's model without some rows of one type. The other types, which only lend it their prior, stay as they are.

    The forest of a job with many rows then sees the rows of this type only.
    """

    def __init__(self, model: StepTimeModel) -> None:
        self._model = model
        self._names = list(model.rows_)
        self._lent: dict[str, Multipliers] = {}

    def predict(self, name: str, left_out: Ints) -> Prediction:
        model, rows = self._model, self._model.rows_[name]
        measured = MeasuredType(model, name)
        kept = rows.at(np.delete(np.arange(len(rows)), left_out))
        asked = rows.placements.at(left_out)
        outside = np.ones(len(left_out), dtype=bool)
        if not len(kept):
            terms = StepTerms(measured.terms.seconds[left_out])
            step, slope = terms.step(self._lent_to(name).mean)
            variance = np.einsum("ij,jk,ik->i", slope, self._lent_to(name).covariance, slope)
            return Prediction.log_normal(step, np.sqrt(variance + RESIDUAL_SD**2), outside)
        lent, links = self._lent_to(name), model.links_[name]
        known = catalogue_priors(kept, measured.instance_type, measured.gpu, model.workload, lent, links)
        priors = pooled_priors(model.history.get(name, ()), known)
        hardware = hardware_features(measured.instance_type, measured.gpu, model.workload)
        fitted = fit_node_types({name: kept}, {name: priors}, {name: hardware})[name]
        median, sd = tabulated(fitted, asked, kept.placements.gpu_batch)
        return Prediction.log_normal(np.exp(median), sd, outside)

    def _lent_to(self, name: str) -> Multipliers:
        """What the other types say of this one."""
        if name not in self._lent:
            typed = _typed_rows(self._model).without(self._names.index(name))
            self._lent[name] = unprobed(typed, len(self._names))
        return self._lent[name]


def _typed_rows(model: StepTimeModel) -> TypedRows:
    groups = list(model.rows_.items())

    def column(attribute: str) -> Floats:
        return np.concatenate([getattr(rows, attribute) for _, rows in groups])

    return TypedRows(
        terms=StepTerms(np.concatenate([data_sheet_terms(model, name).seconds for name, _ in groups])),
        type_index=np.repeat(np.arange(len(groups)), [len(rows) for _, rows in groups]),
        log_step=column("log_step"),
        log_work=column("log_work"),
        weight=column("weight"),
    )
