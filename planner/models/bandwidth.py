"""What all-reduces say about the links between workers: their bandwidth, and the time that no byte accounts for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from planner.columns import Floats

Number = TypeVar("Number", float, Floats)

_LEAST_BYTES, _LEAST_SECONDS = 1.0, 1e-9  # below which nothing was sent, or nothing was timed


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveNetwork:
    """seconds = latency + 2(K-1)/K · bytes / bandwidth, for K workers in a ring."""

    latency_seconds: float
    bytes_per_second: float

    def allreduce_seconds(self, gradient_bytes: float, workers: Number) -> Number:
        return self.latency_seconds + moved_bytes(gradient_bytes, workers) / self.bytes_per_second


def moved_bytes(gradient_bytes: float, workers: Number) -> Number:
    """What a ring all-reduce sends through each worker's link."""
    return 2 * (workers - 1) / workers * gradient_bytes


def effective_network(moved: Floats, seconds: Floats) -> EffectiveNetwork | None:
    """From all-reduces that moved so many bytes each; None where time does not grow with size.

    Least squares of relative errors: the large sizes decide the slope, the small ones the latency, which cannot be
    below zero. Repeats of one size count as their median.
    """
    real = (moved >= _LEAST_BYTES) & (seconds >= _LEAST_SECONDS)
    moved, seconds = moved[real], seconds[real]
    sizes = np.unique(moved)
    if len(sizes) < 2:
        return None
    seconds = np.array([np.median(seconds[moved == size]) for size in sizes])
    unit = sizes[-1]
    table = np.stack((sizes / unit, np.ones_like(sizes)), axis=1) / seconds[:, None]
    slope, latency = np.linalg.lstsq(table, np.ones_like(sizes), rcond=None)[0]
    if latency < 0:
        slope, latency = table[:, 0].sum() / (table[:, 0] @ table[:, 0]), 0.0
    if slope <= 0:
        return None
    return EffectiveNetwork(latency_seconds=float(latency), bytes_per_second=float(unit / slope))
