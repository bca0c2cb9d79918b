"""Lines of labelled text and plain tables, for what is shown beside plans: predictions, fits, memory."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from planner.errors import printable

WIDTH = 100
_LABEL = 10


def table(rows: Sequence[Sequence[str]], alignment: str) -> list[str]:
    """Columns two spaces apart, as wide as their longest cell, whatever a file put into it."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(alignment))] if rows else []
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths, strict=True)).rstrip()
        for row in rows
    ]


def columns(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<17}" for cell in cells).rstrip()


def entry(label: str, text: str) -> str:
    label, text = f"{label:<{_LABEL}}", printable(text)
    if not text or "  " in text:  # columns: wrapping would fold their spaces
        return (label + text).rstrip()
    return textwrap.fill(text, WIDTH, initial_indent=label, subsequent_indent=" " * _LABEL, break_on_hyphens=False)


def mix_text(on_demand_count: int, node_count: int) -> str:
    spot = node_count - on_demand_count
    return " + ".join(f"{n} {word}" for n, word in ((on_demand_count, "on-demand"), (spot, "spot")) if n)
