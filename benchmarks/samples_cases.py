"""Questions about samples to the target: some points of a curve are known, others are asked for."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from mlperf import Curve

from planner.columns import Prediction
from planner.models.convergence.laws import Beliefs
from planner.models.convergence.model import ConvergenceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Points given, and those to be predicted from them."""

    split: str
    benchmark: str
    known: Curve
    asked: Curve


def cases_of(curves: Mapping[str, Curve], world: str = "") -> Iterator[Case]:
    """Each batch size from all others; every larger one from the two smallest."""
    for benchmark, curve in curves.items():
        for i, point in enumerate(curve):
            known = curve[:i] + curve[i + 1 :]
            yield Case(split=f"{world}leave_one_out", benchmark=benchmark, known=known, asked=(point,))
        yield Case(split=f"{world}two_smallest", benchmark=benchmark, known=curve[:2], asked=curve[2:])


def runs_of(curve: Curve) -> list[tuple[float, float]]:
    return [(float(point.batch), run) for point in curve for run in point.runs]


def predicted(case: Case, beliefs: Beliefs) -> Prediction:
    batches = np.array([point.batch for point in case.asked])
    return ConvergenceModel(beliefs).fit(runs_of(case.known)).predict(batches)


def shares_inside(case: Case, found: Prediction) -> list[float]:
    """Of the runs at each batch that was asked for, inside the 90 % interval."""
    return [
        statistics.fmean(low <= run <= high for run in point.runs)
        for point, low, high in zip(case.asked, found.p05, found.p95, strict=True)
    ]
