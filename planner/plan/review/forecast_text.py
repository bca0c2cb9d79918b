"""Predictions as text for a terminal, at most 100 columns wide."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from planner.contract import Interval
from planner.inputs import ParallelStrategy
from planner.plan.forecast import Forecast
from planner.plan.ratios import hours_cell
from planner.plan.review.lines import columns, entry, mix_text, table
from planner.plan.strategy_words import chosen_words
from planner.units import format_count, format_hours, format_percent, format_usd

_LARGE = 1e4  # from here on 12.3k
_OWN_NUMBER = re.compile(r"^[\d,]+ | [\d,]+$")


def forecast_text(row: Forecast) -> str:
    """One configuration."""
    gpus = row.node_count * row.gpus_per_node
    cluster = (
        f"{row.node_count} x {row.instance_type} ({gpus} x {row.gpu}) · {row.region} {row.availability_zone}"
        f" · {mix_text(row.on_demand_count, row.node_count)}"
    )
    batch = f"{row.global_batch:,}, {_split(row)} on each GPU"
    efficiency = (
        f"parallel efficiency {format_percent(row.parallel_efficiency)}, "
        f"statistical efficiency {format_percent(row.statistical_efficiency)}"
    )
    evidence = f"extrapolated: {row.why_extrapolated}" if row.extrapolated else "within what was measured"
    lines = [
        entry("Cluster", cluster),
        entry("Batch", batch),
        *([entry("Strategy", _strategy(row))] if row.strategy else []),
        entry("Time", _range(row.hours, format_hours)),
        entry("Cost", _range(row.usd, format_usd)),
        entry("Step", _range(row.step_seconds, seconds_text)),
        entry("Samples", _range(row.samples, format_count)),
        entry("Scaling", efficiency),
        *([entry("Feeding", row.feeding.statement)] if row.feeding else []),
        entry("Evidence", evidence),
    ]
    return "\n".join(lines) + "\n"


def _strategy(row: Forecast) -> str:
    return chosen_words(
        row.strategy or ParallelStrategy(),
        nodes=row.node_count,
        gpus_per_node=row.gpus_per_node,
        gpu_batch=row.gpu_batch,
        accumulation_steps=row.accumulation_steps,
    )


def sweep_text(rows: Sequence[Forecast]) -> str:
    """A table, with what its marks mean below it."""
    heading = ("nodes", "batch", "local", "step", "samples", "par.", "stat.", "hours (90 %)", "dollars (90 %)", "")
    marks = {kind: chr(ord("a") + index) for index, kind in enumerate(_kinds_of_extrapolation(rows))}
    body = [
        (
            f"{row.node_count}",
            f"{row.global_batch:,}",
            _split(row),
            seconds_text(row.step_seconds.p50),
            format_count(row.samples.p50),
            format_percent(row.parallel_efficiency),
            format_percent(row.statistical_efficiency),
            _cell(row.hours, _hours_cell),
            _cell(row.usd, _usd_cell),
            "".join(sorted(marks[kind] for kind in _kinds_of_extrapolation([row]))) + "*" * row.limited_by_feeding,
        )
        for row in rows
    ]
    first = rows[0]
    market = "spot" if first.market == "spot" else "on demand"
    lines = [f"{first.instance_type} ({first.gpus_per_node} x {first.gpu}), {first.region}, {market}", ""]
    lines += table([heading, *body], ">>>>>>>>><")
    if marks:
        lines += ["", "Extrapolated beyond:", *(f"  {mark}  {kind}" for kind, mark in marks.items())]
    if any(row.limited_by_feeding for row in rows):
        lines += ["", "* limited by feeding"]
    return "\n".join(lines) + "\n"


def _kinds_of_extrapolation(rows: Sequence[Forecast]) -> list[str]:
    """`5 nodes, probed up to 4` without the row's own number."""
    reasons = [reason for row in rows for reason in (row.why_extrapolated or "").split("; ") if reason]
    kinds = [(*reason.split(", ", 1), "")[:2] for reason in reasons]
    return list(dict.fromkeys(f"{_OWN_NUMBER.sub('', own)}: {known}" if known else own for own, known in kinds))


def seconds_text(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _range(interval: Interval, shown: Callable[[float], str]) -> str:
    return columns([shown(interval.p50), f"p05 {shown(interval.p05)}", f"p95 {shown(interval.p95)}"])


def _cell(interval: Interval, shown: Callable[[float], str]) -> str:
    return f"{shown(interval.p50)} ({shown(interval.p05)}..{shown(interval.p95)})"


def _hours_cell(hours: float) -> str:
    return hours_cell(hours) if hours < _LARGE else _short(hours)


def _short(count: float) -> str:
    return format_count(count).replace(" ", "")


def _usd_cell(usd: float) -> str:
    """Without a unit, which the heading names."""
    return f"{usd:.2f}" if usd < 10 else f"{usd:,.0f}" if usd < _LARGE else _short(usd)


def _split(row: Forecast) -> str:
    return f"{row.gpu_batch:,}" + (f" x {row.accumulation_steps}" if row.accumulation_steps > 1 else "")
