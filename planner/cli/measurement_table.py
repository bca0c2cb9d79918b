"""Measurements as a list that fits 80 columns: where, how fast, what ran, and whether plans use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import Measurement

_KEY_LENGTH = 7  # as git shows commits
_WIDTH = 80
_LONGEST_TYPE = 18


def measurement_table(rows: Sequence[tuple[int, Measurement, str | None]]) -> list[str]:
    """Each row with its number, and the reason why plans leave it out; None where they use it."""
    from planner.errors import one_line
    from planner.inputs import HERE_ONLY
    from planner.plan import table

    heading = ("row", "cluster", "GPUs", "batch", "step ms", "run", "used")
    body = [
        (
            f"{number}",
            f"{row.nodes} x {one_line(row.instance_type, _LONGEST_TYPE)}",
            f"{row.gpus_per_node}",
            f"{row.gpu_batch:,}" + (f" x {row.accumulation_steps:,}" if row.accumulation_steps > 1 else ""),
            f"{row.step_seconds * 1000:,.1f}",
            _run(row),
            {None: "yes", HERE_ONLY: "in part"}.get(reason, "no"),
        )
        for number, row, reason in rows
    ]
    lines = table([heading, *body], "><>>><<")
    return [*lines, *_strategies(rows), *_reasons(rows), *_runs([row for _, row, _ in rows])]


def _run(row: Measurement) -> str:
    if row.run_key is not None:
        return row.run_key[:_KEY_LENGTH]
    return "-" if row.imported_from is None else "import"


def _strategies(rows: Sequence[tuple[int, Measurement, str | None]]) -> list[str]:
    """Which rows are of which, where any names one."""
    import textwrap

    from planner.inputs import strategy_text

    numbers: dict[str, list[str]] = {}
    for number, row, _ in rows:
        if row.strategy is not None:
            numbers.setdefault(strategy_text(row.strategy), []).append(f"{number}")
    lines = [f"With {strategy}: {', '.join(found)}" for strategy, found in numbers.items()]
    return ["", *(part for line in lines for part in textwrap.wrap(line, _WIDTH))] if lines else []


def _reasons(rows: Sequence[tuple[int, Measurement, str | None]]) -> list[str]:
    import textwrap

    from planner.inputs import HERE_ONLY

    numbers: dict[str, list[str]] = {}
    for number, _, reason in rows:
        if reason is not None:
            numbers.setdefault(reason, []).append(f"{number}")
    lines = [
        f"{'Used in part' if reason == HERE_ONLY else 'Not used'}: {', '.join(found)} ({reason})"
        for reason, found in numbers.items()
    ]
    return ["", *(part for line in lines for part in textwrap.wrap(line, _WIDTH))] if lines else []


def _runs(rows: Sequence[Measurement]) -> list[str]:
    """What the keys and imports of the table stand for, one line each."""
    from planner.errors import one_line

    words: dict[str, str] = {}
    for row in rows:
        if row.run_key is not None:
            words[row.run_key] = f"Run {row.run_key[:_KEY_LENGTH]}: {_what_ran(row)}"
        elif row.imported_from is not None:
            source = row.imported_from
            words[source.sha256] = f"Import: {source.file} ({source.format}, sha256 {source.sha256[:_KEY_LENGTH]})"
    return ["", *(one_line(line, _WIDTH) for line in words.values())] if words else []


def _what_ran(row: Measurement) -> str:
    """The command last: it may be long."""
    torch = f"torch {row.software['torch']}" if "torch" in row.software else None
    script = f"files {row.script_sha256[:_KEY_LENGTH]}" if row.script_sha256 else None
    image = f"image {row.image_digest.removeprefix('sha256:')[:_KEY_LENGTH]}" if row.image_digest else None
    return ", ".join(part for part in (torch, script, image, row.run_command) if part)
