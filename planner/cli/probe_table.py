"""Measurements as a table that fits a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import Measurement


def probe_table(rows: Sequence[Measurement]) -> list[str]:
    from planner.plan import table

    heading = ("workers", "local batch", "step ms", "p90 ms", "sync ms", "data ms", "spread", "noise scale (90 %)")
    body = [
        (
            f"{row.nodes} x {row.gpus_per_node}",
            f"{row.gpu_batch:,}",
            _milliseconds(row.step_seconds),
            _milliseconds(row.step_seconds_p90),
            _milliseconds(row.exposed_sync_seconds),
            _milliseconds(row.data_wait_seconds),
            "-" if row.window_variation is None else f"{row.window_variation:.0%}",
            "-" if row.noise is None else f"{row.noise.scale:,.0f} ({row.noise.low:,.0f} to {row.noise.high:,.0f})",
        )
        for row in rows
    ]
    return table([heading, *body], "<>>>>>>>")


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"
