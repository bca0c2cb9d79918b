"""Columns of configurations of one instance type: how many nodes, which batch on each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from planner.columns import Flags, Ints
from planner.inputs import Gpu, InstanceType


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """Row i: `nodes[i]` machines, each GPU taking `accumulation_steps[i]` micro-steps of `gpu_batch[i]` samples."""

    instance_type: InstanceType
    gpu: Gpu
    nodes: Ints
    gpu_batch: Ints
    accumulation_steps: Ints

    @property
    def gpus(self) -> Ints:
        return self.nodes * self.instance_type.gpu_count

    @property
    def global_batch(self) -> Ints:
        return self.gpus * self.gpu_batch * self.accumulation_steps

    def at(self, rows: Ints | Flags) -> Configurations:
        return Configurations(
            instance_type=self.instance_type,
            gpu=self.gpu,
            nodes=self.nodes[rows],
            gpu_batch=self.gpu_batch[rows],
            accumulation_steps=self.accumulation_steps[rows],
        )
