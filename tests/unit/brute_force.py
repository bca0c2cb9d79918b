"""The planner's answer by nested loops in plain Python: slow, obvious, and independent of planner.search."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from planner.catalog import Catalog, InstanceType
from planner.job import Job
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels
from planner.models.memory import fits
from planner.models.prediction import Prediction


@dataclass(frozen=True)
class Row:
    instance_type: str
    zone: str
    market: str
    nodes: int
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
                if fits(one, job.workload)[0]:
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
            for market in ("on_demand", "spot"):
                anchors = nodes if market == "on_demand" else int(nodes > 1)
                if not _may_buy(job, kind, market, anchors, nodes - anchors, spot_usd):
                    continue
                machines = anchors * offer.on_demand_usd + (nodes - anchors) * (spot_usd or 0.0)
                hours, priced_hours = _hours(job, models, one, spot=market == "spot")
                yield Row(
                    kind.name,
                    zone,
                    market,
                    nodes,
                    int(one.gpu_batch[0]),
                    int(one.accumulation_steps[0]),
                    hours,
                    priced_hours * (machines + storage),
                )


def _may_buy(job: Job, kind: InstanceType, market: str, on_demand: int, spot: int, spot_usd: float | None) -> bool:
    policy, quotas = job.constraints.spot, job.constraints.quotas
    if market == "spot" and (policy == "never" or spot_usd is None or job.workload.checkpoint_bytes_or_default == 0):
        return False
    if market == "on_demand" and policy == "always":
        return False
    quota_class = "p" if kind.name.startswith("p") else "g"
    pairs = ((on_demand, getattr(quotas.on_demand, quota_class)), (spot, getattr(quotas.spot, quota_class)))
    return all(limit is None or count * kind.vcpu <= limit for count, limit in pairs)


def _hours(job: Job, models: FittedModels, one: Configurations, *, spot: bool) -> tuple[float, float]:
    """At the job's confidence, without and with what the price may do; log widths add in quadrature."""
    factors = [models.step_time.predict(one), models.convergence.predict(one.global_batch)]
    median = math.prod(float(factor.p50[0]) for factor in factors) / int(one.global_batch[0])
    median *= (1 + models.overheads.checkpoint_share) / 3600
    widths = [_log_width(factor) for factor in factors]
    if spot:
        median *= 1.15
        widths.append((math.log(1.15 / 1.03), math.log(1.60 / 1.15)))
    start = models.overheads.startup_seconds / 3600
    down, up = (math.sqrt(sum(width[side] ** 2 for width in widths)) for side in (0, 1))
    p05, p50, p95 = median * math.exp(-down) + start, median + start, median * math.exp(up) + start
    low, high = math.log(p50 / p05), math.log(p95 / p50)
    price_low, price_high = (math.log(1 / 0.64), math.log(1.91)) if spot else (0.0, 0.0)
    z = NormalDist().inv_cdf(job.constraints.confidence) / NormalDist().inv_cdf(0.95)
    return (
        p50 * math.exp(z * (high if z >= 0 else low)),
        p50 * math.exp(z * (math.hypot(high, price_high) if z >= 0 else math.hypot(low, price_low))),
    )


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
