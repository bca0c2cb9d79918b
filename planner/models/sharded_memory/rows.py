"""Columns of strategies of one job: of each row what decides what a GPU holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from planner.columns import Flags, Ints
from planner.inputs import RECOMPUTES, SHARDINGS, ParallelStrategy, Recompute, Sharding
from planner.models.configurations import Configurations
from planner.models.sharded_memory.strategy import Strategy
from planner.models.strategies import Strategies


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRows:
    """`job` says what all rows share: what is trained, states, optimizer, how it is loaded."""

    job: Strategy
    sharding: Ints  # index into SHARDINGS
    gpus: Ints
    tensor_parallel: Ints
    pipeline: Ints
    recompute: Ints  # index into RECOMPUTES
    micro_batch: Ints
    accumulation: Ints

    @classmethod
    def one(cls, strategy: Strategy) -> Self:
        return cls(
            job=strategy,
            sharding=np.array([SHARDINGS.index(strategy.sharding)]),
            gpus=np.array([strategy.gpus]),
            tensor_parallel=np.array([strategy.tensor_parallel]),
            pipeline=np.array([strategy.pipeline]),
            recompute=np.array([RECOMPUTES.index(strategy.recompute)]),
            micro_batch=np.array([strategy.micro_batch]),
            accumulation=np.array([strategy.accumulation]),
        )

    @classmethod
    def of(cls, job: Strategy, configurations: Configurations) -> Self:
        """Those of a table; where it has no strategies, the whole model is on every GPU."""
        strategies = configurations.strategies or Strategies.repeated(ParallelStrategy(), len(configurations))
        return cls(
            job=replace(job, gpus_per_node=configurations.instance_type.gpu_count),
            sharding=strategies.sharding,
            gpus=configurations.gpus,
            tensor_parallel=strategies.tensor_parallel,
            pipeline=strategies.pipeline,
            recompute=strategies.recompute,
            micro_batch=configurations.gpu_batch,
            accumulation=configurations.accumulation_steps,
        )

    def __len__(self) -> int:
        return len(self.gpus)

    def at(self, rows: Ints | Flags) -> Self:
        return type(self)(
            job=self.job,
            sharding=self.sharding[rows],
            gpus=self.gpus[rows],
            tensor_parallel=self.tensor_parallel[rows],
            pipeline=self.pipeline[rows],
            recompute=self.recompute[rows],
            micro_batch=self.micro_batch[rows],
            accumulation=self.accumulation[rows],
        )

    @property
    def data_parallel(self) -> Ints:
        return self.gpus // (self.tensor_parallel * self.pipeline)

    @property
    def shards(self) -> Ints:
        """Over how many GPUs one copy of what is sharded is spread."""
        of_node = np.maximum(np.minimum(self.job.gpus_per_node // self.tensor_parallel, self.data_parallel), 1)
        spread = np.where(self.shards_by("hsdp"), of_node, self.data_parallel)
        return np.where(self.shards_by("ddp"), 1, spread)

    @property
    def is_gathered(self) -> Flags:
        """Weights are sharded and gathered where they are used."""
        return self.shards_by("fsdp", "hsdp")

    def shards_by(self, *names: Sharding) -> Flags:
        asked = np.array([name in names for name in SHARDINGS])
        return np.asarray(asked[self.sharding])

    def recomputes(self, name: Recompute) -> Flags:
        return np.asarray(self.recompute == RECOMPUTES.index(name))
