"""A run for whoever watches it: a few labelled lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from planner.errors import printable
from planner.plan.run_state import RunState, SoFar
from planner.units import counted, format_count, format_hours, format_percent, format_usd

_WIDTH, _LABEL, _BAR = 80, 12, 30


def run_text(state: RunState) -> str:
    entries = [
        (state.run_id, _headline(state)),
        ("Training", _training(state)),
        ("", _printed(state)),
        ("Time", _band(state, state.hours, format_hours) + _pace(state)),
        ("Cost", _band(state, state.usd, format_usd)),
        ("Checkpoint", _checkpoint(state)),
        ("Losses", f"{counted(state.nodes.lost, 'node')} lost or replaced" if state.nodes.lost else ""),
    ]
    return "\n".join(_entry(label, printable(text)) for label, text in entries if text) + "\n"


def _entry(label: str, text: str) -> str:
    start = f"{label:<{_LABEL}}" if len(label) < _LABEL else f"{label}  "
    return textwrap.fill(
        text, _WIDTH, initial_indent=start, subsequent_indent=" " * _LABEL, break_on_hyphens=False, drop_whitespace=True
    )


def _headline(state: RunState) -> str:
    nodes = f"{state.nodes.up} of {counted(state.nodes.planned, 'node')}"
    doing = ", ".join(f"{count} {phase}" for phase, count in state.nodes.doing.items())
    there = "" if state.over and not state.nodes.up else f"; {nodes}{f': {doing}' if doing else ''}"
    return f"{state.phase}{there}{f'; {state.reason}' if state.reason else ''}"


def _training(state: RunState) -> str:
    training = state.training
    if training.share is None:
        return "no step and no samples in what it printed" if state.phase == "running" else ""
    filled = round(training.share * _BAR)
    bar = "━" * filled + "╌" * (_BAR - filled)
    return f"{bar} {format_percent(training.share)} of the samples planned"


def _printed(state: RunState) -> str:
    training = state.training
    facts = [
        f"step {training.step:,} of about {training.steps_planned:,}" if training.step is not None else "",
        f"{format_count(training.samples)} samples" if training.samples is not None else "",
        f"loss {training.loss:g}" if training.loss is not None else "",
    ]
    return ", ".join(filter(None, facts)) or (f"it printed: {training.said}" if training.said else "")


def _band(state: RunState, value: SoFar, form: Callable[[float], str]) -> str:
    low, middle, high = (form(number) for number in (value.plan.p05, value.plan.p50, value.plan.p95))
    until = "in all" if state.over else "so far"
    return f"{form(value.so_far)} {until}; planned {middle} ({low} to {high}): {value.standing}"


def _pace(state: RunState) -> str:
    pace = state.hours_at_this_pace
    return "" if pace is None else f"; {format_hours(pace)} in all at this pace"


def _checkpoint(state: RunState) -> str:
    saved = state.checkpoint
    newest = "none yet" if saved.newest is None else f"{saved.newest}, {_seconds(saved.age_seconds or 0.0)} old"
    if saved.next_in_seconds is None:
        return "" if saved.newest is None else newest
    late = saved.next_in_seconds < 0
    return f"{newest}; the next {'is late by' if late else 'in'} {_seconds(abs(saved.next_in_seconds))}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else format_hours(seconds / 3600)
