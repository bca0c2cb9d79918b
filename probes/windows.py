"""What a series of step times says: the typical step, the slow ones, and whether to believe it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM_UP_STEPS = 20
WINDOW_STEPS = 20
# Above this spread between windows the machine was doing something else.
STEADY_VARIATION = 0.10
_SETTLED = 1.15


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """The median of window medians, so that one disturbed window does not count."""

    p50: float
    p90: float
    variation: float
    windows: int

    @property
    def steady(self) -> bool:
        return self.variation <= STEADY_VARIATION


def summarize(windows: Sequence[Sequence[float]]) -> WindowSummary:
    medians = [statistics.median(window) for window in windows]
    every = sorted(seconds for window in windows for seconds in window)
    middle = statistics.median(medians)
    spread = statistics.median(abs(median - middle) for median in medians) * 1.4826
    return WindowSummary(
        p50=middle,
        p90=every[min(int(0.9 * len(every)), len(every) - 1)],
        variation=spread / middle if middle else 0.0,
        windows=len(windows),
    )


def chosen(values: Sequence[float], wanted: Sequence[bool]) -> list[float]:
    """Those that are wanted; all of them where none is, which one window in many may be."""
    return [value for value, want in zip(values, wanted, strict=True) if want] or list(values)


def is_warm(seconds: Sequence[float]) -> bool:
    """Enough steps, and the last ones no slower than those before: compilers and caches have settled."""
    if len(seconds) < WARM_UP_STEPS:
        return False
    half = WARM_UP_STEPS // 2
    return statistics.median(seconds[-half // 2 :]) <= _SETTLED * statistics.median(seconds[-half:])
