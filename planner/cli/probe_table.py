"""Measurements as a table that fits a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import GradientNoise, Measurement


def probe_table(rows: Sequence[Measurement]) -> list[str]:
    """One for each strategy, under its name, where any is named."""
    from planner.inputs import strategy_text

    strategies = list(dict.fromkeys(row.strategy for row in rows))
    if strategies in ([], [None]):
        return _table(rows)
    return [
        line
        for strategy in strategies
        for line in (
            f"{'no strategy asked for' if strategy is None else strategy_text(strategy)}:",
            *_table([row for row in rows if row.strategy == strategy]),
        )
    ]


def _table(rows: Sequence[Measurement]) -> list[str]:
    from planner.plan import table

    heading = ("workers", "batch", "step ms", "p90", "sync", "data", "spread", "noise scale (90 %)")
    body = [
        (
            f"{row.nodes} x {row.gpus_per_node}",
            f"{row.gpu_batch:,}",
            _milliseconds(row.step_seconds),
            _milliseconds(row.step_seconds_p90),
            _milliseconds(row.exposed_sync_seconds),
            _milliseconds(row.data_wait_seconds),
            "-" if row.window_variation is None else f"{row.window_variation:.0%}",
            "-" if row.noise is None else _noise(row.noise),
        )
        for row in rows
    ]
    return table([heading, *body], "<>>>>>>>")


def adapter_note(rows: Sequence[Measurement]) -> str | None:
    """What the script must still be told for the run, where no adapter is."""
    libraries = sorted({row.adapter for row in rows if row.adapter is not None})
    if not libraries:
        return None
    return (
        f"scav handed the batch to {' and '.join(libraries)} for the probes. So that a run takes the plan's, put "
        "{gpu_batch} into run.command, read SCAV_GPU_BATCH or use scav_probe's callback (docs/measurements.md)."
    )


def _noise(noise: GradientNoise) -> str:
    """The interval as parts of the scale: that fits however large the scale is."""
    from planner.units import format_percent

    low, high = (format_percent(abs(end / noise.scale - 1)) for end in (noise.low, noise.high))
    return f"{noise.scale:,.0f} -{low} +{high}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"
