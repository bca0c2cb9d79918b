"""Which strategies of a transformer fit a GPU's memory, by formula, published measurements and the job's own probes.

A configuration fits where it does so with the confidence that the job asks for. Peaks that probes measured move the
median of all configurations. Beside that stand facts, each of one strategy (sharding, tensor and pipeline parallelism,
recomputation):

    it ran              so does whatever needs no more by formula, on a GPU with as much memory or more
    it was too large    so is whatever needs as much by formula, on a GPU with as much memory or less

Where both meet, what was too large wins. What did not fit also moves the median, until it needs more than was free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any, NamedTuple, Self

import numpy as np

from planner.columns import Flags, Floats
from planner.inputs import Catalog, InstanceType, Measurement, ParallelStrategy, TransformerShape, Workload, median
from planner.models.configurations import Configurations
from planner.models.sharded_memory.calibration import (
    FRAGMENTED,
    GIB,
    SHIPPED,
    Calibration,
    free_bytes,
    largest_formula_bytes,
)
from planner.models.sharded_memory.peak import peak_bytes, peak_memory
from planner.models.sharded_memory.rows import StrategyRows
from planner.models.sharded_memory.stage import state_bytes
from planner.models.sharded_memory.strategy import Strategy, job_strategy
from planner.models.strategies import Strategies

ABSURD_FACTOR = 10.0  # a peak so far off the formula is of another model, or in another unit


class _KnownStrategy(NamedTuple):
    """A strategy that ran, or was too large, at so many bytes by formula on a GPU of so much memory."""

    strategy: ParallelStrategy
    formula_bytes: float
    memory_gib: float


class ShardedMemoryModel:
    """Says which configurations with a strategy fit the GPUs of the catalogue."""

    def __init__(self, workload: Workload, shape: TransformerShape, catalog: Catalog, confidence: float) -> None:
        self.workload, self.shape, self.catalog, self.confidence = workload, shape, catalog, confidence
        self.job = job_strategy(workload)
        self.calibration_: Calibration = SHIPPED
        self.ran_: tuple[_KnownStrategy, ...] = ()
        self.too_large_: tuple[_KnownStrategy, ...] = ()
        self.warnings_: tuple[str, ...] = ()
        self._last: tuple[Configurations, Floats] | None = None

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """In any order, on any instance type of the catalogue; rows without a strategy are of DDP."""
        self.ran_ = tuple(self._known(row, row.gpu_batch) for row in measurements)
        self.too_large_ = tuple(
            self._known(row, row.out_of_memory_at) for row in measurements if row.out_of_memory_at is not None
        )
        traced = [] if self.workload.memory_factor is None else [log(self.workload.memory_factor)]
        self.calibration_ = SHIPPED.measured([*traced, *self._log_ratios(measurements)])
        short = [free_bytes(mark.memory_gib) / (FRAGMENTED * mark.formula_bytes) for mark in self.too_large_]
        allocated = max([self.calibration_.allocated, *short])
        self.calibration_ = self.calibration_._replace(allocated=allocated)
        return self

    def fits(self, configurations: Configurations) -> Flags:
        """Row by row, with the job's confidence."""
        needed, memory_gib = self.formula_bytes(configurations), configurations.gpu.memory_gib
        fitting = needed <= largest_formula_bytes(memory_gib, self.confidence, self.calibration_)
        for ran in self.ran_:
            if ran.memory_gib <= memory_gib:
                fitting |= (needed <= ran.formula_bytes) & _is_of(configurations, ran.strategy)
        for mark in self.too_large_:
            if mark.memory_gib >= memory_gib:
                fitting &= (needed < mark.formula_bytes) | ~_is_of(configurations, mark.strategy)
        return np.asarray(fitting)

    def formula_bytes(self, configurations: Configurations) -> Floats:
        """At the fullest moment. The same on every instance type with as many GPUs, so it is asked for again."""
        if self._last is not None and _same_rows(self._last[0], configurations):
            return self._last[1]
        needed = peak_bytes(self.shape, StrategyRows.of(self.job, configurations))
        self._last = configurations, needed
        return needed

    def largest_batch(self, instance_type: InstanceType, nodes: int = 1) -> int:
        """The largest micro-batch that fits in the leanest way that the script can do; 0 when not even one does."""
        options = self.workload.strategies_or_default
        leanest = ParallelStrategy(sharding=options.sharding[-1], recompute=options.recompute[-1])
        sizes = 2 ** np.arange(0, 25)
        rows = Configurations.of(
            self.catalog,
            instance_type,
            nodes=nodes,
            gpu_batch=sizes,
            strategies=Strategies.repeated(leanest, len(sizes)),
        )
        return int(sizes[self.fits(rows)].max(initial=0))

    @property
    def needs(self) -> str:
        """In words, whatever the cluster."""
        return f"{self.state_bytes / GIB:,.0f} GiB of state, shared between GPUs as far as workload.strategies allow"

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer state of the whole model."""
        return state_bytes(self.shape, self.job)

    def strategy_of(self, one: Configurations) -> Strategy:
        """Of the first row, with all that decides what a GPU holds."""
        spread = one.strategies.one(0) if one.strategies else ParallelStrategy()
        return self._strategy(
            spread,
            gpus=int(one.gpus[0]),
            gpus_per_node=one.instance_type.gpu_count,
            micro_batch=int(one.gpu_batch[0]),
            accumulation=int(one.accumulation_steps[0]),
        )

    def _strategy(self, spread: ParallelStrategy, **how: Any) -> Strategy:
        return replace(self.job, **spread.model_dump(), **how)

    def _known(self, row: Measurement, gpu_batch: int) -> _KnownStrategy:
        memory_gib = self.catalog.gpu_of(self.catalog.instance_type_by_name[row.instance_type]).memory_gib
        return _KnownStrategy(row.strategy or ParallelStrategy(), self._formula_bytes_of(row, gpu_batch), memory_gib)

    def _formula_bytes_of(self, row: Measurement, gpu_batch: int) -> float:
        strategy = self._strategy(
            row.strategy or ParallelStrategy(),
            gpus=row.nodes * row.gpus_per_node,
            gpus_per_node=row.gpus_per_node,
            micro_batch=gpu_batch,
            accumulation=row.accumulation_steps,
        )
        return peak_memory(self.shape, strategy).parts.total

    def _log_ratios(self, measurements: Sequence[Measurement]) -> list[float]:
        """Measured over formula, of each configuration once; what cannot be is named in `warnings_`."""
        ratios: dict[float, list[float]] = {}
        odd = set()
        for row in measurements:
            if row.peak_memory_bytes is None:
                continue
            formula = self._formula_bytes_of(row, row.gpu_batch)
            if 1 / ABSURD_FACTOR < row.peak_memory_bytes / formula < ABSURD_FACTOR:
                ratios.setdefault(formula, []).append(log(row.peak_memory_bytes / formula))
            else:
                peak = f"a peak of {row.peak_memory_bytes / GIB:.3g} GiB at {row.gpu_batch} samples per GPU"
                odd.add(f"used without {peak}: by formula it is about {formula / GIB:.3g} GiB")
        self.warnings_ = tuple(sorted(odd))
        return [median(found) or 0.0 for _, found in sorted(ratios.items())]


def _is_of(configurations: Configurations, strategy: ParallelStrategy) -> Flags:
    asked = Strategies.repeated(strategy)
    rows = configurations.strategies or Strategies.repeated(ParallelStrategy(), len(configurations))
    return np.asarray(
        (rows.sharding == asked.sharding)
        & (rows.tensor_parallel == asked.tensor_parallel)
        & (rows.pipeline == asked.pipeline)
        & (rows.recompute == asked.recompute)
    )


def _same_rows(one: Configurations, other: Configurations) -> bool:
    """On nodes with as many GPUs."""
    same = one.nodes is other.nodes and one.gpu_batch is other.gpu_batch and one.strategies is other.strategies
    return same and one.instance_type.gpu_count == other.instance_type.gpu_count
