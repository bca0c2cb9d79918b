"""The planner's answer by nested loops in plain Python: slow, obvious, and independent of planner.search."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.columns import Prediction
from planner.inputs.catalog.tables import Catalog, InstanceType
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels
from planner.spot.mix import SpotMarkets, SpotTerms
from planner.spot.rates.sources import SpotHistory, SpotSource


@dataclass(frozen=True)
class Row:
    instance_type: str
    zone: str
    market: str
    nodes: int
    on_demand_count: int
    gpu_batch: int
    accumulation_steps: int
    hours: float
    usd: float


def every_candidate(job: Job, catalog: Catalog, models: FittedModels) -> Iterator[Row]:
    for kind in catalog.instance_types:
        gpu = catalog.gpu_of(kind)
        if job.workload.precision not in gpu.dense_tflops:
            continue
        for nodes in range(job.constraints.nodes.low, job.constraints.nodes.high + 1):
            for gpu_batch, micro_steps in _batches(job, nodes * kind.gpu_count):
                one = Configurations(
                    instance_type=kind,
                    gpu=gpu,
                    nodes=np.array([nodes]),
                    gpu_batch=np.array([gpu_batch]),
                    accumulation_steps=np.array([micro_steps]),
                )
                if models.memory.fits(one)[0]:
                    yield from _purchases(job, catalog, models, kind, one)


def _batches(job: Job, gpus: int) -> Iterator[tuple[int, int]]:
    low, high = job.workload.global_batch
    shares = [share for share in range(1, high // gpus + 1) if low <= share * gpus <= high]
    for share in shares:
        odd = share
        while odd % 2 == 0:
            odd //= 2
        if odd in (1, 3) or share in (shares[0], shares[-1]):
            yield from ((share // steps, steps) for steps in range(1, min(share, 64) + 1) if share % steps == 0)


def _purchases(
    job: Job, catalog: Catalog, models: FittedModels, kind: InstanceType, one: Configurations
) -> Iterator[Row]:
    nodes = int(one.nodes[0])
    regions = {region.name: region for region in catalog.regions}
    for offer in catalog.offers:
        if offer.instance_type != kind.name or offer.region not in job.constraints.regions:
            continue
        if offer.on_demand_usd is None:
            continue
        region = regions[offer.region]
        volume_gib = 200 + math.ceil(2 * job.workload.checkpoint_bytes_or_default / 2**30)
        storage = nodes * volume_gib * region.volume_usd_per_gib_month / 730
        checkpoints = 2 * job.workload.checkpoint_bytes_or_default / 2**30
        storage += checkpoints * region.object_storage_usd_per_gib_month / 730
        for zone, spot_usd in offer.spot_usd.items():
            for market, base in (("on_demand", nodes), *(("spot", base) for base in _bases(job, nodes))):
                if not _may_buy(job, kind, market, base, nodes - base, spot_usd):
                    continue
                fixed, spot = base * offer.on_demand_usd + storage, (nodes - base) * (spot_usd or 0.0)
                terms = _terms(models, job, offer.interruption_class, nodes - base) if market == "spot" else None
                most = nodes * offer.on_demand_usd + storage
                hours, usd = _hours_and_usd(models, one, terms, fixed, spot, most, job.constraints.confidence)
                split = int(one.gpu_batch[0]), int(one.accumulation_steps[0])
                yield Row(kind.name, zone, market, nodes, base, *split, hours, usd)


def _bases(job: Job, nodes: int) -> list[int]:
    """On-demand nodes that are tried beside spot ones."""
    if job.constraints.on_demand_base is not None:
        return [job.constraints.on_demand_base] if job.constraints.on_demand_base < nodes else []
    bases = {1 if nodes > 1 else 0, *(math.ceil(share * nodes) for share in (0.25, 0.5, 0.75))}
    return sorted(base for base in bases if base < nodes)


def _terms(models: FittedModels, job: Job, interruption_class: int | None, spot_nodes: int) -> SpotTerms:
    """What losses do to so many spot nodes; that is tested against simulations elsewhere."""
    overheads = models.overheads
    deadline = job.constraints.deadline_hours
    return _known_terms(overheads.save_seconds, overheads.restart_seconds, deadline, interruption_class, spot_nodes)


@functools.cache
def _known_terms(
    save_seconds: float,
    restart_seconds: float,
    deadline_hours: float | None,
    interruption_class: int | None,
    spot_nodes: int,
) -> SpotTerms:
    markets = SpotMarkets(
        history=SpotHistory(),
        save_seconds=save_seconds,
        restart_seconds=restart_seconds,
        deadline_hours=deadline_hours,
    )
    return markets.terms(SpotSource(interruption_class), np.array([spot_nodes]))


def _may_buy(job: Job, kind: InstanceType, market: str, on_demand: int, spot: int, spot_usd: float | None) -> bool:
    policy, quotas = job.constraints.spot, job.constraints.quotas
    if market == "spot" and (policy == "never" or spot_usd is None or job.workload.checkpoint_bytes_or_default == 0):
        return False
    if market == "on_demand" and policy == "always":
        return False
    quota_class = "p" if kind.name.startswith("p") else "g"
    pairs = ((on_demand, getattr(quotas.on_demand, quota_class)), (spot, getattr(quotas.spot, quota_class)))
    return all(limit is None or count * kind.vcpu <= limit for count, limit in pairs)


def _hours_and_usd(
    models: FittedModels,
    one: Configurations,
    terms: SpotTerms | None,
    fixed: float,
    spot: float,
    most: float,
    confidence: float,
) -> tuple[float, float]:
    """At the job's confidence; log widths of independent factors add in quadrature."""
    factors = [models.step_time.predict(one), models.convergence.predict(one.global_batch)]
    median = math.prod(float(factor.p50[0]) for factor in factors) / int(one.global_batch[0]) / 3600
    median *= 1 + (float(terms.save_share[0]) if terms else models.overheads.checkpoint_share)
    start = models.overheads.startup_seconds / 3600
    if terms is None:
        hours = _quantiles(median, [_log_width(factor) for factor in factors], start)
        limit = _at_confidence(hours, confidence)
        return limit, limit * fixed
    wall, paid = terms.slowdown(np.array([median]))
    hours = _quantiles(median * float(wall.p50[0]), [_log_width(factor) for factor in (*factors, wall)], start)
    paid_hours = _quantiles(median * float(paid.p50[0]), [_log_width(factor) for factor in (*factors, paid)], start)
    low, middle, high = paid_hours
    dearer = [math.log(1 / 0.64), math.log(1.91)]
    priced = (
        middle * math.exp(-math.hypot(math.log(middle / low), dearer[0])),
        middle,
        middle * math.exp(math.hypot(math.log(high / middle), dearer[1])),
    )
    usd = tuple(min(fixed * mine + spot * theirs, most * mine) for mine, theirs in zip(hours, priced, strict=True))
    return _at_confidence(hours, confidence), _at_confidence(usd, confidence)


def _quantiles(median: float, widths: list[tuple[float, float]], shift: float) -> tuple[float, ...]:
    down, up = (math.sqrt(sum(width[side] ** 2 for width in widths)) for side in (0, 1))
    return median * math.exp(-down) + shift, median + shift, median * math.exp(up) + shift


def _at_confidence(quantiles: tuple[float, ...], confidence: float) -> float:
    p05, p50, p95 = quantiles
    z = NormalDist().inv_cdf(confidence) / NormalDist().inv_cdf(0.95)
    return p50 * math.exp(z * math.log(p95 / p50 if z >= 0 else p50 / p05))


def _log_width(factor: Prediction) -> tuple[float, float]:
    low, middle, high = float(factor.p05[0]), float(factor.p50[0]), float(factor.p95[0])
    return math.log(middle / low), math.log(high / middle)


def keeps_limits(row: Row, job: Job) -> bool:
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
