"""How near a probe's all-reduce comes to what a link of known bandwidth allows, and to what a ring needs of it.

Two nodes on this machine, with a link between them that sends at most so much (see two_nodes.py). Prints a Markdown
table, or JSON with --json: the largest all-reduce beside the seconds that its bytes need, the bandwidth that scav makes
of all sizes, and the communication that a step shows. Other work on the machine adds time: run it on an idle one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import two_nodes

from planner.inputs.measurements import Measurement
from planner.models.bandwidth import effective_network, moved_bytes

LINKS_MEGABITS = (100, 200, 500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reason = two_nodes.why_not()
    if reason is not None:
        print(f"Skipped: {reason}")
        return
    rows = [measured(megabits) for megabits in LINKS_MEGABITS]
    print(json.dumps(rows, indent=2) if arguments.json else as_markdown(rows))


def measured(megabits: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(two_nodes.GRADIENT)
        two_nodes.over_a_link(megabits, folder, *two_nodes.PROBE)
        record = json.loads((folder / two_nodes.OUTPUT).read_text())
    record.pop("outcome")
    return compared(Measurement.model_validate({**record, "instance_type": "local", "precision": "fp32"}), megabits)


def compared(measurement: Measurement, megabits: int) -> dict[str, float]:
    bytes_per_second = megabits * 1e6 / 8
    moved = np.array([moved_bytes(row.bytes, measurement.nodes) for row in measurement.allreduce])
    seconds = np.array([row.seconds for row in measurement.allreduce])
    network = effective_network(moved, seconds)
    largest = int(np.argmax(moved))
    return {
        "link_megabits": megabits,
        "allreduce_megabytes": measurement.allreduce[largest].bytes / 1e6,
        "allreduce_seconds": float(seconds[largest]),
        "ring_seconds": float(moved[largest] / bytes_per_second),
        "recovered_megabits": network.bytes_per_second * 8 / 1e6 if network else float("nan"),
        "exposed_sync_seconds": measurement.exposed_sync_seconds or 0.0,
        "gradient_ring_seconds": moved_bytes(measurement.gradient_bytes or 0, 2) / bytes_per_second,
    }


def as_markdown(rows: list[dict[str, float]]) -> str:
    lines = [
        "| link Mbit/s | all-reduce | a ring needs | over it | recovered Mbit/s | shown in a step | a ring needs |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        over = row["allreduce_seconds"] / row["ring_seconds"] - 1
        lines.append(
            f"| {row['link_megabits']} | {row['allreduce_seconds']:.3f} s for {row['allreduce_megabytes']:.0f} MB "
            f"| {row['ring_seconds']:.3f} s | {over:+.1%} | {row['recovered_megabits']:.0f} "
            f"| {row['exposed_sync_seconds']:.3f} s | {row['gradient_ring_seconds']:.3f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
