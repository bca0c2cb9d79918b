"""`--batch-size {gpu_batch}`: a batch size put into each word of a command. Standard library only.

`planner/inputs/job/placeholders.py` says the same for plans; a test keeps the two alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from probes.strategy import Strategy

_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """`{{word}}` becomes the text {word}; scav has refused a `{word}` that means nothing before this is run."""
    return [_BRACES.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], word) for word in command]


def hold_batch(command: Sequence[str]) -> bool:
    """Whether the script gets its batch by the command."""
    names = {found[2] for word in command for found in _BRACES.finditer(word)}
    return not names.isdisjoint(("gpu_batch", "accumulation_steps", "global_batch"))


def hold_strategy(command: Sequence[str]) -> bool:
    """Whether the script is told by the command how to spread its model."""
    return any(found[2] in strategy_values(None) for word in command for found in _BRACES.finditer(word))


def strategy_values(strategy: Strategy | None) -> dict[str, str]:
    """What nobody asks for is DDP."""
    asked = strategy or Strategy()
    return {
        "strategy": asked.sharding,
        "tensor_parallel": str(asked.tensor_parallel),
        "pipeline": str(asked.pipeline),
        "recompute": asked.recompute,
    }


def batch_values(*, gpu_batch: int, accumulation_steps: int, workers: int, reference_batch: int) -> dict[str, str]:
    """As SCAV_GPU_BATCH and its fellows say it."""
    global_batch = workers * gpu_batch * accumulation_steps
    return {
        "gpu_batch": str(gpu_batch),
        "accumulation_steps": str(accumulation_steps),
        "global_batch": str(global_batch),
        "lr_scale": repr(global_batch / reference_batch),
    }
