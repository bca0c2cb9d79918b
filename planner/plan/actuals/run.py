"""What is known of a run, wherever it was read: a log, heartbeats, or what a user says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.errors import InputError, did_you_mean
from planner.models import Curve

_TARGET = re.compile(r"\s*(\S.{0,200}?)\s*(<=|>=)\s*(-?\d{1,15}(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?)\s*", re.ASCII)
Points = Sequence[tuple[float, float]]


class MetricTarget(NamedTuple):
    """`eval_loss<=2.1`, `accuracy>=0.75`."""

    metric: str
    falls: bool
    value: float

    @property
    def text(self) -> str:
        return f"{self.metric} {'<=' if self.falls else '>='} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """Of the whole cluster, so far; None where nobody said."""

    source: str  # in words, and without the folder that it lies in
    sha256: str  # of what was read: the same is not counted twice
    samples: float
    hours: float | None = None
    usd: float | None = None
    step_seconds: float | None = None
    peak_memory_gib: float | None = None
    ended: bool | None = None
    curve: Curve | None = None  # of the target's metric, turned so that lower is better
    notes: tuple[str, ...] = ()


def parse_metric_target(text: str) -> MetricTarget:
    match = _TARGET.fullmatch(text)
    if match is None:
        raise InputError("is not METRIC<=VALUE or METRIC>=VALUE, as in eval_loss<=2.1", key="--target")
    return MetricTarget(match[1], match[2] == "<=", float(match[3]))


def named_metric(target: MetricTarget, names: Iterable[str], file: str) -> str:
    """By its name, or by the last part of it where only one ends so: `loss` for `train/loss`."""
    known = sorted(names)
    if target.metric in known:
        return target.metric
    ending = [name for name in known if name.lower().endswith("/" + target.metric.lower())]
    if len(ending) == 1:
        return ending[0]
    some = f"; it has {', '.join(known[:8])}{' and others' if len(known) > 8 else ''}" if known else ""
    hint = did_you_mean(target.metric, known) or some
    raise InputError(f"logs no {target.metric}{hint}", file=file, key="--target")


def metric_curve(values: Mapping[str, Points], target: MetricTarget, samples_per_step: float, file: str) -> Curve:
    points = [point for point in values[named_metric(target, values, file)] if point[0] > 0]
    steps, logged = (np.array(column, dtype=float) for column in zip(*points, strict=True)) if points else ([], [])
    sign = 1.0 if target.falls else -1.0
    return Curve(np.asarray(steps) * samples_per_step, np.asarray(logged) * sign)
