"""What a program that failed said last. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

_LAST_LINES = 5
_OF_TORCHRUN = ("torch/distributed", "torch.distributed.elastic")


def last_words(lines: Iterable[str]) -> str:
    """The script's own, which name its mistake; torchrun's report after them does not."""
    own = [line.strip() for line in lines if line.strip() and not any(part in line for part in _OF_TORCHRUN)]
    errors = [line for line in own if "Error" in line and "ChildFailedError" not in line]
    return " | ".join(errors[-1:] or own[-_LAST_LINES:])
