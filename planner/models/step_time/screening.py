"""Which measurements cannot be what they say: named, and kept out of the fit, never averaged in.

Every row is compared with the data sheet's prediction for it. Rows of one job miss that by much the same factor; one
that is thirty times further off than the others was taken in other units, of another job, or on a broken machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.inputs import Measurement

ABSURD_FACTOR = 30.0
DISAGREEMENT_FACTOR = 2.0
MOST_REPEATS = 20
_THOUSAND = (300.0, 3000.0)


@dataclass(frozen=True, slots=True)
class Screened:
    """What may be fitted to, and what a reader should be told."""

    rows: tuple[Measurement, ...]
    warnings: tuple[str, ...]


def screen(rows: Sequence[Measurement], expected_seconds: Floats) -> Screened:
    """`expected_seconds`: the data sheet's, row by row. In any order of rows."""
    if not rows:
        return Screened((), ())
    ratio = np.log(np.array([row.step_seconds for row in rows]) / expected_seconds)
    # The data sheet has a say of its own, for two rows that disagree, and the only one where there is but one.
    usual = float(np.median([*ratio, 0.0])) if len(rows) > 1 else 0.0
    far = np.abs(ratio - usual) > np.log(ABSURD_FACTOR)
    kept = tuple(row for row, odd in zip(rows, far, strict=True) if not odd)
    judge = "the others suggest" if len(rows) > 1 else "the data sheet says"
    named = sorted(
        _absurd(row, float(off), judge) for row, odd, off in zip(rows, far, ratio - usual, strict=True) if odd
    )
    warnings = [*named, *_disagreements(kept), *_repeats(kept)]
    if len(kept) > 1 and abs(usual) > np.log(ABSURD_FACTOR):
        warnings.append(f"all measurements together are {_times(usual)} what the data sheet says: check their units")
    return Screened(kept, tuple(warnings))


def _absurd(row: Measurement, off: float, judge: str) -> str:
    factor = np.exp(abs(off))
    unit = ", as milliseconds for seconds would be" if _THOUSAND[0] < factor < _THOUSAND[1] else ""
    return f"used without {row.step_seconds:g} s per step on {_where(row)}: {_times(off)} what {judge}{unit}"


def _times(off: float) -> str:
    return f"{np.exp(off):.0f} times" if off > 0 else f"one part in {np.exp(-off):.0f} of"


def _disagreements(rows: Sequence[Measurement]) -> list[str]:
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(_where(row), []).append(row.step_seconds)
    return [
        f"measurements on {where} disagree, {min(each):g} to {max(each):g} s per step: the interval is wide for it"
        for where, each in sorted(seconds.items())
        if max(each) > DISAGREEMENT_FACTOR * min(each)
    ]


def _repeats(rows: Sequence[Measurement]) -> list[str]:
    counts = Counter(f"{row.step_seconds:g} s per step on {_where(row)}" for row in rows)
    return [
        f"{count} equal measurements of {what}: they count as a few"
        for what, count in sorted(counts.items())
        if count > MOST_REPEATS
    ]


def _where(row: Measurement) -> str:
    steps = f" x {row.accumulation_steps}" if row.accumulation_steps > 1 else ""
    return f"{row.nodes} x {row.instance_type} with {row.gpu_batch}{steps} samples per GPU"
