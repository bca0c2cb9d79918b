"""A catalogue and a job so small that every result can be worked out by hand."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from planner.columns import Floats, Ints, Prediction, Quantiles
from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, RegionPrices, Source
from planner.inputs.job.schema import Job
from planner.search.pricing import Candidate, Predictors
from planner.spot.rates.sources import SpotHistory, SpotSource

GIB = 2**30
DAY = datetime.date(2026, 1, 1)


def instance_type(name: str, gpus: int, vcpu: int, **changes: Any) -> InstanceType:
    columns: dict[str, Any] = {
        "name": name,
        "gpu": "unit",
        "gpu_count": gpus,
        "vcpu": vcpu,
        "ram_gib": 64,
        "network_baseline_gbps": 10,
        "network_peak_gbps": 10,
        "network_cards": 1,
        "efa_interfaces": 0,
        "gpu_link": "PCIe 4.0 x16",
        "gpu_link_gb_per_second": 32,
        "local_ssd_gb": 0,
        "source": "test",
    }
    return InstanceType(**{**columns, **changes})


def offer(name: str, region: str, on_demand: float | None, spot: dict[str, float | None], **more: Any) -> Offer:
    return Offer(instance_type=name, region=region, on_demand_usd=on_demand, spot_usd=spot, source="test", **more)


ONE, TWO, PRO = instance_type("g1.one", 1, 4), instance_type("g1.two", 2, 8), instance_type("p1.two", 2, 10)

# A month has 730 hours: a GiB of volume costs $0.0001 an hour near and twice that far, of object storage a fifth.
NEAR = RegionPrices(name="near", volume_usd_per_gib_month=0.073, object_storage_usd_per_gib_month=0.0146, source="test")
FAR = RegionPrices(name="far", volume_usd_per_gib_month=0.146, object_storage_usd_per_gib_month=0.0292, source="test")

OFFERS = (
    offer("g1.one", "near", 1.0, {"near-az1": 0.5, "near-az2": 0.4, "near-az3": None}, interruption_class=1),
    offer("g1.one", "far", 0.9, {"far-az1": 0.3}, interruption_class=3),
    offer("g1.two", "near", 2.0, {"near-az1": 0.8}),
    offer("g1.two", "far", None, {"far-az1": 0.1}),
    offer("p1.two", "near", 5.0, {"near-az1": None}),
)


def catalog(*offers: Offer, types: tuple[InstanceType, ...] = (ONE, TWO, PRO), **tflops: float) -> Catalog:
    peaks: dict[Any, float] = {"fp32": 10.0, "bf16": 100.0, **tflops}
    gpu = Gpu(
        name="unit",
        model="unit",
        memory_gib=16,
        nominal_memory_gb=16,
        memory_bandwidth_gb_per_second=500,
        dense_tflops=peaks,
        source="test",
    )
    return Catalog(
        date=DAY,
        sources={"test": Source(title="invented", date=DAY)},
        gpus=(gpu,),
        instance_types=types,
        regions=(NEAR, FAR),
        offers=offers or OFFERS,
    )


CATALOG = catalog()


def job(constraints: dict[str, Any] | None = None, objective: str = "cost", **workload: Any) -> Job:
    """10 GiB of checkpoints; every GPU takes any batch."""
    return Job.model_validate(
        {
            "name": "small",
            "workload": {
                "dataset_samples": 1000,
                "flops_per_sample": "1 GFLOP",
                "parameters": 1000,
                "activation_bytes_per_sample": 1000,
                "checkpoint_bytes": 10 * GIB,
                "global_batch": "4..4",
                "target": {"samples": 36000, "reference_batch": 4},
                **workload,
            },
            "constraints": {
                "regions": ["near", "far"],
                "nodes": "1..4",
                "instance_types": ["*"],
                **(constraints or {}),
            },
            "objective": objective,
        }
    )


def column(p05: object, p50: object, p95: object) -> Prediction:
    """A prediction from three numbers, or three lists."""
    low, middle, high = (np.atleast_1d(np.asarray(side, dtype=float)) for side in (p05, p50, p95))
    return Prediction(p05=low, p50=middle, p95=high, extrapolated=np.zeros(len(middle), dtype=bool))


def sure(*values: float) -> Prediction:
    """Known exactly."""
    return column(values, values, values)


def floats(*values: float) -> Floats:
    return np.array(values, dtype=float)


def candidate(**changes: Any) -> Candidate:
    """One g1.one on demand near, for 10 hours and $20; `hours` and `usd` may be one number each."""
    usual: dict[str, Any] = {
        "instance_type": "g1.one",
        "market": "on_demand",
        "region": "near",
        "zone": "near-az1",
        "nodes": 1,
        "on_demand_count": 0 if changes.get("market") == "spot" else changes.get("nodes", 1),
        "gpu_batch": 4,
        "accumulation_steps": 1,
        "global_batch": 4,
        "checkpoint_interval_seconds": 600.0,
        "losses": 0.0,
        "falls_back": False,
        "hourly_usd": 2.0,
        "storage_hourly_usd": 0.0224,
        "extrapolated": False,
    }
    hours, usd = (changes.pop(name, default) for name, default in (("hours", 10.0), ("usd", 20.0)))
    three = {
        name: value if isinstance(value, Quantiles) else Quantiles(value, value, value)
        for name, value in (("hours", hours), ("usd", usd))
    }
    limits = {"hours_limit": three["hours"].p95, "usd_limit": three["usd"].p95}
    return Candidate(**{**usual, **three, **limits, **changes})


HALF_HOUR = 1800.0


@dataclass(frozen=True)
class GivenTerms:
    """What losing spot nodes does, said instead of worked out: twice the hours, of which one and a half are paid."""

    rows: int
    wall_factor: Prediction
    paid_factor: Prediction
    save_share: float = 0.0
    interval_seconds_each: float = 900.0

    @property
    def interval_seconds(self) -> Floats:
        return np.full(self.rows, self.interval_seconds_each)

    @property
    def burden(self) -> Any:
        return SimpleNamespace(losses_per_hour=np.full(self.rows, 0.25))

    def slowdown(self, busy_hours: Floats) -> tuple[Prediction, Prediction]:
        return (factor.at(np.zeros(len(busy_hours), dtype=int)) for factor in (self.wall_factor, self.paid_factor))


class GivenMarkets:
    history = SpotHistory()
    restart_seconds = 720.0

    def __init__(self, wall: Prediction | None = None, paid: Prediction | None = None, save_share: float = 0.0) -> None:
        self.wall, self.paid, self.save_share = wall or sure(2.0), paid or sure(1.5), save_share
        self.asked: list[int] = []

    def terms(self, _source: SpotSource, spot_nodes: Ints) -> GivenTerms:
        self.asked = spot_nodes.tolist()
        return GivenTerms(len(spot_nodes), self.wall, self.paid, self.save_share)


def predictors(**changes: Any) -> Predictors:
    usual: dict[str, Any] = {
        "fits": lambda rows: np.ones(len(rows), dtype=bool),
        "largest_batch": lambda *_: 99,
        "step_seconds": lambda rows: sure(*[2.0] * len(rows)),
        "samples": lambda batch: sure(*[36_000.0] * len(batch)),
        "startup_seconds": HALF_HOUR,
        "checkpoint_interval_seconds": 600.0,
        "checkpoint_share": 0.1,
        "spot_price": sure(1.0),
        "spot_markets": None,
    }
    return Predictors(**{**usual, **changes})
