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
from spot_no_history import no_history_rows
from spot_plan_replay import plan_replay_rows
from spot_policies import policy_rows
from spot_pooling import zone_prior
from spot_speed import speed_rows

SECTIONS = {
    "Hours of 24 h of work, forecast against replay": (
        "rows",
        "trace model runs p50_error finished_error mean_error covered90 width mean_width bias",
    ),
    "No history: 24 h of work in a zone whose region was left out": (
        "no_history",
        "nodes forecast trace zones covered90_hours covered90_usd width_hours width_usd pinball_hours pinball_usd",
    ),
    "The README's job on spot nodes, replayed on every recording": (
        "plan_replays",
        "plan deadline_hours zones stated_missed replayed_missed worst_zone",
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
    parser.add_argument("--pool", action="store_true", help="print scav's prior instead, from all traces")
    parser.add_argument("--no-history", action="store_true", help="what is assumed without one alone: a minute")
    parser.add_argument("--every-trace", action="store_true", help="in Markdown, a row per trace beside the mean")
    arguments = parser.parse_args()
    traces = load_traces(arguments.data)
    if not traces:
        parser.error(f"no availability trace below {arguments.data}")
    if arguments.pool:
        print(zone_prior(traces))
        return
    if arguments.no_history:
        found = {"no_history": list(no_history_rows(traces)), "plan_replays": plan_replay_rows(traces)}
        print(json.dumps(found, indent=2) if arguments.json else as_markdown(found, arguments.every_trace))
        return
    began = time.perf_counter()
    result: dict[str, list[dict[str, object]]] = {
        "rows": forecast_rows(traces),
        "policies": policy_rows(traces),
        "no_history": list(no_history_rows(traces)),
        "plan_replays": plan_replay_rows(traces),
        "checkpoints": checkpoint_rows(),
        "speed": speed_rows(),
    }
    result["speed"].append({"what": "this benchmark", "seconds": time.perf_counter() - began, "ratio": None})
    print(json.dumps(result, indent=2) if arguments.json else as_markdown(result, arguments.every_trace))


def as_markdown(result: dict[str, list[dict[str, object]]], every_trace: bool) -> str:
    lines: list[str] = []
    for title, (key, names) in ((title, section) for title, section in SECTIONS.items() if section[0] in result):
        columns = names.split()
        rows = [row for row in result[key] if every_trace or row.get("trace", "all") == "all"]
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
