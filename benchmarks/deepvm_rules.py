"""The two rules of thumb that DeepVM's authors compare it with."""

from __future__ import annotations

from collections.abc import Sequence

from planner.search.deepvm.inputs import Cluster, GpuType, Limits, fits, micro_usd, most_below


def cost_first(gpus: Sequence[GpuType], limits: Limits) -> Cluster:
    """As many nodes as the money buys, one of them on demand."""
    return max(_anchored(gpus, limits), key=lambda cluster: cluster.nodes)


def performance_first(gpus: Sequence[GpuType], limits: Limits) -> Cluster:
    """The fastest GPU of which two nodes fit, and as many as the money buys, one of them on demand."""
    return max(_anchored(gpus, limits), key=lambda cluster: cluster.gpu.flops)


def _anchored(gpus: Sequence[GpuType], limits: Limits) -> list[Cluster]:
    """The largest single-anchor cluster of each type; here the paper counts n up to quota // vCPU."""
    clusters = []
    for gpu in gpus:
        left = limits.budget_micro_usd - micro_usd(gpu.on_demand_usd)
        spot = min(left // micro_usd(gpu.spot_usd), most_below(limits.quota(gpu).spot_vcpu, gpu.vcpu))
        if spot >= 1 and fits(limits.quota(gpu).on_demand_vcpu, gpu.vcpu):
            clusters.append(Cluster(architecture="single anchor", gpu=gpu, nodes=int(spot) + 1, on_demand_nodes=1))
    return clusters
