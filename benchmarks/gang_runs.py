"""A job on a gang whose node count changes: of fixed size (waits for all of them) or elastic (goes on with fewer)."""

from __future__ import annotations

import numpy as np

from planner.columns import Floats, Ints
from planner.spot.runs.work import SpotWork


def gang_hours(work: SpotWork, counts: Ints, step_hours: float, size: int, *, elastic: bool) -> Floats:
    """Hours until the work is done for each row of node counts; NaN where the row ends before it.

    Work is in hours of the whole gang. An elastic gang with half its nodes works at half the pace, and every loss
    makes it restart; nodes that come back join at the next checkpoint, for the price of a restart.
    """
    paths, steps = counts.shape
    left, saved = (np.full(paths, work.work_hours, dtype=float) for _ in range(2))
    restart, since = np.full(paths, work.restart_hours), np.zeros(paths)
    hours = np.full(paths, np.nan)
    before = np.zeros(paths, dtype=np.int64)
    for step in range(steps):
        count = counts[:, step]
        runs = count >= (1 if elastic else size)
        lost = (count < before) & (before > 0)
        left = np.where(lost, left if work.saves_on_notice else saved, left)
        fresh = lost | ((count > before) & (elastic | ~(before >= size)))
        restart = np.where(fresh, work.restart_hours, restart)
        since = np.where(fresh, 0.0, since)
        saved = np.where(fresh, left, saved)
        waited = np.minimum(restart, step_hours)
        pace = work.pace * (count / size if elastic else 1.0)
        worked = np.where(runs, (step_hours - waited) * pace, 0.0)
        done = np.isnan(hours) & (worked >= left) & runs
        hours = np.where(done, step * step_hours + waited + left / np.where(pace > 0, pace, 1.0), hours)
        left = np.maximum(left - worked, 0.0)
        restart = np.where(runs, restart - waited, restart)
        since = since + np.where(runs, step_hours - waited, 0.0)
        full = since >= work.interval_hours - 1e-9
        saved, since = np.where(full, left, saved), np.where(full, 0.0, since)
        before = np.where(runs, count, 0)
        if not np.isnan(hours).any():
            break
    return hours
