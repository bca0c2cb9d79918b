"""How often to save: Young's and Daly's balance between saving too often and losing too much.

It takes the MEAN time between losses of the whole cluster. Up-times have a long tail, so the median is far below the
mean and would save three times too often.
"""

from __future__ import annotations

import numpy as np

from planner.columns import Floats

# The notice is two minutes, but torchrun kills a script half a minute after it was told to stop (modules/gpu-cluster).
NOTICE_SECONDS = 30.0
# Assumed: losses without a usable notice. Machines break too, and a signal can miss its process.
UNNOTICED_SHARE = 0.1
_SHORTEST_INTERVAL_SAVES = 5.0
_SHORTEST_INTERVAL_SECONDS = 60.0
_LONGEST_INTERVAL_SAVES = 60.0
_LONGEST_INTERVAL_SECONDS = 3600.0
_LONGEST_INTERVAL_OF_DEADLINE = 0.1
# Until the search knows the zone: what the plan has assumed of a cluster so far.
_ASSUMED_HOURS_BETWEEN_LOSSES = 10.0


def saved_in_notice(save_seconds: float) -> bool:
    """A save that does not fit into the notice is as good as none: then only the interval protects."""
    return save_seconds <= NOTICE_SECONDS


def checkpoint_interval_seconds(
    save_seconds: float,
    mean_hours_between_losses: float = _ASSUMED_HOURS_BETWEEN_LOSSES,
    *,
    uses_notice: bool = False,
) -> float:
    """For one cluster; see `intervals_seconds` for a column of them."""
    return float(intervals_seconds(save_seconds, np.array([mean_hours_between_losses]), uses_notice=uses_notice)[0])


def intervals_seconds(
    save_seconds: float,
    mean_hours_between_losses: Floats,
    *,
    uses_notice: bool = False,
    deadline_hours: float | None = None,
) -> Floats:
    """Kept between five saves and sixty, or an hour: beyond, a wrong rate costs more than the formula gains.

    A sixtieth of the time is then the most that saving takes where nothing is ever lost. Before a deadline, who still
    runs on spot nodes must keep as much time free as a loss can take back: at most a tenth of it, or an hour.

    The first-order form: Daly's further terms assume exponential up-times and come out too short here.
    """
    unexpected = UNNOTICED_SHARE if uses_notice and saved_in_notice(save_seconds) else 1.0
    between = np.maximum(np.asarray(mean_hours_between_losses, dtype=float), 1e-3) * 3600 / unexpected
    best = np.sqrt(2 * save_seconds * between)
    shortest = max(_SHORTEST_INTERVAL_SAVES * save_seconds, _SHORTEST_INTERVAL_SECONDS)
    longest = _LONGEST_INTERVAL_SAVES * save_seconds
    if deadline_hours is not None:
        longest = min(longest, _LONGEST_INTERVAL_OF_DEADLINE * deadline_hours * 3600)
    longest = max(longest, _LONGEST_INTERVAL_SECONDS, shortest)
    return np.asarray(np.clip(best, shortest, longest))
