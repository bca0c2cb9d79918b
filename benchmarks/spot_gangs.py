"""A whole gang of nodes: the chain on their count against the assumption that nodes are lost one by one.

No command uses the chain yet: plans scale the rates of a gang that is there as a whole or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gang import IndependentNodes, gang_chain
from gang_runs import gang_hours

from planner.inputs.traces import Trace
from planner.spot.runs.work import SpotWork

WORK = SpotWork(work_hours=24.0, interval_hours=0.25, restart_hours=0.1)
STEP_HOURS = 1 / 12
SETTLING_HOURS, LONGEST_HOURS = 120.0, 240.0
PATHS = 600


def gang_rows(traces: Sequence[Trace]) -> list[dict[str, object]]:
    """p50 and p95 of the simulated hours over those of replays from every third hour of the same recording.

    The models are fitted to that whole recording: this scores their form, not a forecast.
    """
    rows = []
    for trace in (trace for trace in traces if trace.size > 1 and trace.hours > 2 * LONGEST_HOURS / 3):
        for elastic in (False, True):
            recorded = _quantiles(gang_hours(WORK, _windows(trace), STEP_HOURS, trace.size, elastic=elastic))
            for name, model in (
                ("count chain", gang_chain(trace)),
                ("independent", IndependentNodes.from_trace(trace)),
            ):
                counts = model.counts(SETTLING_HOURS + LONGEST_HOURS, STEP_HOURS, PATHS, seed=1)
                settled = counts[:, round(SETTLING_HOURS / STEP_HOURS) :]
                simulated = _quantiles(gang_hours(WORK, settled, STEP_HOURS, trace.size, elastic=elastic))
                rows.append(
                    {
                        "trace": trace.name,
                        "gang": "elastic" if elastic else "fixed",
                        "model": name,
                        "replay_p50_hours": recorded[0] if math.isfinite(recorded[0]) else None,
                        "replay_p95_hours": recorded[1] if math.isfinite(recorded[1]) else None,
                        "p50_over_replay": _ratio(simulated[0], recorded[0]),
                        "p95_over_replay": _ratio(simulated[1], recorded[1]),
                    }
                )
    return rows


def _windows(trace: Trace) -> np.ndarray:
    """Node counts from every third hour on; the recording goes round, so that late starts are not the short ones."""
    moments = np.arange(0.0, trace.hours - 1e-9, STEP_HOURS)
    counts = trace.counts[(moments * 3600 / trace.tick_seconds).astype(np.int64)]
    round_trip = np.concatenate([counts, counts])
    length = min(round(LONGEST_HOURS / STEP_HOURS), len(counts))
    starts = range(0, len(counts), round(3 / STEP_HOURS))
    return np.array([round_trip[start : start + length] for start in starts])


def _quantiles(hours: np.ndarray) -> tuple[float, float]:
    ordered = np.sort(np.where(np.isnan(hours), math.inf, hours))
    return float(ordered[len(ordered) // 2]), float(ordered[int(0.95 * len(ordered))])


def _ratio(simulated: float, recorded: float) -> float | None:
    """None where either does not end within the longest time looked at."""
    return simulated / recorded if math.isfinite(simulated) and math.isfinite(recorded) else None
