"""How long a step took, by a log that was written now and then.

Between two log points, seconds over optimizer steps; of all such intervals the median. The first one goes, and so do
those of the first 20 steps where enough others are left: compilers and caches were filling. Evaluations and
checkpoints are pauses in some intervals, which the median leaves alone; what is logged after an evaluation at the same
step begins the next interval behind it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import InputError

WARM_UP_STEPS = 20
LEAST_INTERVALS = 3
_COARSE = 20.0  # seconds of an interval that a clock of whole seconds still tells within 5 %


class LoggedStep(NamedTuple):
    """Something was logged at this optimizer step, at this time; from which moment on does not matter."""

    step: float
    seconds: float


class StepTime(NamedTuple):
    """Of one optimizer step."""

    p50: float
    p90: float | None = None
    variation: float | None = None
    intervals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """What a log says of one run at one configuration; None where it says nothing."""

    step_time: StepTime
    gpu_batch: int | None = None
    accumulation_steps: int | None = None
    global_batch: float | None = None
    cluster: tuple[tuple[str, str], ...] = ()  # keys of a measurement that the log has columns for
    batch_hint: str = ""  # where the log names a batch without saying whose


class _Interval(NamedTuple):
    first_step: float
    seconds: float
    seconds_per_step: float


def step_time(points: Sequence[LoggedStep], *, file: str) -> StepTime:
    found = _intervals(points)
    if not found:
        raise InputError("its times or its steps do not grow: no step time follows from it", file=file)
    first = min(point.step for point in points)
    later = found[1:]
    warm = [interval for interval in later if interval.first_step >= first + WARM_UP_STEPS]
    taken = warm if len(warm) >= LEAST_INTERVALS else later
    if len(taken) < LEAST_INTERVALS:
        needed = f"{LEAST_INTERVALS} are needed after the first, which is warm-up"
        raise InputError(f"{len(found)} intervals between log points; {needed}: log more often", file=file)
    middle = statistics.median(interval.seconds for interval in taken)
    if middle < _COARSE and all(float(point.seconds).is_integer() for point in points):
        raise InputError(f"its times are whole seconds, too coarse for intervals of {middle:.0f} s", file=file)
    return summarized([interval.seconds_per_step for interval in taken])


def summarized(seconds_per_step: Sequence[float]) -> StepTime:
    """The spread as probes tell it: the median distance from the median, scaled as for a bell curve."""
    middle = statistics.median(seconds_per_step)
    spread = statistics.median(abs(seconds - middle) for seconds in seconds_per_step) * 1.4826
    ordered = sorted(seconds_per_step)
    p90 = ordered[min(int(0.9 * len(ordered)), len(ordered) - 1)]
    return StepTime(middle, p90, spread / middle, len(ordered))


def _intervals(points: Sequence[LoggedStep]) -> list[_Interval]:
    """From the last that was logged at one step to the first at the next; none where a resumed run went back."""
    first: dict[float, float] = {}
    last: dict[float, float] = {}
    for point in points:
        first[point.step] = min(point.seconds, first.get(point.step, point.seconds))
        last[point.step] = max(point.seconds, last.get(point.step, point.seconds))
    steps = sorted(first)
    spans = [(a, b, first[b] - last[a]) for a, b in itertools.pairwise(steps)]
    return [_Interval(a, seconds, seconds / (b - a)) for a, b, seconds in spans if seconds > 0]
