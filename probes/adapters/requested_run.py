"""What an adapter is to bring about."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _nobody(_library: str) -> None:
    """Listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedRun:
    """The batch, unless the script gets it by its command; and under a probe, for how many steps it must go on."""

    gpu_batch: int | None
    accumulation_steps: int | None
    probe_steps: int | None = None  # None in a run that is no probe: its length is the script's own
    folder: Path | None = None  # for what the library would write during a probe
    tell: Callable[[str], object] = _nobody  # the name of a library that would have taken another batch

    @classmethod
    def from_environment(cls) -> RequestedRun | None:
        """By scav, of whatever it starts, a probe or a run; None elsewhere."""
        if "SCAV_GPU_BATCH" not in os.environ:
            return None
        return cls(
            gpu_batch=int(os.environ["SCAV_GPU_BATCH"]),
            accumulation_steps=int(os.environ.get("SCAV_ACCUMULATION", "1")),
        )

    def give(self, library: str, holder: Any, **settings: int | None) -> None:
        """Those that are not None and not there already, to an object of the library."""
        for name, value in settings.items():
            if value is not None and getattr(holder, name) != value:
                setattr(holder, name, value)
                self.tell(library)


def epochs_for(steps: int, batches_per_epoch: int, accumulation_steps: int) -> int:
    """How many make so many optimizer steps; an epoch of unknown length (0) is at least one step long."""
    steps_per_epoch = max(batches_per_epoch // accumulation_steps, 1)
    return -(-steps // steps_per_epoch)


def length_of(data: Any) -> int:
    """0 where it has none, as streams do."""
    try:
        return len(data)
    except TypeError:
        return 0
