"""Which of the selected machines cost how much per GPU and per TFLOP/s, in which region."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import InputError, did_you_mean, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, Precision

Order = Literal["type", "price", "price-per-gpu", "price-per-tflop", "spot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One machine in one region, or a machine that is not offered there. Prices are USD per hour."""

    instance_type: str
    region: str | None
    offered: bool
    gpu: str
    gpu_count: int
    gpu_memory_gib: float
    vcpu: int
    ram_gib: float
    network_gbps: float
    node_tflops: float | None
    on_demand_usd: float | None
    spot_usd: float | None
    usd_per_gpu: float | None
    usd_per_tflops: float | None
    interruption_class: int | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def checked_regions(catalog: Catalog, regions: Sequence[str]) -> list[str]:
    """Each once, and only those that the catalogue knows."""
    known = [region.name for region in catalog.regions]
    for region in regions:
        if region not in known:
            raise InputError(f"the catalogue has no region {one_line(region, 80)!r}{did_you_mean(region, known)}")
    return list(dict.fromkeys(regions))


def list_machines(
    catalog: Catalog,
    instance_types: Sequence[InstanceType],
    regions: Sequence[str] | None,
    *,
    precision: Precision,
    on_spot: bool,
) -> list[Listing]:
    """A row for each machine in each region; without regions, wherever it is offered.

    `on_spot` says whether prices per GPU and per TFLOP/s are those of spot or of on-demand machines.
    """
    offers = {(offer.region, offer.instance_type): offer for offer in catalog.offers}
    listings = []
    for region in regions if regions is not None else [region.name for region in catalog.regions]:
        for instance_type in instance_types:
            offer = offers.get((region, instance_type.name))
            if offer is not None or regions is not None:
                listings.append(
                    _listing(instance_type, catalog.gpu_of(instance_type), region, offer, precision, on_spot)
                )
    if regions is None:
        nowhere = {instance_type.name for instance_type in instance_types} - {name for _, name in offers}
        listings += [
            _listing(instance_type, catalog.gpu_of(instance_type), None, None, precision, on_spot)
            for instance_type in instance_types
            if instance_type.name in nowhere
        ]
    return listings


def sort_listings(listings: Iterable[Listing], order: Order, *, on_spot: bool) -> list[Listing]:
    """Cheapest first, what has no price last, equals in the catalogue's order."""
    if order == "type":
        return list(listings)
    price = "spot_usd" if on_spot or order == "spot" else "on_demand_usd"
    field = {"price-per-gpu": "usd_per_gpu", "price-per-tflop": "usd_per_tflops"}.get(order, price)

    def key(listing: Listing) -> tuple[bool, float]:
        value: float | None = getattr(listing, field)
        return value is None, value or 0.0

    return sorted(listings, key=key)


def _listing(
    instance_type: InstanceType, gpu: Gpu, region: str | None, offer: Offer | None, precision: Precision, on_spot: bool
) -> Listing:
    spot_prices = [price for price in offer.spot_usd.values() if price is not None] if offer else []
    spot = min(spot_prices, default=None)
    on_demand = offer.on_demand_usd if offer else None
    price = spot if on_spot else on_demand
    peak = gpu.dense_tflops.get(precision)
    tflops = None if peak is None else peak * instance_type.gpu_count
    return Listing(
        instance_type=instance_type.name,
        region=region,
        offered=offer is not None,
        gpu=gpu.name,
        gpu_count=instance_type.gpu_count,
        gpu_memory_gib=gpu.memory_gib,
        vcpu=instance_type.vcpu,
        ram_gib=instance_type.ram_gib,
        network_gbps=instance_type.network_baseline_gbps,
        node_tflops=tflops,
        on_demand_usd=on_demand,
        spot_usd=spot,
        usd_per_gpu=None if price is None else price / instance_type.gpu_count,
        usd_per_tflops=None if price is None or tflops is None else price / tflops,
        interruption_class=offer.interruption_class if offer else None,
    )
