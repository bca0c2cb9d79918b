"""A strategy in words: `FSDP over 16, selective recompute, micro-batch 4 x 2`."""

from __future__ import annotations

from dataclasses import replace

from planner.inputs import ParallelStrategy
from planner.models import Strategy

NAMES = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "fsdp": "FSDP", "hsdp": "HSDP"}


def strategy_words(strategy: Strategy) -> str:
    words = [NAMES[strategy.sharding] + (f" over {strategy.shards}" if strategy.shards > 1 else "")]
    if strategy.sharding == "ddp" and strategy.data_parallel > 1:
        words = [f"DDP on {strategy.data_parallel}"]
    if strategy.tensor_parallel > 1:
        words.append(f"tensor parallel {strategy.tensor_parallel}")
    if strategy.pipeline > 1:
        words.append(f"{strategy.pipeline} stages")
    if strategy.recompute != "none":
        words.append(f"{strategy.recompute} recompute")
    return ", ".join(words)


def chosen_words(
    strategy: ParallelStrategy, *, nodes: int, gpus_per_node: int, gpu_batch: int, accumulation_steps: int
) -> str:
    """With its micro-batches."""
    spread = replace(Strategy(), gpus=nodes * gpus_per_node, gpus_per_node=gpus_per_node, **strategy.model_dump())
    steps = f" x {accumulation_steps}" if accumulation_steps > 1 else ""
    return f"{strategy_words(spread)}, micro-batch {gpu_batch}{steps}"
