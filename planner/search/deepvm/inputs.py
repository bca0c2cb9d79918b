"""What DeepVM chooses from, within which limits, and the cluster that it recommends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from planner.columns import Floats, Ints
from planner.errors import InputError
from planner.search.deepvm.scaling import Scaling

Architecture = Literal["single anchor", "tiering"]
DEEPVM_ARCHITECTURES: tuple[Architecture, ...] = ("single anchor", "tiering")

# Nodes that one memory node takes checkpoints from before its network saturates, by the slower side's Gbit/s.
SATURATION_NODES = ((0.3, 2), (1.7, 12), (5.0, 16), (10.0, 20), (12.5, 24), (15.0, 24), (25.0, 28), (30.0, 32))
_SIGNIFICANT_DIGITS = 10
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A GPU machine; `flops` in any unit, as long as all types use the same one."""

    name: str
    on_demand_usd: float
    spot_usd: float
    vcpu: int
    bandwidth_gbps: float
    flops: float
    scaling: Scaling | None = None  # none: every node counts fully
    quota_class: str = "G"
    node_counts: tuple[int, ...] | None = None  # on which the job can run; none: on any

    def __post_init__(self) -> None:
        _check_machine(self.name, self.vcpu, self.on_demand_usd, self.spot_usd, self.bandwidth_gbps, self.flops)

    @property
    def flopp(self) -> float:
        """Floating-point operations per dollar of spot, times the seconds of an hour."""
        return self.flops / self.spot_usd * 3600

    def values(self, nodes: Ints) -> Floats:
        """The objective Z of n nodes, to ten digits: what differs only by rounding errors is a tie."""
        factor = 1.0 if self.scaling is None else self.scaling.factor(nodes)
        return np.array([float(f"{z:.{_SIGNIFICANT_DIGITS}g}") for z in np.asarray(self.flopp * nodes * factor)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuType:
    """A machine whose memory takes checkpoints."""

    name: str
    on_demand_usd: float
    vcpu: int
    memory_gib: float
    bandwidth_gbps: float
    quota_class: str = "standard"

    def __post_init__(self) -> None:
        _check_machine(self.name, self.vcpu, self.on_demand_usd, self.memory_gib, self.bandwidth_gbps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """vCPUs of one class that the account may run at once; none: no limit."""

    on_demand_vcpu: int | None = None
    spot_vcpu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A class without a quota has no limit."""

    hourly_budget_usd: float
    checkpoint_gib: float
    buffered_checkpoints: float
    quotas: Mapping[str, Quota] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = (self.checkpoint_gib, self.buffered_checkpoints)
        if not (math.isfinite(self.hourly_budget_usd) and self.hourly_budget_usd > 0):
            raise InputError(f"the hourly budget must be a positive number of dollars, not {self.hourly_budget_usd}")
        if not all(math.isfinite(size) and size >= 0 for size in sizes):
            raise InputError("checkpoint and buffer must be numbers of at least 0")

    @property
    def budget_micro_usd(self) -> int:
        return micro_usd(self.hourly_budget_usd)

    @property
    def memory_gib(self) -> float:
        return self.checkpoint_gib * self.buffered_checkpoints

    def gpu_nodes(self, gpu: GpuType, architecture: Architecture) -> Ints:
        """Counts worth trying: within the quotas, and no more than the budget could buy with one node free."""
        quota, affordable = self.quota(gpu), self.budget_micro_usd // micro_usd(gpu.spot_usd) + 1
        fewest, most = 1, most_below(quota.spot_vcpu, gpu.vcpu)
        if architecture == "single anchor":
            fewest = 2 if fits(quota.on_demand_vcpu, gpu.vcpu) else affordable + 1
        if gpu.node_counts is not None:
            counts = [count for count in gpu.node_counts if fewest <= count <= min(most, affordable)]
            return np.array(sorted(set(counts)), dtype=np.int64)
        return np.arange(fewest, min(most, affordable) + 1, dtype=np.int64)

    def most_cpu_nodes(self, cpu: CpuType) -> int:
        affordable = self.budget_micro_usd // micro_usd(cpu.on_demand_usd)
        return int(min(most_below(self.quota(cpu).on_demand_vcpu, cpu.vcpu), affordable))

    def quota(self, machine: GpuType | CpuType) -> Quota:
        return self.quotas.get(machine.quota_class, Quota())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`nodes` GPU machines, `on_demand_nodes` of them on demand, and perhaps a tier of memory nodes."""

    architecture: Architecture
    gpu: GpuType
    nodes: int
    on_demand_nodes: int
    cpu: CpuType | None = None
    cpu_nodes: int = 0

    @property
    def spot_nodes(self) -> int:
        return self.nodes - self.on_demand_nodes

    @property
    def hourly_micro_usd(self) -> int:
        tier = self.cpu_nodes * micro_usd(self.cpu.on_demand_usd) if self.cpu else 0
        anchor = self.on_demand_nodes * micro_usd(self.gpu.on_demand_usd)
        return self.spot_nodes * micro_usd(self.gpu.spot_usd) + anchor + tier

    @property
    def hourly_usd(self) -> float:
        return self.hourly_micro_usd / _MICRO

    @property
    def value(self) -> float:
        """The objective Z."""
        return float(self.gpu.values(np.array([self.nodes]))[0])

    def __str__(self) -> str:
        parts = [f"{self.spot_nodes} spot {self.gpu.name}"]
        if self.on_demand_nodes:
            parts.append(f"{self.on_demand_nodes} on-demand {self.gpu.name}")
        if self.cpu:
            parts.append(f"{self.cpu_nodes} on-demand {self.cpu.name}")
        return " + ".join(parts)


def micro_usd(usd: float) -> int:
    """Prices are decimal: in whole millionths 17 x 0.1578 + 0.17 is 2.8526 and nothing beside it."""
    return round(usd * _MICRO)


def saturation_nodes(gpu: GpuType, cpu: CpuType) -> int:
    """From the next slower bandwidth that was measured; 0 below all of them."""
    slower = min(gpu.bandwidth_gbps, cpu.bandwidth_gbps)
    return max((nodes for gbps, nodes in SATURATION_NODES if gbps <= slower), default=0)


def anchors(architecture: Architecture, nodes: Ints) -> Ints:
    """How many of the GPU nodes are on demand."""
    return np.full_like(nodes, architecture == "single anchor")


def gpu_micro_usd(gpu: GpuType, architecture: Architecture, nodes: Ints) -> Ints:
    anchored = anchors(architecture, nodes)
    return (nodes - anchored) * micro_usd(gpu.spot_usd) + anchored * micro_usd(gpu.on_demand_usd)


def most_below(quota_vcpu: int | None, vcpu: int) -> float:
    """The paper asks for n < quota // vCPU, one node less than the quota would allow."""
    return math.inf if quota_vcpu is None else quota_vcpu // vcpu - 1


def fits(quota_vcpu: int | None, vcpu: int) -> bool:
    return quota_vcpu is None or vcpu <= quota_vcpu


def _check_machine(name: str, vcpu: int, *positive: float) -> None:
    """A price below a millionth of a dollar is none."""
    if vcpu < 1 or not all(math.isfinite(value) and value >= 1 / _MICRO for value in positive):
        raise InputError(f"{name}: prices, sizes and speeds must be positive numbers")
