"""The GPU machines, limits and scaling of the DeepVM paper (arXiv 2403.05861), prices of AWS in 2023."""

from __future__ import annotations

from planner.search.deepvm.inputs import GpuType, Limits, Quota
from planner.search.deepvm.scaling import Scaling

_SCALING = {
    "g3s.xlarge": Scaling(steepness=0.1408559584, inflection_nodes=14.49263334, ceiling=13.53250952),
    "g4dn.xlarge": Scaling(steepness=0.1338806402, inflection_nodes=12.87424514, ceiling=6.176666667),
    "g5.xlarge": Scaling(steepness=0.08533428072, inflection_nodes=20.06669931, ceiling=4.962225551),
}

# Name, on-demand and spot USD per hour, Gbit/s, flops relative to a g3s.xlarge (in percent); 4 vCPUs each.
GPU_TYPES = tuple(
    GpuType(
        name=name,
        on_demand_usd=on_demand,
        spot_usd=spot,
        vcpu=4,
        bandwidth_gbps=gbps,
        flops=flops,
        scaling=_SCALING[name],
    )
    for name, on_demand, spot, gbps, flops in (
        ("g3s.xlarge", 0.75, 0.225, 10.0, 100.0),
        ("g4dn.xlarge", 0.526, 0.1578, 25.0, 377.0),
        ("g5.xlarge", 1.006, 0.3018, 10.0, 696.0),
    )
)

QUOTAS = {"G": Quota(on_demand_vcpu=32, spot_vcpu=128), "standard": Quota(on_demand_vcpu=256)}


def published_limits(hourly_budget_usd: float = 3.0) -> Limits:
    return Limits(hourly_budget_usd=hourly_budget_usd, checkpoint_gib=2.0, buffered_checkpoints=0.5, quotas=QUOTAS)
