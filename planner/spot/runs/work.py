"""A job as interruptions see it: hours of work, what a loss takes back, and how much of a stint stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.errors import InputError
from planner.models import UNNOTICED_SHARE, saved_in_notice

# Of a gang's spot nodes, those that are there, and paid, while it waits for the others: the mean of 0.17, 0.02, 0.06
# and 0.13 in the four recordings of 4 and 16 nodes at once (skypilot-org/spot-traces), each counted alike.
SURVIVING_SHARE = 0.095


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWork:
    """Work in hours of the whole cluster without losses and without saving: one for all runs, or each run's own."""

    work_hours: Floats | float
    interval_hours: float
    save_hours: float = 0.0
    restart_hours: float = 0.1
    uses_notice: bool = False  # the two-minute notice is announced to the script, which then saves if it can

    def __post_init__(self) -> None:
        shortest, longest = float(np.min(self.work_hours)), float(np.max(self.work_hours))
        if not (shortest > 0 and np.isfinite(longest)):
            raise InputError(f"work of {longest if shortest > 0 else shortest} hours cannot be simulated")
        if not self.interval_hours > 0:
            raise InputError("spot nodes need a job that saves checkpoints: without them a loss costs everything")
        if min(self.save_hours, self.restart_hours) < 0:
            raise InputError("saving and restarting cannot take less than no time")

    @property
    def saves_on_notice(self) -> bool:
        return self.uses_notice and saved_in_notice(self.save_hours * 3600)

    @property
    def pace(self) -> float:
        """Work per hour of running, saves included."""
        return self.interval_hours / (self.interval_hours + self.save_hours)

    def kept_hours(self, stint_hours: Floats) -> Floats:
        """Work that survives a stint which ends in a loss."""
        running = np.maximum(stint_hours - self.restart_hours, 0.0)
        if self.saves_on_notice:
            done = running * self.pace
            return np.asarray(done - UNNOTICED_SHARE * np.minimum(done, self.interval_hours) / 2)
        period = self.interval_hours + self.save_hours
        return np.asarray(np.floor(running / period + 1e-9) * self.interval_hours)

    def needed_hours(self, work_left: Floats) -> Floats:
        """An uninterrupted stint that finishes this work."""
        return np.asarray(self.restart_hours + work_left / self.pace)
