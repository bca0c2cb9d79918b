"""What DeepVM recommends for an hourly budget, and what is the least that any cluster costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.errors import NoFeasiblePlan
from planner.search.deepvm.inputs import (
    DEEPVM_ARCHITECTURES,
    Architecture,
    Cluster,
    CpuType,
    GpuType,
    Limits,
    anchors,
    micro_usd,
    saturation_nodes,
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


def _nothing_fits(
    gpus: Sequence[GpuType], cpus: Sequence[CpuType], limits: Limits, architectures: Sequence[Architecture]
) -> NoFeasiblePlan:
    budget = f"${limits.hourly_budget_usd:g} an hour"
    dearest = micro_usd(max((_smallest_usd(gpu) for gpu in gpus), default=0.0))
    dearest += micro_usd(max((cpu.on_demand_usd for cpu in cpus), default=0.0))
    enough = replace(limits, hourly_budget_usd=dearest / 1e6) if dearest else limits
    smallest = [
        cluster
        for architecture in architectures
        for gpu in gpus
        for cluster in _smallest(gpu, cpus, enough, architecture)
        if cluster.hourly_micro_usd <= enough.budget_micro_usd
    ]
    if smallest:
        cheapest = min(smallest, key=lambda cluster: cluster.hourly_micro_usd)
        price = f"${cheapest.hourly_usd:g} an hour"
        return NoFeasiblePlan(f"no cluster for {budget}: the cheapest is {cheapest} for {price}")
    return NoFeasiblePlan(
        f"no cluster for {budget} or any other price: there is no GPU machine, the vCPU quotas are too small (DeepVM "
        f"leaves room for one node), or no machine has the memory ({limits.memory_gib:.3g} GiB) and the network to "
        "take checkpoints"
    )


def _smallest(gpu: GpuType, cpus: Sequence[CpuType], limits: Limits, architecture: Architecture) -> Iterator[Cluster]:
    """As few GPU nodes as the job and the architecture allow; for tiering one for each type of memory node."""
    nodes = limits.gpu_nodes(gpu, architecture)[:1]
    for count, on_demand in zip(nodes.tolist(), anchors(architecture, nodes).tolist(), strict=True):
        alone = Cluster(architecture=architecture, gpu=gpu, nodes=count, on_demand_nodes=on_demand)
        if architecture != "tiering":
            yield alone
            continue
        for cpu in cpus:
            saturation = saturation_nodes(gpu, cpu)
            cpu_nodes = count // saturation + 1 if saturation else 0
            if 0 < cpu_nodes <= limits.most_cpu_nodes(cpu) and cpu.memory_gib >= limits.memory_gib:
                yield replace(alone, cpu=cpu, cpu_nodes=cpu_nodes)


def _smallest_usd(gpu: GpuType) -> float:
    """Enough for the smallest cluster of this type, whatever the architecture."""
    fewest = max(2, min(gpu.node_counts or (1,)))
    return fewest * (gpu.on_demand_usd + gpu.spot_usd)
