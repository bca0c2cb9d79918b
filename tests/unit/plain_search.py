"""The search by nested loops in plain Python. It imports nothing of scav, so that it cannot share a mistake with it.

A job and a catalogue are read as data. What models say of a configuration is taken as given, in `Given`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

Triple = tuple[float, float, float]  # p05, p50, p95


@dataclass(frozen=True)
class Losses:
    """What a gang of spot nodes adds to so many busy hours."""

    interval_hours: float
    save_share: float
    slowdown: Callable[[float], tuple[Triple, Triple]]  # wall and paid hours over busy hours


@dataclass(frozen=True)
class Given:
    """What the search is told by others."""

    fits: Callable[[str, int, int], bool]  # instance type, nodes, samples on a GPU
    step_seconds: Callable[[str, int, int, int], Triple]  # instance type, nodes, samples on a GPU, micro-steps
    samples: Callable[[int], Triple]  # global batch
    losses: Callable[[int | None, int], Losses]  # interruption class, spot nodes
    startup_hours: float
    restart_hours: float
    saving_share: float  # on demand
    spot_price: Triple  # over the snapshot's


@dataclass(frozen=True)
class Row:
    instance_type: str
    zone: str
    market: str
    falls_back: bool
    nodes: int
    on_demand_count: int
    gpu_batch: int
    accumulation_steps: int
    hours: float  # at the job's confidence
    usd: float


def every_candidate(job: Any, catalog: Any, given: Given) -> Iterator[Row]:
    precisions = {gpu.name: gpu.dense_tflops for gpu in catalog.gpus}
    for kind in catalog.instance_types:
        if job.workload.precision not in precisions[kind.gpu]:
            continue
        for nodes in range(job.constraints.nodes.low, job.constraints.nodes.high + 1):
            for split in _batches(job, nodes * kind.gpu_count):
                if given.fits(kind.name, nodes, split[0]):
                    yield from _purchases(job, catalog, given, kind, nodes, split)


def _batches(job: Any, gpus: int) -> Iterator[tuple[int, int]]:
    """Samples on a GPU and micro-steps: of powers of two, three times such, and the ends of the range."""
    low, high = job.workload.global_batch
    shares = [share for share in range(1, high // gpus + 1) if low <= share * gpus <= high]
    for share in shares:
        odd = share
        while odd % 2 == 0:
            odd //= 2
        if odd in (1, 3) or share in (shares[0], shares[-1]):
            yield from ((share // steps, steps) for steps in range(1, min(share, 64) + 1) if share % steps == 0)


def _purchases(job: Any, catalog: Any, given: Given, kind: Any, nodes: int, split: tuple[int, int]) -> Iterator[Row]:
    work = _work_hours(given, kind, nodes, split)
    for offer in catalog.offers:
        if offer.instance_type != kind.name or offer.region not in job.constraints.regions:
            continue
        if offer.on_demand_usd is None:
            continue
        storage = _storage_usd(job, catalog, offer.region, nodes)
        for zone, spot_usd in offer.spot_usd.items():
            if _may_buy(job, kind, "on_demand", nodes, 0, None):
                hours = _plus(_times(work, 1 + given.saving_share), given.startup_hours)
                usd = _times(hours, nodes * offer.on_demand_usd + storage)
                yield _row(job, kind, zone, "on_demand", nodes, nodes, split, hours, usd)
            for base in _bases(job, nodes):
                yield from _with_spot(job, given, kind, offer, zone, spot_usd, nodes, base, split, work, storage)


def _work_hours(given: Given, kind: Any, nodes: int, split: tuple[int, int]) -> Triple:
    batch = nodes * kind.gpu_count * split[0] * split[1]
    step, samples = _step_seconds(given, kind, nodes, split), given.samples(batch)
    return _times(_product(step, samples), 1 / batch / 3600)


def _step_seconds(given: Given, kind: Any, nodes: int, split: tuple[int, int]) -> Triple:
    """At most what the same samples in more micro-steps would take."""
    share = split[0] * split[1]
    finer = [(share // steps, steps) for steps in range(split[1] + 1, min(share, 64) + 1) if share % steps == 0]
    low, middle, high = given.step_seconds(kind.name, nodes, *split)
    others = [given.step_seconds(kind.name, nodes, *each) for each in finer]
    high = min([high, *(each[2] for each in others)])
    middle = min([middle, high, *(each[1] for each in others)])
    return min(low, middle), middle, high


def _storage_usd(job: Any, catalog: Any, name: str, nodes: int) -> float:
    """An hour: a volume for each node with room for two checkpoints, and two checkpoints in object storage."""
    region = next(region for region in catalog.regions if region.name == name)
    kept_gib = 2 * job.workload.checkpoint_bytes_or_default / 2**30
    volumes = nodes * (200 + math.ceil(kept_gib)) * region.volume_usd_per_gib_month / 730
    return volumes + kept_gib * region.object_storage_usd_per_gib_month / 730


def _with_spot(
    job: Any,
    given: Given,
    kind: Any,
    offer: Any,
    zone: str,
    spot_usd: float | None,
    nodes: int,
    base: int,
    split: tuple[int, int],
    work: Triple,
    storage: float,
) -> Iterator[Row]:
    if spot_usd is None:
        return
    losses = given.losses(offer.interruption_class, nodes - base)
    busy = _times(work, 1 + losses.save_share)
    wall, paid = losses.slowdown(busy[1])
    hours = _plus(_product(busy, wall), given.startup_hours)
    priced = _product(_plus(_product(busy, paid), given.startup_hours), given.spot_price)
    fixed, spot = base * offer.on_demand_usd + storage, (nodes - base) * spot_usd
    most = nodes * offer.on_demand_usd + storage
    usd = tuple(min(fixed * mine + spot * theirs, most * mine) for mine, theirs in zip(hours, priced, strict=True))
    if _may_buy(job, kind, "spot", base, nodes - base, spot_usd):
        yield _row(job, kind, zone, "spot", nodes, base, split, hours, usd)
    deadline = job.constraints.deadline_hours
    # Whoever falls back rents the whole cluster on demand, if only at the end.
    if job.constraints.on_demand_fallback and _may_buy(job, kind, "spot", nodes, nodes - base, spot_usd):
        reserve = given.startup_hours + min(losses.interval_hours, busy[1]) + given.restart_hours
        later = [_fallen_back(*run, deadline - reserve, most) for run in zip(hours, busy, usd, strict=True)]
        dollars = [
            max(each[1] for each in later[: place + 1]) for place in range(3)
        ]  # a later quantile never costs less
        yield _row(job, kind, zone, "spot", nodes, base, split, [each[0] for each in later], dollars, falls_back=True)


def _fallen_back(wall: float, busy: float, usd: float, latest: float, on_demand_usd: float) -> tuple[float, float]:
    """On spot until only on-demand nodes are still in time, then on these. Hours, and dollars."""
    if wall <= latest:
        return wall, usd
    if latest <= busy:
        return busy, busy * on_demand_usd
    pace = busy / wall
    on_spot = (latest - busy) / (1 - pace)
    return latest, usd * on_spot / wall + (busy - pace * on_spot) * on_demand_usd


def _bases(job: Any, nodes: int) -> list[int]:
    """On-demand nodes that are tried beside spot ones."""
    asked = job.constraints.on_demand_base
    if asked is not None:
        return [asked] if asked < nodes else []
    bases = {1 if nodes > 1 else 0, *(math.ceil(share * nodes) for share in (0.25, 0.5, 0.75))}
    return sorted(base for base in bases if base < nodes)


def _may_buy(job: Any, kind: Any, market: str, on_demand: int, spot: int, spot_usd: float | None) -> bool:
    policy, quotas = job.constraints.spot, job.constraints.quotas
    if market == "spot" and (policy == "never" or spot_usd is None or job.workload.checkpoint_bytes_or_default == 0):
        return False
    if market == "on_demand" and policy == "always":
        return False
    letter = "p" if kind.name.startswith("p") else "g"
    pairs = ((on_demand, getattr(quotas.on_demand, letter)), (spot, getattr(quotas.spot, letter)))
    return all(limit is None or count * kind.vcpu <= limit for count, limit in pairs)


def _row(
    job: Any,
    kind: Any,
    zone: str,
    market: str,
    nodes: int,
    base: int,
    split: tuple[int, int],
    hours: Any,
    usd: Any,
    falls_back: bool = False,
) -> Row:
    limits = (_at_confidence(each, job.constraints.confidence) for each in (hours, usd))
    return Row(kind.name, zone, market, falls_back, nodes, base, *split, *limits)


def _times(row: Triple, factor: float) -> Triple:
    return row[0] * factor, row[1] * factor, row[2] * factor


def _plus(row: Triple, more: float) -> Triple:
    return row[0] + more, row[1] + more, row[2] + more


def _product(one: Triple, other: Triple) -> Triple:
    """Of independent quantities: log widths add in quadrature, on either side."""
    middle = one[1] * other[1]
    down = math.hypot(math.log(one[1] / one[0]), math.log(other[1] / other[0]))
    up = math.hypot(math.log(one[2] / one[1]), math.log(other[2] / other[1]))
    return middle * math.exp(-down), middle, middle * math.exp(up)


def _at_confidence(quantiles: Triple, confidence: float) -> float:
    p05, p50, p95 = quantiles
    z = NormalDist().inv_cdf(confidence) / NormalDist().inv_cdf(0.95)
    return p50 * math.exp(z * math.log(p95 / p50 if z >= 0 else p50 / p05))


def keeps_limits(row: Row, job: Any) -> bool:
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    return (deadline is None or row.hours <= deadline) and (budget is None or row.usd <= budget)


def undominated(rows: list[Row]) -> list[Row]:
    """Fastest first; of equal rows one."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.hours, row.usd)):
        if not kept or row.usd < kept[-1].usd:
            kept.append(row)
    return kept


def best(rows: list[Row], objective: str) -> Row:
    if objective == "cost":
        return min(rows, key=lambda row: (row.usd, row.hours))
    if objective == "time":
        return min(rows, key=lambda row: (row.hours, row.usd))
    curve = undominated(rows)
    if len(curve) < 3:
        return curve[-1]
    first, last = curve[0], curve[-1]

    def below_the_line(row: Row) -> float:
        across = (row.hours - first.hours) / (last.hours - first.hours)
        return 1 - across - (row.usd - last.usd) / (first.usd - last.usd)

    return max(curve, key=below_the_line)
