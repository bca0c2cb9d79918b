"""What a GPU holds at its fullest moment when a transformer is trained with a strategy.

    peak = max over pipeline stages of max(loss, first backward block, end of backward, optimizer step, load)

`stage.py` counts each of them, for columns of strategies at once. What is assumed: equal blocks, the sequence split
with tensor parallelism, no offloading, no optimizer in the backward pass, no context parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.inputs import TransformerShape
from planner.models.sharded_memory.rows import StrategyRows
from planner.models.sharded_memory.stage import Stage, fullest_stages
from planner.models.sharded_memory.strategy import Strategy
from planner.models.sharded_step_time.distinct import distinct_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Bytes on one GPU at one moment."""

    weights: float = 0.0
    gathered: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    load: float = 0.0

    @property
    def total(self) -> float:
        parts = (self.weights, self.gathered, self.gradients, self.optimizer, self.activations, self.logits, self.load)
        return sum(parts)


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of the fullest stage."""

    moment: str
    stage: int  # from 0
    parts: Parts


def peak_memory(shape: TransformerShape, strategy: Strategy) -> Peak:
    """Of the stage and moment that need most, by the formulas alone: nothing is added for what they leave out."""
    return max(moments(shape, strategy), key=lambda peak: peak.parts.total)


def moments(shape: TransformerShape, strategy: Strategy) -> list[Peak]:
    """Of all stages that may be the fullest."""
    rows = StrategyRows.one(strategy)
    return [
        Peak(moment, index, Parts(**{name: float(part[0]) for name, part in parts._asdict().items()}))
        for index in fullest_stages(shape, strategy.pipeline)
        for moment, parts in Stage(shape, rows, index, strategy.pipeline).moments()
    ]


def peak_bytes(shape: TransformerShape, rows: StrategyRows) -> Floats:
    """The same of every row. Most are alike in all that matters: they differ in nodes, or in further micro-steps."""
    if not len(rows):
        return np.zeros(0)
    under_way = np.minimum(rows.accumulation, np.maximum(rows.pipeline, 2))
    spread = np.where(rows.shards_by("ddp"), np.minimum(rows.data_parallel, 2), rows.shards)
    columns = (rows.sharding, rows.recompute, rows.tensor_parallel, rows.pipeline, rows.micro_batch)
    first, kind = distinct_rows((*columns, under_way, spread))
    return _peaks(shape, rows.at(first))[kind]


def _peaks(shape: TransformerShape, rows: StrategyRows) -> Floats:
    most = np.zeros(len(rows))
    for stages in np.unique(rows.pipeline).tolist():
        of_stages = np.flatnonzero(rows.pipeline == stages)
        alike = rows.at(of_stages)
        fullest = fullest_stages(shape, stages)
        totals = [parts.total for index in fullest for _, parts in Stage(shape, alike, index, stages).moments()]
        most[of_stages] = np.maximum.reduce(totals)
    return most
