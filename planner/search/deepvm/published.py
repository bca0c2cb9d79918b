"""Machines that can take checkpoints into memory, as the DeepVM paper (arXiv 2403.05861) lists them."""

from __future__ import annotations

from planner.search.deepvm.inputs import CpuType

# Name, on-demand USD per hour in 2023, memory, Gbit/s; 4 vCPUs each.
CPU_TYPES = tuple(
    CpuType(name=name, on_demand_usd=on_demand, vcpu=4, memory_gib=memory, bandwidth_gbps=gbps)
    for name, on_demand, memory, gbps in (
        ("c3.xlarge", 0.21, 7.5, 0.3),
        ("c4.xlarge", 0.199, 7.5, 1.7),
        ("t3.xlarge", 0.1664, 16.0, 5.0),
        ("c5.xlarge", 0.17, 8.0, 10.0),
        ("m6i.xlarge", 0.192, 16.0, 12.5),
        ("d3.xlarge", 0.499, 32.0, 15.0),
        ("c5n.xlarge", 0.216, 10.5, 25.0),
        ("c6in.xlarge", 0.2268, 8.0, 30.0),
    )
)
