"""`--batch-size {gpu_batch}` in a command: what may stand there, and the command with its numbers put in.

Word by word, never through a shell. Only `{word}` is a placeholder, so JSON and `${a.b}` stay as they are; `{{word}}`
is the text {word}.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.inputs.job.strategies import ParallelStrategy

OF_STRATEGIES = ("strategy", "tensor_parallel", "pipeline", "recompute")  # {strategy} is its sharding
PLACEHOLDERS = ("gpu_batch", "accumulation_steps", "global_batch", "lr_scale", *OF_STRATEGIES)
_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def placeholder_fault(command: Sequence[str]) -> str | None:
    """One line on the first placeholder that means nothing, or None."""
    names = (found[2] for word in command for found in _BRACES.finditer(word) if found[2])
    unknown = next((name for name in names if name not in PLACEHOLDERS), None)
    if unknown is None:
        return None
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    shown = unknown[:40]
    return f"{{{shown}}} is no placeholder: known are {known}; the text itself is written {{{{{shown}}}}}"


def holds_strategy(command: Sequence[str]) -> bool:
    """Whether the script is told by the command how to spread its model."""
    return any(found[2] in OF_STRATEGIES for word in command for found in _BRACES.finditer(word))


def filled_command(
    command: Sequence[str],
    *,
    gpu_batch: int,
    accumulation_steps: int,
    global_batch: int,
    lr_scale: float,
    strategy: ParallelStrategy | None = None,
) -> list[str]:
    """For a command without a fault. What nobody asks for is DDP."""
    asked = strategy or ParallelStrategy()
    values = {
        "gpu_batch": str(gpu_batch),
        "accumulation_steps": str(accumulation_steps),
        "global_batch": str(global_batch),
        "lr_scale": repr(float(lr_scale)),
        "strategy": asked.sharding,
        "tensor_parallel": str(asked.tensor_parallel),
        "pipeline": str(asked.pipeline),
        "recompute": asked.recompute,
    }
    return [_BRACES.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], word) for word in command]
