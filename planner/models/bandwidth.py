"""What all-reduces say about the network between workers: its bandwidth, and the time that no byte accounts for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.inputs import AllReduce


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveNetwork:
    """seconds = latency + 2(K-1)/K · bytes / bandwidth, for K workers in a ring."""

    latency_seconds: float
    bytes_per_second: float

    def allreduce_seconds(self, gradient_bytes: float, workers: int) -> float:
        return self.latency_seconds + moved_bytes(gradient_bytes, workers) / self.bytes_per_second


def moved_bytes(gradient_bytes: float, workers: int) -> float:
    """What a ring all-reduce sends through each worker's link."""
    return 2 * (workers - 1) / workers * gradient_bytes


def effective_network(rows: Sequence[AllReduce], workers: int) -> EffectiveNetwork | None:
    """Least squares over the sizes; None where nothing was sent or time does not grow with size.

    The large sizes decide the slope, the small ones the latency, which cannot be below zero.
    """
    if workers < 2 or len({row.bytes for row in rows}) < 2:
        return None
    moved = np.array([moved_bytes(row.bytes, workers) for row in rows])
    seconds = np.array([row.seconds for row in rows])
    slope, latency = np.polyfit(moved, seconds, 1)
    if latency < 0:
        slope, latency = float(moved @ seconds / (moved @ moved)), 0.0
    return EffectiveNetwork(latency_seconds=float(latency), bytes_per_second=1 / float(slope)) if slope > 0 else None
