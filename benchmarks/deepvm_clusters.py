"""Every cluster that keeps DeepVM's limits, as columns: a check on its integer program, and what is ranked by money.

Beside DeepVM's two architectures there may be spot nodes alone ("all spot") and on-demand nodes alone ("on demand").

Of each GPU type, node count and memory node type only the fewest memory nodes are kept: more of them cost more and
change nothing in the objective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.search.deepvm.inputs import (
    DEEPVM_ARCHITECTURES,
    Cluster,
    CpuType,
    GpuType,
    Limits,
    anchors,
    micro_usd,
    most_below,
    saturation_nodes,
)

EVERY_ARCHITECTURE = (*DEEPVM_ARCHITECTURES, "all spot", "on demand")
NO_TIER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """Row i is a cluster of `gpus[gpu[i]]`, with `cpus[cpu[i]]` beside it unless that is -1."""

    gpus: tuple[GpuType, ...]
    cpus: tuple[CpuType, ...]
    gpu: Ints
    nodes: Ints
    on_demand_nodes: Ints
    cpu: Ints
    cpu_nodes: Ints
    hourly_micro_usd: Ints
    value: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def hourly_usd(self) -> Floats:
        return np.asarray(self.hourly_micro_usd / 1e6)

    @property
    def spot_nodes(self) -> Ints:
        return self.nodes - self.on_demand_nodes

    @property
    def tiered(self) -> Flags:
        return np.asarray(self.cpu != NO_TIER)

    def row(self, index: int) -> Cluster:
        tiered, nodes, on_demand = bool(self.tiered[index]), int(self.nodes[index]), int(self.on_demand_nodes[index])
        return Cluster(
            architecture=_architecture(tiered, nodes, on_demand),
            gpu=self.gpus[self.gpu[index]],
            nodes=nodes,
            on_demand_nodes=on_demand,
            cpu=self.cpus[self.cpu[index]] if tiered else None,
            cpu_nodes=int(self.cpu_nodes[index]),
        )


def enumerate_clusters(
    gpus: Sequence[GpuType],
    cpus: Sequence[CpuType],
    limits: Limits,
    architectures: Sequence[str] = DEEPVM_ARCHITECTURES,
) -> Clusters:
    """In the order of architectures and catalogue."""
    blocks = [_empty(gpus, cpus), *_blocks(gpus, cpus, limits, architectures)]

    def joined(column: str) -> Any:
        return np.concatenate([getattr(block, column) for block in blocks])

    return Clusters(
        gpus=tuple(gpus),
        cpus=tuple(cpus),
        gpu=joined("gpu"),
        nodes=joined("nodes"),
        on_demand_nodes=joined("on_demand_nodes"),
        cpu=joined("cpu"),
        cpu_nodes=joined("cpu_nodes"),
        hourly_micro_usd=joined("hourly_micro_usd"),
        value=joined("value"),
    )


def ranked(clusters: Clusters, count: int) -> list[Cluster]:
    """By DeepVM's objective, ties by price, then in the order of the catalogue."""
    order = np.lexsort((clusters.hourly_micro_usd, -clusters.value))
    return [clusters.row(index) for index in order[:count].tolist()]


def _architecture(tiered: bool, nodes: int, on_demand_nodes: int) -> Any:
    if tiered:
        return "tiering"
    if on_demand_nodes == nodes:
        return "on demand"
    return "single anchor" if on_demand_nodes else "all spot"


def _empty(gpus: Sequence[GpuType], cpus: Sequence[CpuType]) -> Clusters:
    none = np.empty(0, dtype=np.int64)
    return Clusters(
        gpus=tuple(gpus),
        cpus=tuple(cpus),
        gpu=none,
        nodes=none,
        on_demand_nodes=none,
        cpu=none,
        cpu_nodes=none,
        hourly_micro_usd=none,
        value=np.empty(0),
    )


def _blocks(
    gpus: Sequence[GpuType], cpus: Sequence[CpuType], limits: Limits, architectures: Sequence[str]
) -> Iterator[Clusters]:
    """Columns of one GPU type and one memory node type each."""
    for architecture in architectures:
        for index, gpu in enumerate(gpus):
            nodes = _node_counts(gpu, limits, architecture)
            anchored = nodes if architecture == "on demand" else anchors(architecture, nodes)
            tiers = list(_tiers(gpu, cpus, nodes, limits)) if architecture == "tiering" else [_no_tier(nodes)]
            for place, cpu_nodes, cpu_micro_usd in tiers:
                gpu_usd = (nodes - anchored) * micro_usd(gpu.spot_usd) + anchored * micro_usd(gpu.on_demand_usd)
                price = gpu_usd + cpu_nodes * cpu_micro_usd
                keep = (price <= limits.budget_micro_usd) & (cpu_nodes >= 0)
                yield Clusters(
                    gpus=tuple(gpus),
                    cpus=tuple(cpus),
                    gpu=np.full(int(keep.sum()), index, dtype=np.int64),
                    nodes=nodes[keep],
                    on_demand_nodes=anchored[keep],
                    cpu=np.full(int(keep.sum()), place, dtype=np.int64),
                    cpu_nodes=cpu_nodes[keep],
                    hourly_micro_usd=price[keep],
                    value=gpu.values(nodes[keep]),
                )


def _node_counts(gpu: GpuType, limits: Limits, architecture: str) -> Ints:
    if architecture != "on demand":
        return limits.gpu_nodes(gpu, architecture)
    affordable = limits.budget_micro_usd // micro_usd(gpu.on_demand_usd)
    most = min(most_below(limits.quota(gpu).on_demand_vcpu, gpu.vcpu), affordable)
    return np.arange(1, most + 1, dtype=np.int64)


def _no_tier(nodes: Ints) -> tuple[int, Ints, int]:
    return NO_TIER, np.zeros_like(nodes), 0


def _tiers(gpu: GpuType, cpus: Sequence[CpuType], nodes: Ints, limits: Limits) -> Iterator[tuple[int, Ints, int]]:
    """For each type that can take the checkpoints the fewest memory nodes with n / m < saturation, -1 for too many."""
    for place, cpu in enumerate(cpus):
        saturation = saturation_nodes(gpu, cpu)
        if saturation and cpu.memory_gib >= limits.memory_gib:
            fewest = nodes // saturation + 1
            yield place, np.where(fewest <= limits.most_cpu_nodes(cpu), fewest, -1), micro_usd(cpu.on_demand_usd)
