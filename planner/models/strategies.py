"""Columns of strategies: how each configuration of a table spreads one model over its GPUs.

Beside them stands `sharded_memory.strategy.Strategy`, the same for one training, with all that decides what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from planner.columns import Flags, Ints
from planner.inputs import RECOMPUTES, SHARDINGS, ParallelStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategies:
    """Row i: what data parallelism shards, GPUs that share a layer, stages of layers, what is computed again."""

    sharding: Ints  # index into SHARDINGS
    tensor_parallel: Ints
    pipeline: Ints
    recompute: Ints  # index into RECOMPUTES

    @classmethod
    def of(cls, sharding: ArrayLike, tensor_parallel: ArrayLike, pipeline: ArrayLike, recompute: ArrayLike) -> Self:
        columns = np.broadcast_arrays(*np.atleast_1d(sharding, tensor_parallel, pipeline, recompute))
        kind, tensor, stages, again = (np.asarray(column, dtype=np.int64) for column in columns)
        return cls(sharding=kind, tensor_parallel=tensor, pipeline=stages, recompute=again)

    @classmethod
    def repeated(cls, strategy: ParallelStrategy, count: int = 1) -> Self:
        kind, again = SHARDINGS.index(strategy.sharding), RECOMPUTES.index(strategy.recompute)
        return cls.of(np.full(count, kind), strategy.tensor_parallel, strategy.pipeline, again)

    def one(self, row: int) -> ParallelStrategy:
        return ParallelStrategy(
            sharding=SHARDINGS[self.sharding[row]],
            tensor_parallel=int(self.tensor_parallel[row]),
            pipeline=int(self.pipeline[row]),
            recompute=RECOMPUTES[self.recompute[row]],
        )

    def __len__(self) -> int:
        return len(self.sharding)

    @property
    def gpus_per_copy(self) -> Ints:
        """Of the model: tensor times pipeline parallelism. Data parallelism has the rest."""
        return self.tensor_parallel * self.pipeline

    def at(self, rows: Ints | Flags) -> Self:
        return type(self)(
            sharding=self.sharding[rows],
            tensor_parallel=self.tensor_parallel[rows],
            pipeline=self.pipeline[rows],
            recompute=self.recompute[rows],
        )
