"""How many of the nodes asked for are there at once: a chain on their count, with the losses that come together.

Independent losses are badly wrong for a gang. Capacity is a zone's, not a node's: where one node is lost, two or more
are in a quarter to a half of the cases. The chain therefore jumps between counts as recorded, falls back where little
was recorded on a common shock (an event takes each node with the same chance), and its rates fall with age.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import comb
from spot_data import cut_off

from planner.columns import Floats, Ints
from planner.errors import InputError
from planner.inputs import Trace
from planner.spot.rates.process import AGE_EDGES_HOURS, AGES, age_bucket

_SHAPE_EVENTS = 5.0  # the pooled shape speaks with this many changes for each count and age
_JUMP_EVENTS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangChain:
    """`change_per_hour[count, age]`, then `jump[count, next count]`; ages count from the last change."""

    change_per_hour: Floats
    jump: Floats

    @property
    def size(self) -> int:
        return len(self.jump) - 1

    def counts(self, hours: float, step_hours: float, paths: int, seed: int, start: int | None = None) -> Ints:
        """Simulated node counts, a row per path and a column per step."""
        generator = np.random.default_rng(seed)
        steps = int(np.ceil(hours / step_hours))
        ends = -np.expm1(-self.change_per_hour * step_hours)
        next_count = np.cumsum(self.jump, axis=1)
        count = np.full(paths, self.size if start is None else start)
        age = np.zeros(paths)
        result = np.empty((paths, steps), dtype=np.int64)
        for step in range(steps):
            result[:, step] = count
            changed = generator.random(paths) < ends[count, age_bucket(age)]
            moved = (generator.random(paths)[:, None] > next_count[count]).sum(axis=1)
            count = np.where(changed, np.minimum(moved, self.size), count)
            age = np.where(changed, 0.0, age + step_hours)
        return result


def gang_chain(trace: Trace, until_hours: float | None = None) -> GangChain:
    """From the recorded counts, each age's rate shrunk towards the count's own, each jump towards a common shock."""
    counts = trace.counts if until_hours is None else cut_off(trace, until_hours).counts
    if counts.max() < 1:
        raise InputError("no node was ever available in this history: availability is zero", file=trace.name)
    size = int(counts.max())
    tick_hours = trace.tick_seconds / 3600
    starts = np.concatenate(([0], np.flatnonzero(np.diff(counts)) + 1))
    lengths = np.diff(np.append(starts, len(counts))) * tick_hours
    exposure, events = np.zeros((size + 1, AGES)), np.zeros((size + 1, AGES))
    jumps = np.zeros((size + 1, size + 1))
    upper = np.append(AGE_EDGES_HOURS[1:], np.inf)
    for index, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        exposure[counts[start]] += np.clip(np.minimum(length, upper) - AGE_EDGES_HOURS, 0.0, None)
        if index + 1 < len(starts):
            events[counts[start], np.searchsorted(AGE_EDGES_HOURS, length, side="left") - 1] += 1
            jumps[counts[start], counts[starts[index + 1]]] += 1
    pooled = (events.sum(axis=0) + 0.5) / (exposure.sum(axis=0) + 0.5)
    expected = exposure @ pooled
    level = (events.sum(axis=1) + _SHAPE_EVENTS) / (expected + _SHAPE_EVENTS)
    shape = np.outer(level, pooled)
    rates = (events + _SHAPE_EVENTS) / (exposure + _SHAPE_EVENTS / shape)
    prior = _JUMP_EVENTS * shock_jumps(jumps)
    return GangChain(change_per_hour=rates, jump=(jumps + prior) / (jumps + prior).sum(axis=1, keepdims=True))


def shock_jumps(jumps: Floats) -> Floats:
    """Losses as one shock that takes each node with the chance that fits the mean number lost; returns likewise."""
    size = len(jumps) - 1
    before, after = np.indices(jumps.shape)
    down, up = np.tril(jumps, -1), np.triu(jumps, 1)
    taken = _share(down, (before - after) / np.maximum(before, 1))
    given = _share(up, (after - before) / np.maximum(size - before, 1))
    result = np.zeros(jumps.shape)
    for count in range(size + 1):
        falls = float(down[count].sum() + 1) / float(jumps[count].sum() + 2)
        falls = 0.0 if count == 0 else 1.0 if count == size else falls
        lost, came = np.arange(1, count + 1), np.arange(1, size - count + 1)
        result[count, count - lost] = falls * _at_least_one(count, lost, taken)
        result[count, count + came] = (1 - falls) * _at_least_one(size - count, came, given)
    return result


def _share(jumps: Floats, part: Floats) -> float:
    total = jumps.sum()
    return float(np.clip((jumps * part).sum() / total, 0.02, 0.98)) if total else 0.5


def _at_least_one(nodes: int, lost: Ints, chance: float) -> Floats:
    """Binomial, given that it is not zero."""
    if not len(lost):
        return np.zeros(0)
    weights = comb(nodes, lost) * chance**lost * (1 - chance) ** (nodes - lost)
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentNodes:
    """The usual assumption, for comparison: each node is lost and comes back by itself."""

    size: int
    loss_per_hour: float
    return_per_hour: float

    @classmethod
    def from_trace(cls, trace: Trace) -> IndependentNodes:
        """With the node's own rates: what it lost over how long it was there."""
        change = np.diff(trace.counts)
        tick_hours, size = trace.tick_seconds / 3600, trace.size
        there = trace.counts[:-1].sum() * tick_hours
        gone = (size - trace.counts[:-1]).sum() * tick_hours
        return cls(
            size=size,
            loss_per_hour=float(-change[change < 0].sum() / max(there, 1e-9)),
            return_per_hour=float(change[change > 0].sum() / max(gone, 1e-9)),
        )

    def counts(self, hours: float, step_hours: float, paths: int, seed: int, start: int | None = None) -> Ints:
        generator = np.random.default_rng(seed)
        loss, back = -np.expm1(-self.loss_per_hour * step_hours), -np.expm1(-self.return_per_hour * step_hours)
        count = np.full(paths, self.size if start is None else start)
        result = np.empty((paths, int(np.ceil(hours / step_hours))), dtype=np.int64)
        for step in range(result.shape[1]):
            result[:, step] = count
            count = count - generator.binomial(count, loss) + generator.binomial(self.size - count, back)
        return result
