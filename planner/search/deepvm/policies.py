"""What DeepVM recommends for an hourly budget, and the two rules of thumb that its authors compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.errors import NoFeasiblePlan
from planner.search.deepvm.clusters import enumerate_clusters
from planner.search.deepvm.inputs import (
    DEEPVM_ARCHITECTURES,
    Architecture,
    Cluster,
    CpuType,
    GpuType,
    Limits,
    fits,
    micro_usd,
    most_below,
)
from planner.search.deepvm.program import solve


def recommend(
    gpus: Sequence[GpuType],
    cpus: Sequence[CpuType],
    limits: Limits,
    count: int = 3,
    architectures: Sequence[Architecture] = DEEPVM_ARCHITECTURES,
) -> list[Cluster]:
    """The best first, runners-up after it. Raises NoFeasiblePlan when nothing fits."""
    found = solve(gpus, cpus, limits, count, architectures)
    if not found:
        raise _nothing_fits(gpus, cpus, limits, architectures)
    return found


def cost_first(gpus: Sequence[GpuType], limits: Limits) -> Cluster:
    """As many nodes as the money buys, one of them on demand."""
    clusters = _anchored(gpus, limits)
    return max(clusters, key=lambda cluster: cluster.nodes)


def performance_first(gpus: Sequence[GpuType], limits: Limits) -> Cluster:
    """The fastest GPU of which two nodes fit, and as many as the money buys, one of them on demand."""
    clusters = _anchored(gpus, limits)
    return max(clusters, key=lambda cluster: cluster.gpu.flops)


def _anchored(gpus: Sequence[GpuType], limits: Limits) -> list[Cluster]:
    """The largest single-anchor cluster of each type; here the paper counts n up to quota // vCPU."""
    clusters = []
    for gpu in gpus:
        left = limits.budget_micro_usd - micro_usd(gpu.on_demand_usd)
        spot = min(left // micro_usd(gpu.spot_usd), most_below(limits.quota(gpu).spot_vcpu, gpu.vcpu))
        if spot >= 1 and fits(limits.quota(gpu).on_demand_vcpu, gpu.vcpu):
            clusters.append(Cluster(architecture="single anchor", gpu=gpu, nodes=int(spot) + 1, on_demand_nodes=1))
    if not clusters:
        raise _nothing_fits(gpus, (), limits, ("single anchor",))
    return clusters


def _nothing_fits(
    gpus: Sequence[GpuType], cpus: Sequence[CpuType], limits: Limits, architectures: Sequence[Architecture]
) -> NoFeasiblePlan:
    budget = f"${limits.hourly_budget_usd:g} an hour"
    dearest = micro_usd(max((_smallest_usd(gpu) for gpu in gpus), default=0.0))
    dearest += micro_usd(max((cpu.on_demand_usd for cpu in cpus), default=0.0))
    if dearest:
        enough = replace(limits, hourly_budget_usd=dearest / 1e6)
        clusters = enumerate_clusters(gpus, cpus, enough, architectures)
        if len(clusters):
            cheapest = clusters.row(int(np.argmin(clusters.hourly_micro_usd)))
            price = f"${cheapest.hourly_usd:g} an hour"
            return NoFeasiblePlan(f"no cluster for {budget}: the cheapest is {cheapest} for {price}")
    return NoFeasiblePlan(
        f"no cluster for {budget} or any other price: there is no GPU machine, the vCPU quotas are too small (DeepVM "
        f"leaves room for one node), or no machine has the memory ({limits.memory_gib:.3g} GiB) and the network to "
        "take checkpoints"
    )


def _smallest_usd(gpu: GpuType) -> float:
    """Enough for the smallest cluster of this type, whatever the architecture."""
    fewest = max(2, min(gpu.node_counts or (1,)))
    return fewest * (gpu.on_demand_usd + gpu.spot_usd)
