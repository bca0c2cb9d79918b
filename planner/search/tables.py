"""Every way to spread one transformer over nodes: nodes x micro-batch x sharding x parallelism x recomputation.

Most rows cannot win, whatever they cost, and are left out before anything is predicted:

    recomputation       where as much fits with less of it: it only adds work
    micro-batches       without stages: all but the largest that fits, for each recomputation. A micro-step of m samples
                        takes f(m) with f(m) / m falling, and fewer micro-steps never hide less of the communication
    other shardings     where data parallelism has one GPU, nothing is sharded and all take as long: the first to fit;
                        where it has one node, hsdp is fsdp

With stages a smaller micro-batch makes the bubble shorter, so all of them are kept there. Of the ways to take equally
many samples with one sharding and parallelism, the fastest in the middle is the candidate, whatever the intervals: what
is not known of them, they share. A test compares the choice with plain loops over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints, Prediction
from planner.inputs import (
    RECOMPUTES,
    SHARDINGS,
    Catalog,
    CountRange,
    InstanceType,
    ParallelStrategy,
    StrategyOptions,
    TransformerShape,
)
from planner.models import Configurations, Strategies
from planner.search.candidates import batch_shares, splits_of, usual_batch
from planner.search.pricing import Predictors, work_hours

_LEAST_QUANTILE = 0.95  # the p95 is shown in any case
_APART = 100.0  # of logarithms of hours: more than any two of them are
_FSDP, _HSDP = SHARDINGS.index("fsdp"), SHARDINGS.index("hsdp")


class Kept(NamedTuple):
    """Rows that may win, their hours of work, and how many candidates each stands for, itself included."""

    configurations: Configurations
    work: Prediction
    stand_for: Ints

    @classmethod
    def of(cls, rows: Configurations, work: Prediction, every_nodes: Ints) -> Kept:
        """`every_nodes`: of all candidates, these rows and those that were left out before."""
        best = unbeaten_rows(_kind(rows), work)
        kept = rows.at(best)
        return cls(kept, work.at(best), _stand_for(every_nodes, kept.nodes))


@dataclass(frozen=True, slots=True)
class PlainTable:
    """Rows of a job without a shape."""

    configurations: Configurations

    @property
    def batches(self) -> Ints:
        """Of the first rows; those of the others repeat them."""
        return self.configurations.global_batch

    def possible(self, fits: Flags) -> Flags:
        return fits

    def unbeaten(
        self,
        configurations: Configurations,
        fits: Flags,
        samples: Prediction,
        predictors: Predictors,
        quantile: float,
    ) -> Kept:
        """`configurations` are those of the table on one instance type, `samples` those of its batches."""
        fitting, samples = configurations.at(fits), samples.at(fits)
        least = predictors.least_seconds(fitting)
        if least is not None:
            near = _near_best(fitting, least, samples, predictors, quantile)
            fitting, samples = fitting.at(near), samples.at(near)
        work = work_hours(fitting, samples, predictors, every_split=True)
        return Kept.of(fitting, work, configurations.nodes[fits])


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTable:
    """Rows in blocks of one sharding and recomputation each, which all have the same nodes and batches."""

    configurations: Configurations
    differs: Flags  # from every row before it
    is_whole: Flags  # nothing is sharded
    blocks: tuple[int, int, int]  # shardings, recomputations, rows of each
    starts: Ints  # in a block, where the ways to take equally many samples begin, smaller micro-batches first

    @property
    def batches(self) -> Ints:
        return self._block(self.configurations.global_batch)

    def possible(self, fits: Flags) -> Flags:
        """Of what is not sharded the first sharding that fits: its name decides what is held, not what is computed."""
        fits = (fits & self.differs).reshape(self.blocks)
        before: Ints = np.cumsum(fits, axis=0) - fits
        return np.asarray(fits & ~(self.is_whole.reshape(self.blocks) & (before > 0))).ravel()

    def unbeaten(
        self,
        configurations: Configurations,
        fits: Flags,
        samples: Prediction,
        predictors: Predictors,
        quantile: float,
    ) -> Kept:
        rows = np.flatnonzero(self.worth_trying(fits))
        least = predictors.least_seconds(configurations.at(rows))
        if least is None:
            least = predictors.step_seconds(configurations.at(rows)).p50
        fastest = self._fastest(rows, least)
        rows, least = rows[fastest], least[fastest]
        trying, its_samples = configurations.at(rows), samples.at(rows % len(self.batches))
        near = _near_best(trying, least, its_samples, predictors, quantile)
        trying = trying.at(near)
        return Kept.of(trying, work_hours(trying, its_samples.at(near), predictors), configurations.nodes[fits])

    def _fastest(self, rows: Ints, middle: Floats) -> Flags:
        """Of the ways to take equally many samples with one sharding and parallelism."""
        sharding, row = rows // (self.blocks[1] * self.blocks[2]), rows % self.blocks[2]
        way = sharding * len(self.starts) + np.searchsorted(self.starts, row, side="right") - 1
        least = np.full(self.blocks[0] * len(self.starts), np.inf)
        np.minimum.at(least, way, middle)
        return np.asarray(middle == least[way])

    def worth_trying(self, fits: Flags) -> Flags:
        """Of those that fit and differ, the ones that may win."""
        fits = fits.reshape(self.blocks)
        rows = len(self.starts) and np.diff(np.append(self.starts, self.blocks[2]))
        micro_batch = self._block(self.configurations.gpu_batch)
        kept = np.zeros_like(fits)
        largest_before = np.zeros((self.blocks[0], self.blocks[2]))
        fits_before = np.zeros((self.blocks[0], self.blocks[2]), dtype=bool)
        strategies = self.configurations.strategies
        staged = np.zeros(0) if strategies is None else self._block(strategies.pipeline) > 1
        for again in range(self.blocks[1] if self.blocks[2] else 0):
            sizes = np.where(fits[:, again], micro_batch, 0)
            largest = np.repeat(np.maximum.reduceat(sizes, self.starts, axis=1), rows, axis=1)
            best = (sizes == largest) & (largest > largest_before)
            kept[:, again] = fits[:, again] & np.where(staged, ~fits_before, best)
            largest_before = np.maximum(largest_before, largest)
            fits_before |= fits[:, again]
        return kept.ravel()

    def _block(self, column: Ints) -> Ints:
        return column[: self.blocks[2]]


def _near_best(
    rows: Configurations, least_seconds: Floats, samples: Prediction, predictors: Predictors, quantile: float
) -> Ints:
    """Those that may be among the best of their kind: at least not slower than the upper end of the fastest.

    The middle of a step takes much less to predict than its interval. Finer splits that are left out would bound what
    is kept no lower than that end, and so change nothing.
    """
    if not len(rows):
        return np.arange(0)
    kind, least = _kind(rows), least_seconds * samples.p50 / rows.global_batch / 3600
    end = np.full(int(kind.max()) + 1, np.inf)
    np.minimum.at(end, kind, least)
    fastest = np.flatnonzero(least == end[kind])
    work = work_hours(rows.at(fastest), samples.at(fastest), predictors, every_split=True)
    end[kind[fastest]] = work.quantile(max(quantile, _LEAST_QUANTILE))
    return np.flatnonzero(least <= end[kind])


def _kind(rows: Configurations) -> Ints:
    """Rows with as many nodes are compared: with batches that people would run, and with others."""
    return np.asarray(2 * rows.nodes + usual_batch(rows))


def unbeaten_rows(group: Ints, work: Prediction) -> Ints:
    """Rows that no other of their group beats, of equal rows the first.

    As many nodes cost the same an hour and are lost as often: who has more work to do, and knows it no better, cannot
    be faster or cheaper.
    """
    if not len(group):
        return group
    end = work.p95 / work.p50
    least, least_end = np.full((2, int(group.max()) + 1), np.inf)
    np.minimum.at(least, group, work.p50)
    fastest = np.flatnonzero(work.p50 == least[group])
    np.minimum.at(least_end, group[fastest], end[fastest])
    near = np.flatnonzero(end <= least_end[group])  # few: only these are sorted
    near = near[np.lexsort((end[near], work.p50[near], group[near]))]
    # Groups one below the other, so that what is the least so far begins anew with each.
    ends = np.log(end[near]) - _APART * group[near]
    before = np.concatenate(([np.inf], np.minimum.accumulate(ends)[:-1]))
    return np.sort(near[ends < before])


def _stand_for(fitting_nodes: Ints, kept_nodes: Ints) -> Ints:
    """Of each number of nodes, the first kept row counts all that it beats."""
    counts = np.bincount(fitting_nodes)[kept_nodes] - np.bincount(kept_nodes)[kept_nodes] + 1
    first = np.zeros(len(kept_nodes), dtype=bool)
    first[np.unique(kept_nodes, return_index=True)[1]] = True
    return np.where(first, counts, 1)


class Wanted(NamedTuple):
    """What a row must be; None is left open."""

    global_batch: CountRange | None = None
    gpu_batch: int | None = None  # then in one micro-step, or in as many as the global batch takes
    strategy: ParallelStrategy | None = None


def strategy_table(
    catalog: Catalog,
    instance_type: InstanceType,
    nodes: CountRange,
    shape: TransformerShape,
    options: StrategyOptions,
    wanted: Wanted,
) -> StrategyTable:
    """Of every instance type with as many GPUs."""
    asked = wanted.strategy
    degrees = [(asked.tensor_parallel, asked.pipeline)] if asked else _degrees(instance_type, shape, options)
    block, starts = _block(instance_type.gpu_count, nodes, degrees, wanted)
    shardings = [SHARDINGS.index(name) for name in ((asked.sharding,) if asked else options.sharding)]
    again = [RECOMPUTES.index(name) for name in ((asked.recompute,) if asked else options.recompute)]
    count, micro_batch, micro_steps, tensor, stages = (np.tile(c, len(shardings) * len(again)) for c in block)
    size = block.shape[1]
    configurations = Configurations.of(
        catalog,
        instance_type,
        nodes=count,
        gpu_batch=micro_batch,
        accumulation_steps=micro_steps,
        strategies=Strategies.of(
            np.repeat(shardings, len(again) * size), tensor, stages, np.tile(np.repeat(again, size), len(shardings))
        ),
    )
    return StrategyTable(
        configurations=configurations,
        differs=_differs(configurations, shardings),
        is_whole=configurations.data_parallel == 1,
        blocks=(len(shardings), len(again), size),
        starts=starts,
    )


def _degrees(instance_type: InstanceType, shape: TransformerShape, options: StrategyOptions) -> list[tuple[int, int]]:
    """Powers of two of tensor parallelism, within a node, and of stages."""
    tensor = [
        t
        for t in _powers(min(options.tensor_parallel, instance_type.gpu_count))
        if instance_type.gpu_count % t == 0 and shape.heads % t == 0 and shape.key_value_heads_or_default % t == 0
    ]
    return list(product(tensor, _powers(min(options.pipeline, shape.layers))))


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


def _block(gpus: int, nodes: CountRange, degrees: list[tuple[int, int]], wanted: Wanted) -> tuple[Ints, Ints]:
    """Columns of nodes, micro-batch, micro-steps, tensor parallelism and stages; and where equal samples begin."""
    parts, starts, before = [np.zeros((5, 0), dtype=np.int64)], [np.zeros(0, dtype=np.int64)], 0
    for tensor, stages in degrees:
        for count in range(nodes.low, nodes.high + 1):
            copies, rest = divmod(count * gpus, tensor * stages)
            if rest or not copies:
                continue
            batches, first = _ways(copies, wanted)
            size = batches.shape[1]
            parts.append(np.vstack([np.full(size, count), batches, np.full((2, size), [[tensor], [stages]])]))
            starts.append(first + before)
            before += size
    return np.hstack(parts), np.concatenate(starts)


def _ways(copies: int, wanted: Wanted) -> tuple[Ints, Ints]:
    batch, each = wanted.global_batch, wanted.gpu_batch
    if each is None:
        return _batches(-(-batch.low // copies), batch.high // copies) if batch else _batches(1, 0)
    steps, rest = divmod(batch.low, copies * each) if batch else (1, 0)
    ways = [] if rest or not steps else [(each, steps)]
    return np.array(ways, dtype=np.int64).reshape(-1, 2).T, np.zeros(len(ways), dtype=np.int64)


@lru_cache(maxsize=1 << 12)
def _batches(low: int, high: int) -> tuple[Ints, Ints]:
    """Micro-batches and micro-steps of one copy of the model, and where the next number of samples begins."""
    ways = [sorted(splits_of(share)) for share in batch_shares(low, high)]
    first = np.cumsum([0, *(len(each) for each in ways)])[:-1]
    return np.array([pair for each in ways for pair in each], dtype=np.int64).reshape(-1, 2).T, first


def _differs(configurations: Configurations, shardings: list[int]) -> Flags:
    """Without what is the same as another row."""
    strategies, copies = configurations.strategies, configurations.data_parallel
    if strategies is None:
        return np.ones(len(configurations), dtype=bool)
    kind, of_node = strategies.sharding, configurations.instance_type.gpu_count // strategies.tensor_parallel
    hybrid = kind == _HSDP
    as_fsdp = hybrid & (copies <= of_node) & (_FSDP in shardings)
    uneven = hybrid & (copies % np.minimum(of_node, copies) != 0)
    return np.asarray(~(as_fsdp | uneven))
