"""Everything that could be rented, as columns: nodes x batch on each GPU, and where and how they are bought."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.inputs import GP3_MIBPS, Catalog, Constraints, CountRange, InstanceType, Job, RegionPrices
from planner.models import Configurations

Market = Literal["on_demand", "spot"]

_ROOT_VOLUME_GIB = 200  # container image and framework caches
_HOURS_PER_MONTH = 730.0
_CHECKPOINTS_KEPT = 2
_FORMATTED = 1.1  # of a disk, the file system itself takes some
_MOST_MICRO_STEPS = 64


def every_split(
    catalog: Catalog, instance_type: InstanceType, nodes: CountRange, global_batch: CountRange
) -> Configurations:
    """Every way to spread the allowed global batches over so many nodes.

    The global batch is always nodes x GPUs x local batch x micro-steps, so that no sample is dropped.
    """
    gpus = instance_type.gpu_count
    counts, splits = [0], [_split_rows(1)[:0]]
    for count in range(nodes.low, nodes.high + 1):
        for share in batch_shares(-(-global_batch.low // (count * gpus)), global_batch.high // (count * gpus)):
            splits.append(_split_rows(share))
            counts.append(count)
    nodes_of_row = np.repeat(counts, [len(each) for each in splits])
    local_batch, micro_steps = np.concatenate(splits).T
    return Configurations.of(
        catalog, instance_type, nodes=nodes_of_row, gpu_batch=local_batch, accumulation_steps=micro_steps
    )


def batch_shares(low: int, high: int) -> list[int]:
    """Samples per GPU and step worth trying: 1, 2, 3, 4, 6, 8, 12 … and both ends of what is allowed."""
    if low > high:
        return []
    powers = [1 << exponent for exponent in range(high.bit_length())]
    steps = {*powers, *(3 * power // 2 for power in powers if power > 1), low, high}
    return sorted(share for share in steps if low <= share <= high)


@lru_cache(maxsize=1 << 16)
def splits_of(share: int) -> tuple[tuple[int, int], ...]:
    """Into local batch and micro-steps, without a remainder."""
    return tuple(
        (share // micro_steps, micro_steps)
        for micro_steps in range(1, min(share, _MOST_MICRO_STEPS) + 1)
        if share % micro_steps == 0
    )


@lru_cache(maxsize=1 << 16)
def _split_rows(share: int) -> Ints:
    return np.array(splits_of(share), dtype=np.int64)


def usual_batch(rows: Configurations) -> Flags:
    """Whether people would run it: a GPU takes 1, 2, 4 or a multiple of 8 samples, in a micro-step and in a step."""
    return _usual(rows.gpu_batch) & _usual(rows.gpu_batch * rows.accumulation_steps)


def _usual(samples: Ints) -> Flags:
    return np.asarray((samples & 7 == 0) | ((samples < 8) & (samples & (samples - 1) == 0)))


def root_volume_gib(checkpoint_bytes: float, copied_bytes: float = 0.0, local_ssd_gb: float = 0.0) -> int:
    """With room for a checkpoint that is being written beside the last one, and for data that is copied to the node.

    Unless its local disks hold all that: nodes use those that are as large as the root volume (agent/disk.py).
    """
    alone = _ROOT_VOLUME_GIB + math.ceil(_CHECKPOINTS_KEPT * checkpoint_bytes / 2**30)
    with_data = alone + math.ceil(copied_bytes / 2**30)
    return alone if local_ssd_gb * 1e9 >= with_data * _FORMATTED * 2**30 else with_data


def volume_hourly_usd(gib: float, mibps: int, usd_per_gib_month: float) -> float:
    """Of one gp3 volume. A MiB/s beyond those that come with it costs half of what a GiB does, in every region."""
    return (gib + (mibps - GP3_MIBPS) / 2) * usd_per_gib_month / _HOURS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Offers:
    """Where one instance type can be bought in one market: a zone per row, cheaper spot capacity first."""

    market: Market
    regions: tuple[str, ...]
    zones: tuple[str, ...]
    on_demand_usd: Floats
    node_usd: Floats
    interruption_class: tuple[int | None, ...]
    volume_usd_per_node: Floats
    checkpoint_usd: Floats

    def __len__(self) -> int:
        return len(self.zones)

    def at(self, rows: Sequence[int]) -> Offers:
        kept = np.array(rows, dtype=np.int64)
        return Offers(
            market=self.market,
            regions=tuple(self.regions[row] for row in rows),
            zones=tuple(self.zones[row] for row in rows),
            on_demand_usd=self.on_demand_usd[kept],
            node_usd=self.node_usd[kept],
            interruption_class=tuple(self.interruption_class[row] for row in rows),
            volume_usd_per_node=self.volume_usd_per_node[kept],
            checkpoint_usd=self.checkpoint_usd[kept],
        )

    def base_usd(self, base: Ints) -> Floats:
        """So many on-demand nodes for an hour, shape (rows, offers)."""
        return np.asarray(np.outer(base, self.on_demand_usd))

    def spot_usd(self, nodes: Ints) -> Floats:
        return np.asarray(np.outer(nodes, self.node_usd))

    def storage_usd(self, nodes: Ints) -> Floats:
        """Its volumes and checkpoints for an hour, shape (rows, offers)."""
        return np.asarray(np.outer(nodes, self.volume_usd_per_node) + self.checkpoint_usd)


class _Sale(NamedTuple):
    """One instance type in one zone."""

    region: RegionPrices
    zone: str
    on_demand_usd: float
    spot_usd: float | None
    interruption_class: int | None

    @property
    def cheaper_spot_first(self) -> tuple[bool, float, str, str]:
        return self.spot_usd is None, self.spot_usd or 0.0, self.region.name, self.zone


def stored_sizes(job: Job) -> tuple[float, float, int]:
    """What of a job its nodes' disks depend on: bytes of a checkpoint and of copied data, and the volume's MiB/s."""
    return job.workload.checkpoint_bytes_or_default, job.run.copied_bytes, job.run.volume_mibps_or_default


def offers_by_market(
    catalog: Catalog,
    instance_type: InstanceType,
    regions: tuple[str, ...],
    checkpoint_bytes: float,
    copied_bytes: float = 0.0,
    volume_mibps: int = GP3_MIBPS,
) -> dict[Market, Offers]:
    """Only where there is an on-demand price: it bounds what a spot node can cost."""
    prices = {region.name: region for region in catalog.regions}
    sales = [
        _Sale(prices[offer.region], zone, offer.on_demand_usd, spot_usd, offer.interruption_class)
        for offer in catalog.offers_by_type[instance_type.name]
        if offer.region in regions and offer.on_demand_usd is not None
        for zone, spot_usd in offer.spot_usd.items()
    ]
    sales.sort(key=lambda sale: sale.cheaper_spot_first)
    on_demand = [(sale, sale.on_demand_usd) for sale in sales]
    spot = [(sale, sale.spot_usd) for sale in sales if sale.spot_usd is not None]
    volume = root_volume_gib(checkpoint_bytes, copied_bytes, instance_type.local_ssd_gb), volume_mibps
    stored_gib = _CHECKPOINTS_KEPT * checkpoint_bytes / 2**30
    return {
        "on_demand": _offers("on_demand", on_demand, volume, stored_gib),
        "spot": _offers("spot", spot, volume, stored_gib),
    }


def _offers(market: Market, sales: Sequence[tuple[_Sale, float]], volume: tuple[int, int], stored_gib: float) -> Offers:
    """Each with what a node costs in this market."""
    volumes = [volume_hourly_usd(*volume, sale.region.volume_usd_per_gib_month) for sale, _ in sales]
    stored = [stored_gib * sale.region.object_storage_usd_per_gib_month / _HOURS_PER_MONTH for sale, _ in sales]
    return Offers(
        market=market,
        regions=tuple(sale.region.name for sale, _ in sales),
        zones=tuple(sale.zone for sale, _ in sales),
        on_demand_usd=np.array([sale.on_demand_usd for sale, _ in sales], dtype=float),
        node_usd=np.array([usd for _, usd in sales], dtype=float),
        interruption_class=tuple(sale.interruption_class for sale, _ in sales),
        volume_usd_per_node=np.array(volumes),
        checkpoint_usd=np.array(stored),
    )


def within_quota(instance_type: InstanceType, on_demand: Ints, spot: Ints, constraints: Constraints) -> Flags:
    """Whether the account may run that many vCPUs of this class at once."""
    allowed = np.ones(len(on_demand), dtype=bool)
    for count, quota in ((on_demand, constraints.quotas.on_demand), (spot, constraints.quotas.spot)):
        limit = getattr(quota, instance_type.quota_class)
        if limit is not None:
            allowed &= count * instance_type.vcpu <= limit
    return allowed
