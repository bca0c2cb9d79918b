"""Two kinds of machines in one gang: where quotas leave too few of either, both together may do.

Every step ends with the slowest GPU and the slowest link, so each kind gets a local batch of its own, with which both
compute for about as long, and gradients are weighted by samples (Srifty, MLSys 2022):

    pace         c = computing of one kind at a batch worth trying; the other takes the most samples within c
    step         max over kinds of computing(m) + max over kinds of exposed communication(nodes in all, m)
    batch        B = sum of nodes x GPUs x m

Computing is the step on one node; what more nodes add to it is exposed communication, as if all were of that kind.
Between the batches of the table a step is linear in m. Local batches are whole, none takes micro-steps, and each must
fit the memory of its own kind. Exact within these: a pair of kinds and of counts is left out only where it could not
win even if nobody ever waited for anybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints, Prediction, Quantiles
from planner.inputs import Catalog, InstanceType, Job
from planner.models import Configurations
from planner.search.candidates import batch_shares, offers_by_market
from planner.search.pricing import Predictors

_SURE = 0.95  # what a p95 is a bound of


class MixedGang(NamedTuple):
    """The best of them. What there are two of, there is in the order of the kinds."""

    instance_types: tuple[str, str]
    nodes: tuple[int, int]
    gpus_per_node: tuple[int, int]
    gpu_batches: tuple[int, int]
    region: str
    zone: str
    global_batch: int
    hourly_usd: float
    step_seconds: Quantiles
    hours: Quantiles
    hours_limit: float
    usd: Quantiles
    usd_limit: float
    extrapolated: bool

    @property
    def weights(self) -> tuple[float, ...]:
        """Of a process's mean gradient in the mean of all samples; plain averaging divides by the processes."""
        processes = sum(count * gpus for count, gpus in zip(self.nodes, self.gpus_per_node, strict=True))
        return tuple(batch * processes / self.global_batch for batch in self.gpu_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is known of one instance type: the steps of 1 to `most` nodes at each batch of the table."""

    instance_type: InstanceType
    batches: Ints
    largest: Ints  # that fits, by nodes
    computing: Floats  # by quantile and batch
    exposed: Floats  # by quantile, nodes and batch
    extrapolated: Flags  # by nodes
    usd: dict[tuple[str, str], tuple[float, float]]  # by region and zone: a node with its volumes, and checkpoints

    @property
    def gpus(self) -> int:
        return self.instance_type.gpu_count

    def computing_at(self, batch: Ints) -> Floats:
        return np.stack([np.interp(batch, self.batches, row) for row in self.computing])

    def most_within(self, seconds: Floats) -> Ints:
        """The largest whole batch that it computes in this time; 0 where it cannot even take one sample."""
        pace = np.maximum.accumulate(self.computing[1])
        batch = np.floor(np.interp(seconds, pace, self.batches, left=0) + 1e-9)
        return np.asarray(batch, dtype=np.int64)


def kind_of(
    instance_type: InstanceType, job: Job, catalog: Catalog, regions: tuple[str, ...], predictors: Predictors
) -> Kind | None:
    """None where it is not sold, or holds no sample."""
    workload = job.workload
    sizes = workload.checkpoint_bytes_or_default, job.run.copied_bytes
    offers = offers_by_market(catalog, instance_type, regions, *sizes)["on_demand"]
    units = catalog.gpu_of(instance_type).peak_flops_per_second(workload.precision)
    most = min(predictors.largest_batch(instance_type), workload.global_batch.high)
    if not len(offers) or units is None or most < 1:
        return None
    batches = np.array(batch_shares(1, most), dtype=np.int64)
    counts = np.arange(1, job.constraints.nodes.high + 1)
    nodes, each = (column.ravel() for column in np.meshgrid(counts, batches, indexing="ij"))
    every = Configurations.of(catalog, instance_type, nodes=nodes, gpu_batch=each)
    shape = (len(counts), len(batches))
    step, fits = predictors.step_seconds(every), predictors.fits(every).reshape(shape)
    seconds = np.stack([column.reshape(shape) for column in (step.p05, step.p50, step.p95)])
    places, nodes_usd = (
        list(zip(offers.regions, offers.zones, strict=True)),
        offers.node_usd + offers.volume_usd_per_node,
    )
    return Kind(
        instance_type=instance_type,
        batches=batches,
        largest=np.max(np.where(fits, batches, 0), axis=1),
        computing=seconds[:, 0],
        exposed=np.maximum(seconds - seconds[:, :1], 0.0),
        extrapolated=np.asarray(step.extrapolated.reshape(shape).any(axis=1)),
        usd=dict(zip(places, zip(nodes_usd.tolist(), offers.checkpoint_usd.tolist(), strict=True), strict=True)),
    )


def best_mixed_gang(
    job: Job,
    catalog: Catalog,
    instance_types: Sequence[InstanceType],
    regions: tuple[str, ...],
    predictors: Predictors,
    better_than: float = np.inf,
) -> MixedGang | None:
    """By the job's objective, within its limits and quotas, on demand; None where none is better than that."""
    found = (kind_of(each, job, catalog, regions, predictors) for each in instance_types)
    held = [kind for kind in found if kind is not None]
    kinds = [kind for kind in held if predictors.feeds(kind.instance_type)] or held
    rule = _Rule.of(job, predictors)
    pairs = [pair for one, other in itertools.combinations(kinds, 2) if (pair := rule.pair(one, other)) is not None]
    pairs.sort(key=lambda pair: float(pair.bound.min()))
    best: MixedGang | None = None
    for pair in pairs:
        limit = better_than if best is None else min(better_than, rule.value(best))
        if pair.bound.min() >= limit:
            break
        for gang in rule.best_of(pair.at(pair.bound < limit)):
            if rule.value(gang) < better_than and (best is None or rule.key(gang) < rule.key(best)):
                best = gang
    return best


class _Pair(NamedTuple):
    """Two kinds, every count of each, and the least that the objective could come to with these."""

    kinds: tuple[Kind, Kind]
    nodes: tuple[Ints, Ints]
    places: list[tuple[str, str]]
    place: Ints  # which of these
    hourly_usd: Floats
    bound: Floats

    def at(self, rows: Flags) -> _Pair:
        nodes = self.nodes[0][rows], self.nodes[1][rows]
        return _Pair(self.kinds, nodes, self.places, self.place[rows], self.hourly_usd[rows], self.bound[rows])


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is wanted, and what everything costs beside steps and nodes."""

    job: Job
    predictors: Predictors
    samples: Prediction  # of every batch that is allowed, from the smallest on

    @classmethod
    def of(cls, job: Job, predictors: Predictors) -> _Rule:
        allowed = job.workload.global_batch
        return cls(job, predictors, predictors.samples(np.arange(allowed.low, allowed.high + 1)))

    @property
    def by_time(self) -> bool:
        return self.job.objective_or_default == "time"

    def value(self, gang: MixedGang) -> float:
        return gang.hours_limit if self.by_time else gang.usd_limit

    def key(self, gang: MixedGang) -> tuple[object, ...]:
        other = gang.usd_limit if self.by_time else gang.hours_limit
        return self.value(gang), other, gang.instance_types, gang.nodes, gang.gpu_batches, gang.zone

    def pair(self, one: Kind, other: Kind) -> _Pair | None:
        """None where the two are never sold side by side, or no counts are allowed."""
        places = _places(one, other)
        first, second = self._counts(one, other)
        if not places or not len(first):
            return None
        hourly = np.stack(
            [first * one.usd[at][0] + second * other.usd[at][0] + one.usd[at][1] for at in places], axis=1
        )
        place, dollars = hourly.argmin(axis=1), hourly.min(axis=1)
        bound = self._bound(one, other, first, second, dollars)
        return _Pair((one, other), (first, second), places, place, dollars, bound)

    def _counts(self, one: Kind, other: Kind) -> tuple[Ints, Ints]:
        """At least one of each, as many as constraints and quotas allow."""
        constraints = self.job.constraints
        most = constraints.nodes.high
        first, second = (column.ravel() for column in np.mgrid[1:most, 1:most])
        total = first + second
        allowed = (total >= constraints.nodes.low) & (total <= most)
        for quota_class in ("g", "p"):
            limit = getattr(constraints.quotas.on_demand, quota_class)
            if limit is not None:
                used = sum(
                    count * kind.instance_type.vcpu
                    for count, kind in ((first, one), (second, other))
                    if kind.instance_type.quota_class == quota_class
                )
                allowed &= np.asarray(used <= limit)
        return first[allowed], second[allowed]

    def _bound(self, one: Kind, other: Kind, first: Ints, second: Ints, hourly: Floats) -> Floats:
        """Hours or dollars if every GPU trained on its own, at its best, with the fewest samples."""
        confidence = self.job.constraints.confidence
        if confidence < 0.5:
            return np.zeros(len(first))
        quantile = 2 if confidence >= _SURE else 1
        rates = [
            kind.gpus * float((kind.batches / kind.computing[quantile]).max()) * count
            for kind, count in ((one, first), (other, second))
        ]
        least = float(self.samples.p50.min())
        hours = least / (rates[0] + rates[1]) / 3600 * (1 + self.predictors.checkpoint_share)
        limits = self.job.constraints
        impossible = (hours > (limits.deadline_hours or np.inf)) | (hours * hourly > (limits.budget_usd or np.inf))
        return np.where(impossible, np.inf, hours if self.by_time else hours * hourly)

    def best_of(self, pair: _Pair) -> Iterator[MixedGang]:
        """The best of a pair, if any keeps the limits."""
        (one, other), (first, second) = pair.kinds, pair.nodes
        batches = _balanced(one, other)
        row, at = (column.ravel() for column in np.mgrid[0 : len(first), 0 : len(batches)])
        counts, local = (first[row], second[row]), (batches[at, 0], batches[at, 1])
        total = counts[0] + counts[1]
        size = counts[0] * one.gpus * local[0] + counts[1] * other.gpus * local[1]
        allowed = self.job.workload.global_batch
        possible = (size >= allowed.low) & (size <= allowed.high)
        for kind, batch in zip((one, other), local, strict=True):
            possible &= batch <= kind.largest[total - 1]
        kept = np.flatnonzero(possible)
        if not len(kept):
            return
        row, total, size = row[kept], total[kept], size[kept]
        counts, local = (counts[0][kept], counts[1][kept]), (local[0][kept], local[1][kept])
        step = _steps(pair.kinds, total, local)
        samples = self.samples.at(size - allowed.low)
        work = step.times(samples.scaled(1.0 / size)).scaled(1 / 3600)
        hours = work.scaled(1 + self.predictors.checkpoint_share, shift=self.predictors.startup_seconds / 3600)
        usd = hours.scaled(pair.hourly_usd[row])
        confidence, limits = self.job.constraints.confidence, self.job.constraints
        slow, dear = hours.quantile(confidence), usd.quantile(confidence)
        holds = (slow <= (limits.deadline_hours or np.inf)) & (dear <= (limits.budget_usd or np.inf))
        if not holds.any():
            return
        value, second_value = (slow, dear) if self.by_time else (dear, slow)
        ties = np.flatnonzero(holds & (value == value[holds].min()))
        keys = (local[1], local[0], counts[1], counts[0], second_value)
        best = int(ties[np.lexsort([key[ties] for key in keys])[0]])
        region, zone = pair.places[int(pair.place[row[best]])]
        only = np.array([best])
        yield MixedGang(
            instance_types=(one.instance_type.name, other.instance_type.name),
            nodes=(int(counts[0][best]), int(counts[1][best])),
            gpus_per_node=(one.gpus, other.gpus),
            gpu_batches=(int(local[0][best]), int(local[1][best])),
            region=region,
            zone=zone,
            global_batch=int(size[best]),
            hourly_usd=float(pair.hourly_usd[row[best]]),
            step_seconds=step.at(only).rows()[0],
            hours=hours.at(only).rows()[0],
            hours_limit=float(slow[best]),
            usd=usd.at(only).rows()[0],
            usd_limit=float(dear[best]),
            extrapolated=bool(hours.extrapolated[best]),
        )


def _places(one: Kind, other: Kind) -> list[tuple[str, str]]:
    """Where both are sold, without zones where neither kind nor storing is cheaper than in one that is kept."""
    kept: dict[tuple[float, ...], tuple[str, str]] = {}
    sold = sorted((*one.usd[at], other.usd[at][0], at) for at in one.usd.keys() & other.usd.keys())
    for *usd, at in sold:
        if not any(all(here <= there for here, there in zip(better, usd, strict=True)) for better in kept):
            kept[tuple(usd)] = at
    return list(kept.values())


def _balanced(one: Kind, other: Kind) -> Ints:
    """Local batches of both with which neither waits for long: each batch of the table sets the pace once."""
    ahead = np.stack([one.batches, other.most_within(one.computing[1])], axis=1)
    behind = np.stack([one.most_within(other.computing[1]), other.batches], axis=1)
    both = np.unique(np.concatenate([ahead, behind]), axis=0)
    return np.asarray(both[(both > 0).all(axis=1)])


def _steps(kinds: tuple[Kind, Kind], nodes: Ints, batches: tuple[Ints, Ints]) -> Prediction:
    """Of gangs of so many nodes, whose kinds take these batches: the slowest GPU, then the slowest link."""
    computing = np.maximum(*(kind.computing_at(batch) for kind, batch in zip(kinds, batches, strict=True)))
    waiting = np.maximum(*(_exposed_at(kind, nodes, batch) for kind, batch in zip(kinds, batches, strict=True)))
    low, middle, high = np.sort(computing + waiting, axis=0)
    extrapolated = kinds[0].extrapolated[nodes - 1] | kinds[1].extrapolated[nodes - 1]
    return Prediction(p05=low, p50=middle, p95=high, extrapolated=extrapolated)


def _exposed_at(kind: Kind, nodes: Ints, batch: Ints) -> Floats:
    """Linear between the two batches of the table around each."""
    above = np.clip(np.searchsorted(kind.batches, batch), 1, max(len(kind.batches) - 1, 1))
    if len(kind.batches) == 1:
        return np.asarray(kind.exposed[:, nodes - 1, 0])
    low, high = kind.batches[above - 1], kind.batches[above]
    share = (batch - low) / (high - low)
    return np.asarray(kind.exposed[:, nodes - 1, above - 1] * (1 - share) + kind.exposed[:, nodes - 1, above] * share)
