"""A real all-reduce over a link of known bandwidth: what it sends is what a ring sends, and no probe beats the link.

Other work on the machine only ever adds time, so nothing here has an upper bound in seconds; how close the probe comes
to the bandwidth is measured by benchmarks/shaped_network.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import two_nodes

from planner.inputs.measurements import Measurement
from planner.models.bandwidth import moved_bytes

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

MEGABITS = 500
LARGE_BYTES = 16_000_000
BURST_SHARE = 0.02  # of the large all-reduce: what a link lets through at once before it shapes
COUNT = """
import json, os, torch
import torch.distributed as dist
def sent():
    (line,) = [line for line in open("/proc/net/dev") if line.strip().startswith("eth0:")]
    return int(line.split(":")[1].split()[8])
dist.init_process_group("gloo")
gradient = torch.ones(1_000_000)
dist.all_reduce(gradient)
dist.barrier()
before = sent()
for _ in range(5):
    dist.all_reduce(gradient)
dist.barrier()
with open(f"sent-{os.environ['RANK']}.json", "w") as file:
    json.dump({"bytes": 5 * gradient.nbytes, "sent": sent() - before}, file)
dist.barrier()
dist.destroy_process_group()  # ends gloo's threads while there still is an interpreter
"""


@pytest.fixture(autouse=True)
def _link() -> None:
    reason = two_nodes.why_not()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def test_an_all_reduce_sends_what_a_ring_sends(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    two_nodes.over_a_link(MEGABITS, tmp_path, "count.py")
    for rank in (0, 1):
        counted = json.loads((tmp_path / f"sent-{rank}.json").read_text())
        # More by the headers of packets, and by those that only acknowledge what the other side sent.
        assert 1.0 <= counted["sent"] / moved_bytes(counted["bytes"], 2) <= 1.15


def test_a_probe_is_never_faster_than_the_link(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(two_nodes.GRADIENT)
    two_nodes.over_a_link(MEGABITS, tmp_path, *two_nodes.PROBE)
    record = json.loads((tmp_path / two_nodes.OUTPUT).read_text())
    assert record.pop("outcome") == "measured"
    measurement = Measurement.model_validate({**record, "instance_type": "local", "precision": "fp32"})
    assert (measurement.nodes, measurement.gpus_per_node) == (2, 1)
    large = [row for row in measurement.allreduce if row.bytes >= LARGE_BYTES]
    assert len(large) == 1
    for row in large:
        needed_seconds = moved_bytes(row.bytes, measurement.nodes) / (MEGABITS * 1e6 / 8)
        assert row.seconds >= (1 - BURST_SHARE) * needed_seconds
    assert measurement.exposed_sync_seconds is not None
