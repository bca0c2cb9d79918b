"""The same job on recorded capacity: what would have happened, from many starting moments."""

from __future__ import annotations

import numpy as np

from planner.columns import Floats
from planner.errors import InputError
from planner.inputs import Stretches, Trace
from planner.spot.runs.monte_carlo import SpotRuns
from planner.spot.runs.work import SpotWork


def replay(work: SpotWork, runs: Stretches, starts_hours: Floats) -> SpotRuns:
    """A run that outlasts the recording is not finished: its hours are those until the recording ends."""
    starts = np.asarray(starts_hours, dtype=float)
    left = np.full(len(starts), work.work_hours, dtype=float)
    hours = np.full(len(starts), runs.end_hours[-1]) - starts
    paid, losses = np.zeros(len(starts)), np.zeros(len(starts), dtype=np.int64)
    finished = np.zeros(len(starts), dtype=bool)
    for begin, end, up in zip(runs.begin_hours, runs.end_hours, runs.up, strict=True):
        if not up:
            continue
        stint = np.where(finished, 0.0, np.maximum(end - np.maximum(starts, begin), 0.0))
        needed = work.needed_hours(left)
        done = (stint >= needed) & ~finished
        hours = np.where(done, np.maximum(starts, begin) + needed - starts, hours)
        paid += np.where(done, needed, stint)
        finished |= done
        if end < runs.end_hours[-1]:
            cut = (stint > 0) & ~done
            losses += cut
            left = np.maximum(left - np.where(cut, work.kept_hours(stint), 0.0), 0.0)
    return SpotRuns(hours=hours, paid_hours=paid, losses=losses, finished=finished)


def replayed_usd(
    trace: Trace, replayed: SpotRuns, starts_hours: Floats, nodes: int | None = None, unseen_share: float = 0.0
) -> Floats:
    """What the gang cost at the recorded prices, over its size: each node is paid whenever it is there.

    A recording of one node does not say how many of a gang wait for the others: `unseen_share` of them then do.
    """
    if trace.prices is None:
        raise InputError("the trace has no prices", file=trace.place)
    spent = trace.prices * trace.there(nodes, unseen_share) * trace.tick_seconds / 3600
    total = np.concatenate(([0.0], np.cumsum(spent)))
    ticks = np.arange(len(total)) * trace.tick_seconds / 3600
    starts = np.asarray(starts_hours, dtype=float)
    return np.asarray(np.interp(starts + replayed.hours, ticks, total) - np.interp(starts, ticks, total))
