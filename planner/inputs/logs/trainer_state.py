"""Hugging Face's `trainer_state.json`: no times of single steps, but how long the whole training took.

`Trainer.save_state()` after training writes that; the states inside of checkpoints are from before. The mean over the
run includes its warm-up, so a short one is refused. Evaluations were timed, and are taken off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.inputs.logs.logged_run import LoggedRun, StepTime
from planner.inputs.logs.progress import LoggedProgress, progress_of

LEAST_STEPS = 200  # of which the first, with all that is made ready before it, are a small part


def is_trainer_state(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("log_history"), list)


def trainer_state_run(text: str, *, file: str) -> LoggedRun:
    """The batch per process is in it; the global batch follows from samples and steps per second."""
    state: dict[str, Any] = json.loads(text)
    history = [entry for entry in state["log_history"] if isinstance(entry, dict)]
    ends = [index for index, entry in enumerate(history) if _number(entry, "train_runtime")]
    if not ends:
        advice = "save it with trainer.save_state() after training, or import the TensorBoard log of the run"
        raise InputError(f"does not say how long the training took: {advice}", file=file)
    if len(ends) > 1:
        raise InputError("is of several trainings, one resumed after the other: which steps took how long?", file=file)
    summary, steps = history[ends[0]], _number(state, "global_step") or 0.0
    evaluating = sum(_number(entry, "eval_runtime") or 0.0 for entry in history[: ends[0]])
    seconds = (_number(summary, "train_runtime") or 0.0) - evaluating
    if steps < LEAST_STEPS or seconds <= 0:
        raise InputError(f"{steps:.0f} steps: {LEAST_STEPS} are needed for a mean without its warm-up", file=file)
    return LoggedRun(
        step_time=StepTime(seconds / steps),
        gpu_batch=int(batch) if (batch := _number(state, "train_batch_size")) else None,
        global_batch=_global_batch(summary),
    )


def trainer_state_progress(text: str, *, file: str) -> LoggedProgress:
    """Also of a checkpoint's state, which has no times: what was logged, and how far it got."""
    state: dict[str, Any] = json.loads(text)
    history = [entry for entry in state["log_history"] if isinstance(entry, dict)]
    values = [
        (name, step, float(value))
        for entry in history
        if (step := _number(entry, "step")) and not _number(entry, "train_runtime")
        for name, value in entry.items()
        if name not in ("step", "epoch") and isinstance(value, int | float) and not isinstance(value, bool)
    ]
    steps = [step for step in (_number(state, "global_step"), *(at for _, at, _ in values)) if step]
    seconds = sum(_number(entry, "train_runtime") or 0.0 for entry in history)
    return replace(progress_of(steps, [], values, file=file), seconds=seconds or None, ended=seconds > 0)


def _global_batch(summary: Mapping[str, Any]) -> float | None:
    samples, steps = _number(summary, "train_samples_per_second"), _number(summary, "train_steps_per_second")
    return samples / steps if samples and steps else None


def _number(entry: Mapping[str, Any], key: str) -> float | None:
    """None for what is no number, and for none at all."""
    value = entry.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value < 1e15 else None
