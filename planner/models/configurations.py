"""Columns of configurations that can be rented: whole nodes of one instance type, and the batch on each of their GPUs.

What was measured may fill its nodes only in part, on machines that nobody sells: that is a table of its own
(`planner/models/step_time/rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from planner.columns import Flags, Ints
from planner.inputs import Catalog, Gpu, InstanceType
from planner.models.strategies import Strategies


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """Row i: `nodes[i]` machines, each copy taking `accumulation_steps[i]` micro-steps of `gpu_batch[i]` samples."""

    instance_type: InstanceType
    gpu: Gpu
    nodes: Ints
    gpu_batch: Ints
    accumulation_steps: Ints
    strategies: Strategies | None = None  # None: the whole model on every GPU, as jobs without a shape are trained

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        instance_type: InstanceType,
        *,
        nodes: ArrayLike,
        gpu_batch: ArrayLike,
        accumulation_steps: ArrayLike = 1,
        strategies: Strategies | None = None,
    ) -> Self:
        """From numbers, or from columns of equal length."""
        columns = np.broadcast_arrays(*np.atleast_1d(nodes, gpu_batch, accumulation_steps))
        count, batch, micro_steps = (np.asarray(column, dtype=np.int64) for column in columns)
        return cls(
            instance_type=instance_type,
            gpu=catalog.gpu_of(instance_type),
            nodes=count,
            gpu_batch=batch,
            accumulation_steps=micro_steps,
            strategies=strategies,
        )

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def gpus(self) -> Ints:
        return self.nodes * self.instance_type.gpu_count

    @property
    def data_parallel(self) -> Ints:
        """Copies of the model that train on samples of their own."""
        return self.gpus if self.strategies is None else self.gpus // self.strategies.gpus_per_copy

    @property
    def global_batch(self) -> Ints:
        return self.data_parallel * self.gpu_batch * self.accumulation_steps

    def on(self, catalog: Catalog, instance_type: InstanceType) -> Self:
        """The same on nodes of another type with as many GPUs."""
        return replace(self, instance_type=instance_type, gpu=catalog.gpu_of(instance_type))

    def at(self, rows: Ints | Flags) -> Self:
        return replace(
            self,
            nodes=self.nodes[rows],
            gpu_batch=self.gpu_batch[rows],
            accumulation_steps=self.accumulation_steps[rows],
            strategies=None if self.strategies is None else self.strategies.at(rows),
        )
