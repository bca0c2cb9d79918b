"""A job's own measurements, as rows that the form can be fitted to, and how far a configuration lies from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from planner.columns import Flags, Floats
from planner.inputs import RECOMPUTES, SHARDINGS, Measurement, ParallelStrategy
from planner.models.configurations import Configurations
from planner.models.sharded_step_time.job_layout import Placed
from planner.models.step_time.node_type import Span
from planner.models.strategies import Strategies

StrategyKey = tuple[int, int, int, int]
UNSEEN_STRATEGY_SD = 0.06  # what the parameters do not say of a strategy that was never probed, in log seconds


def strategies_of(rows: Sequence[Measurement]) -> Strategies:
    """Probes that say nothing of it kept the whole model on every GPU."""
    said = [row.strategy or ParallelStrategy() for row in rows]
    return Strategies.of(
        np.array([SHARDINGS.index(each.sharding) for each in said], dtype=np.int64),
        np.array([each.tensor_parallel for each in said], dtype=np.int64),
        np.array([each.pipeline for each in said], dtype=np.int64),
        np.array([RECOMPUTES.index(each.recompute) for each in said], dtype=np.int64),
    )


def measured_placements(rows: Sequence[Measurement]) -> Placed:
    return Placed(
        gpus=np.array([row.nodes * row.gpus_per_node for row in rows], dtype=np.int64),
        gpu_batch=np.array([row.gpu_batch for row in rows], dtype=np.int64),
        accumulation_steps=np.array([row.accumulation_steps for row in rows], dtype=np.int64),
        strategies=strategies_of(rows),
    )


def strategy_keys(strategies: Strategies) -> list[StrategyKey]:
    columns = (strategies.sharding, strategies.tensor_parallel, strategies.pipeline, strategies.recompute)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True, slots=True)
class Probed:
    """What was probed of one instance type."""

    nodes: Span
    gpu_batch: Span
    strategies: frozenset[StrategyKey]

    @classmethod
    def of(cls, rows: Sequence[Measurement]) -> Self:
        placed = measured_placements(rows)
        nodes = np.array([row.nodes for row in rows], dtype=np.int64)
        return cls(Span.of(nodes), Span.of(placed.gpu_batch), frozenset(strategy_keys(placed.strategies)))

    def outside(self, configurations: Configurations, strategies: Strategies) -> Flags:
        """Not between what was probed."""
        beyond = self.nodes.outside(configurations.nodes) | self.gpu_batch.outside(configurations.gpu_batch)
        return beyond | ~self._knows(strategies)

    def doubt(self, strategies: Strategies) -> Floats:
        """Variance of a strategy that was never probed."""
        return np.where(self._knows(strategies), 0.0, UNSEEN_STRATEGY_SD**2)

    def why(self, nodes: int, gpu_batch: int, strategies: Strategies | None) -> str | None:
        """In words; None where it was probed around."""
        reasons = [self.nodes.why(nodes, "nodes"), self.gpu_batch.why(gpu_batch, "samples per GPU")]
        if strategies is not None and not self._knows(strategies)[0]:
            reasons.append(f"{_named(strategies)} was never probed")
        return "; ".join(reason for reason in reasons if reason) or None

    def _knows(self, strategies: Strategies) -> Flags:
        known = np.zeros(len(strategies), dtype=bool)
        for sharding, tensor, pipeline, recompute in self.strategies:
            known |= (
                (strategies.sharding == sharding)
                & (strategies.tensor_parallel == tensor)
                & (strategies.pipeline == pipeline)
                & (strategies.recompute == recompute)
            )
        return known


def _named(strategies: Strategies) -> str:
    sharding, tensor, pipeline, recompute = strategy_keys(strategies)[0]
    parts: list[str] = [SHARDINGS[sharding]]
    parts += [f"tensor parallel over {tensor}"] if tensor > 1 else []
    parts += [f"{pipeline} stages"] if pipeline > 1 else []
    parts += [f"{RECOMPUTES[recompute]} recompute"] if recompute else []
    return ", ".join(parts)
