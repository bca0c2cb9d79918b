"""What a run spends beside its steps: starting up and writing checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.inputs import Measurement, Workload, median
from planner.models.checkpoints import checkpoint_interval_seconds

# Assumed until a probe measures them: machine, image pull and first batch; one writer's rate to object storage.
STARTUP_SECONDS = 300.0
CHECKPOINT_BYTES_PER_SECOND = 250e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Per run, and as a share of the time spent on steps."""

    startup_seconds: float
    save_seconds: float
    checkpoint_interval_seconds: float  # on demand; with spot nodes it depends on how often they are lost
    checkpoint_share: float

    @property
    def restart_seconds(self) -> float:
        """After a loss: all nodes start again and read the checkpoint, which takes as long as writing it."""
        return self.startup_seconds + self.save_seconds


def run_overheads(workload: Workload, measurements: Sequence[Measurement]) -> Overheads:
    startup = median([row.startup_seconds for row in measurements])
    save = median([row.checkpoint_save_seconds for row in measurements])
    size = workload.checkpoint_bytes_or_default
    save = size / CHECKPOINT_BYTES_PER_SECOND if save is None else save
    interval = checkpoint_interval_seconds(save) if size else 0.0
    return Overheads(
        startup_seconds=STARTUP_SECONDS if startup is None else startup,
        save_seconds=save,
        checkpoint_interval_seconds=interval,
        checkpoint_share=save / interval if interval else 0.0,
    )
