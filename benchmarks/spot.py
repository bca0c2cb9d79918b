"""Interruptions, waiting, deadlines and intervals on recorded spot capacity, beside the usual assumptions.

Reads every availability trace below --data ({"metadata": {"gap_seconds"}, "data": [counts]}, plain or gzipped). First
halves calibrate, second halves and other zones are scored. Prints Markdown, or JSON with --json.

p50_error is the median over runs of |forecast p50 - actual| / actual; covered90 the share of runs between p05 and p95;
width the median p95/p05. A run that outlasts its recording counts where it already refutes the forecast;
finished_error is p50_error without such runs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from spot_checkpoints import checkpoint_rows
from spot_data import load_traces
from spot_forecasts import forecast_rows
from spot_gangs import gang_rows
from spot_policies import policy_rows
from spot_pooling import pooled_process
from spot_speed import speed_rows

SHORTEST_POOLED_HOURS = 100.0
SECTIONS = {
    "Hours of 24 h of work, forecast against replay": (
        "rows",
        "trace model runs p50_error finished_error mean_error covered90 width mean_width bias",
    ),
    "A gang: simulated over replayed (no command uses this yet)": (
        "gangs",
        "trace gang model replay_p50_hours replay_p95_hours p50_over_replay p95_over_replay",
    ),
    "Deadline policies": (
        "policies",
        "policy deadline_factor trace cost_ratio_to_omniscient worst_trace misses saved_against_on_demand losses",
    ),
    "Checkpoint interval": ("checkpoints", "process save_seconds notice interval_seconds best_seconds cost_over_best"),
    "Speed": ("speed", "what seconds ratio"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pool", action="store_true", help="print the pooled default instead, from all traces")
    parser.add_argument("--every-trace", action="store_true", help="in Markdown, a row per trace beside the mean")
    arguments = parser.parse_args()
    traces = load_traces(arguments.data)
    if not traces:
        parser.error(f"no availability trace below {arguments.data}")
    if arguments.pool:
        print(pooled_process([trace for trace in traces if trace.hours > SHORTEST_POOLED_HOURS]))
        return
    began = time.perf_counter()
    result: dict[str, list[dict[str, object]]] = {
        "rows": forecast_rows(traces),
        "policies": policy_rows(traces),
        "gangs": gang_rows(traces),
        "checkpoints": checkpoint_rows(),
        "speed": speed_rows(),
    }
    result["speed"].append({"what": "this benchmark", "seconds": time.perf_counter() - began, "ratio": None})
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result, arguments.every_trace))


def as_markdown(result: dict[str, list[dict[str, object]]], every_trace: bool) -> str:
    lines: list[str] = []
    for title, (key, names) in SECTIONS.items():
        columns = names.split()
        rows = [row for row in result[key] if every_trace or key == "gangs" or row.get("trace", "all") == "all"]
        lines += [f"## {title}", "", f"| {' | '.join(columns)} |", "|--" * len(columns) + "|"]
        lines += ["| " + " | ".join(_cell(row.get(column)) for column in columns) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)


if __name__ == "__main__":
    main()
