"""What a run spends beside its steps: starting up, writing checkpoints, and reading one after a loss.

All three are medians of what probes measured, and assumed where none did. Seconds of a checkpoint were measured at its
size then; where the job file says another one, they grow and shrink with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.inputs import GP3_MIBPS, Measurement, Workload, median
from planner.models.checkpoints import checkpoint_interval_seconds

# Assumed until a probe measures them: machine, image pull and first batch; one writer's rate to object storage.
STARTUP_SECONDS = 300.0
CHECKPOINT_BYTES_PER_SECOND = 250e6
MOST_TIMES = 100.0  # a checkpoint so much larger than the measured one takes longer by no more: it is another job's


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Per run, and as a share of the time spent on steps."""

    startup_seconds: float
    save_seconds: float
    restore_seconds: float
    checkpoint_interval_seconds: float  # on demand; with spot nodes it depends on how often they are lost
    checkpoint_share: float

    @property
    def restart_seconds(self) -> float:
        """After a loss: all nodes start again and read the checkpoint."""
        return self.startup_seconds + self.restore_seconds


def run_overheads(
    workload: Workload, measurements: Sequence[Measurement], copied_bytes: float = 0.0, volume_mibps: int = GP3_MIBPS
) -> Overheads:
    """`copied_bytes`: of data that every node copies from S3 before it starts, and a replaced one again.

    That is more than its memory holds back, so that it goes at the pace of the volume. Local disks are faster; whether
    a node has them is known only when its type is chosen.
    """
    copying = copied_bytes / min(CHECKPOINT_BYTES_PER_SECOND, volume_mibps * 2**20)
    measured = median([row.startup_seconds for row in measurements])  # with copying only where it was done, too
    startup = STARTUP_SECONDS + copying if measured is None else max(measured, copying)
    size = workload.checkpoint_bytes_or_default
    save = _measured("checkpoint_save_seconds", size, measurements)
    save = size / CHECKPOINT_BYTES_PER_SECOND if save is None else save
    restore = _measured("checkpoint_restore_seconds", size, measurements)
    interval = checkpoint_interval_seconds(save) if size else 0.0
    return Overheads(
        startup_seconds=startup,
        save_seconds=save,
        restore_seconds=save if restore is None else restore,  # assumed to take as long as writing
        checkpoint_interval_seconds=interval,
        checkpoint_share=save / interval if interval else 0.0,
    )


def _measured(
    name: Literal["checkpoint_save_seconds", "checkpoint_restore_seconds"], size: float, rows: Sequence[Measurement]
) -> float | None:
    """At the job's size, where the size was measured too."""
    known = [(seconds, row.checkpoint_bytes) for row in rows if (seconds := getattr(row, name)) is not None]
    return median([seconds * (min(size / measured, MOST_TIMES) if measured else 1.0) for seconds, measured in known])
