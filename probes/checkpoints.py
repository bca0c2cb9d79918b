"""Checkpoints that survive losing a node: written whole or not at all, and written when the node is about to go.

    checkpoints = Checkpoints()
    state = checkpoints.load() or {"step": 0, ...}
    for step in range(state["step"], steps):
        ...
        checkpoints.after_step(lambda: {"step": step + 1, "model": model.state_dict(), ...})

A spot notice reaches the script as SIGTERM. The step is finished, all processes agree to stop, the first one saves, and
every one exits with 13, which says "stopped in order, to be continued".
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from probes.cluster import any_of, this_place
from probes.ending import leave

STOPPED_IN_ORDER = 13
_NAME = "checkpoint.pt"


class Checkpoints:
    """In SCAV_CHECKPOINT_DIR, every SCAV_CHECKPOINT_INTERVAL_SECONDS, unless told otherwise."""

    def __init__(self, folder: Path | None = None, interval_seconds: float | None = None) -> None:
        self.place = this_place()
        self.path = (folder or Path(os.environ.get("SCAV_CHECKPOINT_DIR", "."))) / _NAME
        default = float(os.environ.get("SCAV_CHECKPOINT_INTERVAL_SECONDS", "600"))
        self.interval_seconds = default if interval_seconds is None else interval_seconds
        self._saved_at = time.monotonic()
        self._told_to_stop = False
        signal.signal(signal.SIGTERM, self._take_note)

    def load(self) -> dict[str, Any] | None:
        """The newest state, or None at the very beginning."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, map_location=self.place.device, weights_only=True)
        return state

    def after_step(self, state: Callable[[], dict[str, Any]]) -> None:
        """Saves when it is time, or saves and leaves when the node must go."""
        due = time.monotonic() - self._saved_at >= self.interval_seconds
        stop, due = any_of([self._told_to_stop, due], self.place)
        if stop or due:
            self.save(state())
        if stop:
            leave(STOPPED_IN_ORDER)
            sys.exit(STOPPED_IN_ORDER)

    def save(self, state: dict[str, Any]) -> None:
        """By the first process; the rename makes it appear whole, the flush makes it last."""
        self._saved_at = time.monotonic()
        if self.place.rank == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            with temporary.open("wb") as stream:
                torch.save(state, stream)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self.path)
        if dist.is_initialized():
            dist.barrier()

    def _take_note(self, _number: int, _frame: object) -> None:
        self._told_to_stop = True
