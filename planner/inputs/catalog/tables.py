"""The catalogue's tables: a dated snapshot of GPU data sheets, instance types and prices."""

from __future__ import annotations

import datetime
from collections import Counter
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from planner.contract import Contract

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")]
ZoneId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+-az\d+$")]
# Bounds far outside anything real: beyond them arithmetic overflows where no sentence could explain it.
Amount = Annotated[float, Field(gt=1e-9, le=1e12)]
Count = Annotated[int, Field(gt=0, le=2**24)]


def _harmless(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters or ends of lines")
    if text != text.strip():
        raise ValueError("begins or ends with a blank")
    return text


# Whatever shows a catalogue prints these as they are.
Text = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_harmless)]


class Source(Contract):
    """Where a fact comes from and the day it held."""

    title: Text
    date: datetime.date
    url: Text | None = None


class Gpu(Contract):
    """One row of a data sheet. Peaks are dense (no structured sparsity)."""

    name: Text = Field(description="model and memory where the model alone is ambiguous: A100-80GB")
    model: Text = Field(description="what people filter by: A100")
    memory_gib: Amount = Field(description="what AWS reports, so what a job can use")
    nominal_memory_gb: Count = Field(description="what it is sold as and filtered by: an A10G is a 24GB card")
    memory_bandwidth_gb_per_second: Amount
    dense_tflops: dict[Precision, Amount]
    source: SourceName

    def peak_flops_per_second(self, precision: Precision) -> float | None:
        """None where the GPU has no units for that precision. For tf32, PyTorch falls back to fp32 by itself."""
        fallback = self.dense_tflops.get("fp32") if precision == "tf32" else None
        tflops = self.dense_tflops.get(precision, fallback)
        return None if tflops is None else tflops * 1e12


class InstanceType(Contract):
    """What one node has. Network figures are per node, in Gbit/s."""

    name: Text
    gpu: Text = Field(description="name of a row in `gpus`")
    gpu_count: Count
    vcpu: Count
    ram_gib: Amount
    network_baseline_gbps: Amount
    network_peak_gbps: Amount
    network_cards: Count
    efa_interfaces: Annotated[int, Field(ge=0, le=2**24)]
    gpu_link: Text = Field(description="how the node's GPUs reach each other: NVLink 3, PCIe 4.0 x16")
    gpu_link_gb_per_second: Amount = Field(description="per GPU, one direction")
    local_ssd_gb: Annotated[int, Field(ge=0, le=2**24)]
    measured_allreduce_gbps: Amount | None = Field(
        default=None,
        description="effective all-reduce bandwidth between such nodes, where someone measured it",
    )
    measured_allreduce_source: SourceName | None = None
    source: SourceName

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    @property
    def quota_class(self) -> Literal["g", "p"]:
        """AWS limits vCPUs of all G types together and of all P types together."""
        return "p" if self.name.startswith("p") else "g"


class RegionPrices(Contract):
    """What is paid per region beside the machines."""

    name: Text
    volume_usd_per_gib_month: Amount = Field(description="gp3")
    object_storage_usd_per_gib_month: Amount = Field(description="S3 Standard, first tier")
    source: SourceName


class Offer(Contract):
    """An instance type in a region: on-demand costs the same in every zone, spot does not."""

    instance_type: Text
    region: Text
    on_demand_usd: Amount | None = Field(description="per node and hour; null: not sold on demand")
    spot_usd: dict[ZoneId, Amount | None] = Field(
        min_length=1, description="every zone (by ID: names differ between accounts) with its spot price"
    )
    interruption_class: Annotated[int, Field(ge=0, le=4)] | None = Field(
        default=None, description="AWS spot advisor: 0 is <5 % of instances reclaimed a month, 4 is >20 %"
    )
    interruption_source: SourceName | None = Field(
        default=None, description="source of `interruption_class` where it is not that of the prices"
    )
    source: SourceName


class Catalog(Contract):
    """One snapshot. Rows refer to each other by name; every name is checked here."""

    schema_version: Literal[1] = 1
    date: datetime.date
    sources: dict[SourceName, Source]
    gpus: tuple[Gpu, ...]
    instance_types: tuple[InstanceType, ...]
    regions: tuple[RegionPrices, ...]
    offers: tuple[Offer, ...]

    @model_validator(mode="after")
    def _rows_agree(self) -> Self:
        for label, keys in {
            "GPU": [gpu.name for gpu in self.gpus],
            "instance type": [instance_type.name for instance_type in self.instance_types],
            "region": [region.name for region in self.regions],
            "offer": [f"{offer.instance_type} in {offer.region}" for offer in self.offers],
        }.items():
            twice = next((key for key, count in Counter(keys).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{label} {twice} is listed twice")
        for instance_type in self.instance_types:
            if instance_type.gpu not in self.gpu_by_name:
                raise ValueError(f"{instance_type.name} names GPU {instance_type.gpu}, which has no data sheet row")
            if instance_type.network_baseline_gbps > instance_type.network_peak_gbps:
                raise ValueError(f"{instance_type.name} has a network baseline above its peak")
        region_names = {region.name for region in self.regions}
        for offer in self.offers:
            if offer.instance_type not in self.instance_type_by_name:
                raise ValueError(f"an offer names the unknown instance type {offer.instance_type}")
            if offer.region not in region_names:
                raise ValueError(f"an offer names the unknown region {offer.region}")
        unknown = sorted(self.cited_sources() - set(self.sources))
        if unknown:
            raise ValueError(f"rows cite unknown sources: {', '.join(unknown)}")
        return self

    @cached_property
    def gpu_by_name(self) -> dict[str, Gpu]:
        return {gpu.name: gpu for gpu in self.gpus}

    @cached_property
    def instance_type_by_name(self) -> dict[str, InstanceType]:
        return {instance_type.name: instance_type for instance_type in self.instance_types}

    def cited_sources(self) -> set[str]:
        """The source of every row, and of the facts in a row that come from elsewhere."""
        rows: list[Gpu | InstanceType | RegionPrices | Offer] = [
            *self.gpus,
            *self.instance_types,
            *self.regions,
        ]
        cited: set[str | None] = {row.source for row in (*rows, *self.offers)}
        cited |= {instance_type.measured_allreduce_source for instance_type in self.instance_types}
        cited |= {offer.interruption_source for offer in self.offers}
        return {name for name in cited if name is not None}

    @cached_property
    def offers_by_type(self) -> dict[str, tuple[Offer, ...]]:
        """Every instance type with where it is offered, possibly nowhere."""
        offers: dict[str, list[Offer]] = {instance_type.name: [] for instance_type in self.instance_types}
        for offer in self.offers:
            offers[offer.instance_type].append(offer)
        return {name: tuple(rows) for name, rows in offers.items()}

    def gpu_of(self, instance_type: InstanceType) -> Gpu:
        return self.gpu_by_name[instance_type.gpu]
