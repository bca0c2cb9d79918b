"""Small random catalogues and jobs, for comparing the planner with loops."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, RegionPrices, Source
from planner.inputs.job.schema import Job

REGIONS = ("us-east-1", "eu-west-1")


def _gpu(name: str, memory_gib: float, tflops: float, bandwidth: float, *, bf16: bool = True) -> Gpu:
    peaks: dict[Any, float] = {"fp32": tflops / 8, "fp16": tflops} | ({"bf16": tflops} if bf16 else {})
    return Gpu(
        name=name,
        model=name,
        memory_gib=memory_gib,
        nominal_memory_gb=round(memory_gib),
        memory_bandwidth_gb_per_second=bandwidth,
        dense_tflops=peaks,
        source="test",
    )


GPUS = (_gpu("small", 16, 60, 320, bf16=False), _gpu("middle", 24, 120, 600), _gpu("large", 80, 900, 3300))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    names = draw(st.lists(st.sampled_from(["g9.a", "g9.b", "p9.c", "p9.d"]), min_size=1, max_size=3, unique=True))
    kinds = tuple(
        InstanceType(
            name=name,
            gpu=draw(st.sampled_from(GPUS)).name,
            gpu_count=draw(st.sampled_from([1, 2, 8])),
            vcpu=draw(st.sampled_from([4, 48])),
            ram_gib=64,
            network_baseline_gbps=draw(st.sampled_from([5.0, 100.0])),
            network_peak_gbps=100,
            network_cards=1,
            efa_interfaces=draw(st.sampled_from([0, 1])),
            gpu_link=draw(st.sampled_from(["NVLink 3", "PCIe 4.0 x16"])),
            gpu_link_gb_per_second=32,
            local_ssd_gb=0,
            source="test",
        )
        for name in names
    )
    price = st.floats(0.2, 60.0).map(lambda usd: round(usd, 3))
    offers = []
    for kind in kinds:
        for region in REGIONS:
            zones = [f"{region[:2]}{number}-az{number}" for number in range(1, draw(st.integers(1, 2)) + 1)]
            offers.append(
                Offer(
                    instance_type=kind.name,
                    region=region,
                    on_demand_usd=None if draw(st.integers(0, 5)) == 5 else draw(price),
                    spot_usd={zone: None if draw(st.integers(0, 3)) == 3 else draw(price) for zone in zones},
                    source="test",
                )
            )
    return Catalog(
        date=datetime.date(2026, 1, 1),
        sources={"test": Source(title="invented", date=datetime.date(2026, 1, 1))},
        gpus=GPUS,
        instance_types=kinds,
        regions=tuple(
            RegionPrices(
                name=region, volume_usd_per_gib_month=0.08, object_storage_usd_per_gib_month=0.023, source="test"
            )
            for region in REGIONS
        ),
        offers=tuple(offers),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    low = draw(st.integers(1, 24))
    first_node = draw(st.integers(1, 3))
    quota = st.sampled_from([None, None, None, 100])
    optional = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "deadline": st.floats(0.2, 400).map(lambda hours: f"{hours:.3f}h"),
                "budget": st.floats(1, 5000).map(lambda usd: f"${usd:.2f}"),
            },
        )
    )
    return Job.model_validate(
        {
            "name": "job",
            "workload": {
                "dataset_samples": 100_000,
                "flops_per_sample": f"{draw(st.floats(0.1, 2000)):.3f} GFLOP",
                "parameters": draw(st.integers(10**5, 3 * 10**8)),
                "activation_bytes_per_sample": draw(st.integers(10**4, 10**9)),
                "global_batch": f"{low}..{draw(st.integers(low, 256))}",
                "precision": draw(st.sampled_from(["fp16", "bf16"])),
                "target": {"epochs": draw(st.integers(1, 100)), "reference_batch": 32},
            },
            "constraints": {
                **optional,
                "confidence": draw(st.sampled_from([0.5, 0.8, 0.95])),
                "regions": draw(st.sampled_from([["us-east-1"], list(REGIONS)])),
                "nodes": f"{first_node}..{draw(st.integers(first_node, 5))}",
                "spot": draw(st.sampled_from(["never", "auto", "always"])),
                "quotas": {"on_demand": {"g": draw(quota)}, "spot": {"p": draw(quota)}},
            },
            "objective": draw(st.sampled_from(["cost", "time", "knee"])),
        }
    )
