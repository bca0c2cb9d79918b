"""The text of `measurements.jsonl` with some of its rows left out, or moved; every other line stays as it was written.

A row is known by its number, from 0, as `parse_measurements` gives them. A torn last line goes: it is no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from planner.inputs.measurements import Measurement
from planner.inputs.runs import are_older


def without_rows(text: str, rows: Sequence[Measurement], dropped: Collection[int]) -> str:
    return "".join(line + "\n" for number, line in _numbered(text, len(rows)) if number not in dropped)


def with_run_last(text: str, rows: Sequence[Measurement], key: str) -> str:
    """The same text where this run counts already, or was never measured."""
    own = {number for number, row in enumerate(rows) if row.run_key == key}
    older = are_older(rows)
    if not any(older[number] for number in own):
        return text
    moved = "".join(line + "\n" for number, line in _numbered(text, len(rows)) if number in own)
    return without_rows(text, rows, own) + moved


def _numbered(text: str, count: int) -> Iterator[tuple[int | None, str]]:
    """Lines with the number of their row; None for empty ones."""
    number = 0
    for line in text.removesuffix("\n").split("\n"):
        if not line.strip():
            yield None, line
        elif number < count:
            yield number, line
            number += 1
