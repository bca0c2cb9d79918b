"""The same architectures by what the job takes and costs, instead of by operations per dollar.

DeepVM ranks by FLOPP, which knows neither how the job scales below the sigmoid's inflection nor what it costs in
all, and leaves budget unspent. Here each cluster's seconds come from measured or predicted scaling, interruptions
stretch them, and the choice is the least dollars or the least seconds within limits on both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from deepvm_clusters import Clusters

from planner.columns import Flags, Floats, Ints
from planner.errors import InputError
from planner.search.deepvm.inputs import Cluster, GpuType

Seconds = Callable[[GpuType, Ints], Floats]
"""Seconds of the job's work on so many nodes, without losses; infinite where nothing is known."""
Slowdown = Callable[[Clusters], Floats]
"""Expected wall time over work time of each cluster: 1 without interruptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    cluster: Cluster
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Seconds and dollars of the job on each cluster."""

    clusters: Clusters
    seconds: Floats
    usd: Floats

    def row(self, index: int) -> Scored:
        return Scored(cluster=self.clusters.row(index), seconds=float(self.seconds[index]), usd=float(self.usd[index]))

    def best(
        self,
        objective: Literal["cost", "time"],
        *,
        most_seconds: float = math.inf,
        most_usd: float = math.inf,
        among: Flags | None = None,
    ) -> Scored | None:
        """The cheapest or the fastest within both limits, ties by the other; None when nothing keeps them."""
        keep = np.isfinite(self.seconds) & (self.seconds <= most_seconds) & (self.usd <= most_usd)
        rows = np.flatnonzero(keep if among is None else keep & among)
        if not len(rows):
            return None
        first, second = (self.usd, self.seconds) if objective == "cost" else (self.seconds, self.usd)
        return self.row(int(rows[np.lexsort((second[rows], first[rows]))[0]]))


def score(clusters: Clusters, seconds: Seconds, slowdown: Slowdown | None = None) -> Scores:
    work = np.full(len(clusters), math.inf)
    for index, gpu in enumerate(clusters.gpus):
        of_type = clusters.gpu == index
        work[of_type] = seconds(gpu, clusters.nodes[of_type])
    wall = work if slowdown is None else work * slowdown(clusters)
    return Scores(clusters=clusters, seconds=wall, usd=wall * clusters.hourly_usd / 3600)


class MeasuredScaling:
    """Seconds by GPU type and nodes: straight between measured counts on log scales, infinite outside them."""

    def __init__(self, seconds_by_nodes: Mapping[str, Mapping[int, float]]):
        for name, points in seconds_by_nodes.items():
            if not points or not all(math.isfinite(s) and s > 0 and n >= 1 for n, s in points.items()):
                raise InputError(f"{name}: scaling needs seconds above 0 at one node count or more")
        self._points = {
            name: (np.log(sorted(points)), np.log([points[nodes] for nodes in sorted(points)]))
            for name, points in seconds_by_nodes.items()
        }

    def __call__(self, gpu: GpuType, nodes: Ints) -> Floats:
        if gpu.name not in self._points:
            return np.full(len(nodes), math.inf)
        return np.exp(np.interp(np.log(nodes), *self._points[gpu.name], left=math.inf, right=math.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCosts:
    """A slow-down by Young and Daly: saving, computing again what was lost, starting anew.

    The mean time between losses is the whole cluster's: losses come together, so it hardly depends on the nodes.
    """

    seconds_between_losses: float
    save_to_storage_seconds: float
    save_to_tier_seconds: float
    restart_seconds: float

    def __call__(self, clusters: Clusters) -> Floats:
        save = np.where(clusters.tiered, self.save_to_tier_seconds, self.save_to_storage_seconds)
        waste = np.sqrt(2 * save / self.seconds_between_losses) + self.restart_seconds / self.seconds_between_losses
        stretched = np.where(waste < 1, 1 / np.maximum(1 - waste, 1e-9), math.inf)
        return np.where(clusters.spot_nodes > 0, stretched, 1.0)
