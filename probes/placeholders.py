"""`--batch-size {gpu_batch}`: a batch size put into each word of a command. Standard library only.

`planner/inputs/job/placeholders.py` says the same for plans; a test keeps the two alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_BRACES = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")


def fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """`{{word}}` becomes the text {word}; scav has refused a `{word}` that means nothing before this is run."""
    return [_BRACES.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], word) for word in command]


def batch_values(*, gpu_batch: int, accumulation_steps: int, workers: int, reference_batch: int) -> dict[str, str]:
    """As SCAV_GPU_BATCH and its fellows say it."""
    global_batch = workers * gpu_batch * accumulation_steps
    return {
        "gpu_batch": str(gpu_batch),
        "accumulation_steps": str(accumulation_steps),
        "global_batch": str(global_batch),
        "lr_scale": repr(global_batch / reference_batch),
    }
