"""The checkpoint interval that scav chooses against the best one found by trying many in simulation."""

from __future__ import annotations

import numpy as np

from planner.models.checkpoints import checkpoint_interval_seconds, saved_in_notice
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.monte_carlo import simulate
from planner.spot.runs.work import SpotWork

SAVES_SECONDS = (5.0, 30.0, 300.0)
RUNS = 20_000
# Zones as they differ in the recordings; paid hours are what an interval changes, waiting is the same for all.
PROCESSES = {
    name: SpotProcess(loss_per_hour=POOLED.loss_per_hour * loss, return_per_hour=POOLED.return_per_hour)
    for name, loss in (("often lost", 1.5), ("pooled", 1.0), ("seldom lost", 0.4), ("hardly ever lost", 0.01))
}


def checkpoint_rows() -> list[dict[str, object]]:
    rows = []
    for name, process in PROCESSES.items():
        for save in SAVES_SECONDS:
            for notice in (False, True) if saved_in_notice(save) else (False,):
                chosen = checkpoint_interval_seconds(save, process.mean_up_hours, uses_notice=notice)
                tried = np.unique(np.append(chosen, np.geomspace(max(20.0, save), 12 * 3600, 30)))
                costs = [paid_hours(process, save, float(interval), notice) for interval in tried]
                best = int(np.argmin(costs))
                rows.append(
                    {
                        "process": name,
                        "save_seconds": save,
                        "notice": "saves" if notice else "unused" if saved_in_notice(save) else "too short",
                        "interval_seconds": chosen,
                        "best_seconds": float(tried[best]),
                        "cost_over_best": paid_hours(process, save, chosen, notice) / costs[best],
                    }
                )
    return rows


def paid_hours(process: SpotProcess, save_seconds: float, interval_seconds: float, notice: bool) -> float:
    """With the same random numbers for every interval, so that they are compared and not the luck."""
    work = SpotWork(
        work_hours=24.0,
        interval_hours=interval_seconds / 3600,
        save_hours=save_seconds / 3600,
        restart_hours=0.1,
        uses_notice=notice,
    )
    return float(simulate(work, process, RUNS, seed=7).paid_hours.mean())
