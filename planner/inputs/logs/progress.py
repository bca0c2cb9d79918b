"""How far a logged run got: steps, seconds, and the values that it logged on its way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.inputs.logs.logged_run import LoggedStep

# A column of any of these names, in any folder of names; what the tools of PyTorch's users call it.
_MEMORY_BYTES = ("peak_memory_bytes", "max_memory_allocated", "max_memory_allocated_bytes")
_MEMORY_GIB = ("peak_memory_gib", "max_memory_gib")
_SINCE_1970 = 1e8  # seconds: a clock that shows less counts from the start of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedProgress:
    """None where the log says nothing. `values`: by name, (step, value) in order of the steps."""

    steps: float
    seconds: float | None
    ended: bool  # the log itself says that the training is over
    values: Mapping[str, tuple[tuple[float, float], ...]]
    peak_memory_bytes: float | None


def progress_of(
    steps: Sequence[float], points: Sequence[LoggedStep], values: Sequence[tuple[str, float, float]], *, file: str
) -> LoggedProgress:
    if not steps or max(steps) <= 0:
        raise InputError("no row says which step it is of", file=file)
    by_name: dict[str, dict[float, float]] = {}
    for name, step, value in values:
        if math.isfinite(value):
            by_name.setdefault(name, {})[step] = value  # a resumed run logs some steps again: the later counts
    ordered = {name: tuple(sorted(found.items())) for name, found in by_name.items()}
    return LoggedProgress(
        steps=max(steps),
        seconds=_elapsed(points),
        ended=False,
        values=ordered,
        peak_memory_bytes=_peak_memory(ordered),
    )


def _elapsed(points: Sequence[LoggedStep]) -> float | None:
    """From the first step on. Where the clock is not the run's, those before the first log point took as the others."""
    if not points:
        return None
    first, last = min(points, key=lambda p: p.seconds), max(points, key=lambda p: p.seconds)
    if last.seconds < _SINCE_1970:
        return last.seconds if last.seconds > 0 else None
    span, steps = last.seconds - first.seconds, last.step - first.step
    if span <= 0 or steps <= 0:
        return None
    return span * (1 + max(first.step, 0.0) / steps)


def _peak_memory(values: Mapping[str, tuple[tuple[float, float], ...]]) -> float | None:
    peaks = []
    for name, found in values.items():
        short = name.lower().rpartition("/")[2]
        factor = 1.0 if short in _MEMORY_BYTES else 2.0**30 if short in _MEMORY_GIB else None
        if factor is not None:
            peaks.append(factor * max(value for _, value in found))
    return max(peaks, default=None)
