"""Real processes that take different batches: with the weights of a mixed gang they train as an even gang does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

from planner.columns import Quantiles
from planner.search.mixed_gangs import MixedGang

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
STEPS, TOLERANCE = 40, 1e-5
# Each process takes its own part of the same samples; its loss counts by its weight, and DDP averages plainly.
SCRIPT = """
import json, pathlib, sys, torch
import torch.distributed as dist
from torch import nn
from probes.ending import leave
batches, weights = json.loads(sys.argv[1]), json.loads(sys.argv[2])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
samples = torch.Generator().manual_seed(1)
true = torch.randn(16, 4, generator=samples)
losses = []
for _ in range(int(sys.argv[4])):
    x = torch.randn(sum(batches), 16, generator=samples)
    own = x.split(batches)[rank]
    optimizer.zero_grad()
    loss = weights[rank] * nn.functional.cross_entropy(model(own), (own @ true).argmax(dim=1))
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(float(mean) / len(batches))
if rank == 0:
    pathlib.Path(sys.argv[3]).write_text(json.dumps(losses))
leave()
"""


def losses(folder: Path, batches: list[int], weights: list[float]) -> list[float]:
    script, output = folder / "train.py", folder / "losses.json"
    script.write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={len(batches)}"]
    arguments = [json.dumps(batches), json.dumps(weights), str(output), str(STEPS)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    subprocess.run([*launcher, script, *arguments], env=environment, check=True, timeout=PATIENCE_SECONDS)
    return list(json.loads(output.read_text()))


def gang(batches: tuple[int, int]) -> MixedGang:
    """Two processes, one of each kind."""
    nothing = Quantiles(1.0, 1.0, 1.0)
    return MixedGang(
        instance_types=("g1.slow", "p1.fast"),
        nodes=(1, 1),
        gpus_per_node=(1, 1),
        gpu_batches=batches,
        region="near",
        zone="near-az1",
        global_batch=sum(batches),
        hourly_usd=1.0,
        step_seconds=nothing,
        hours=nothing,
        hours_limit=1.0,
        usd=nothing,
        usd_limit=1.0,
        extrapolated=False,
    )


def test_the_losses_of_a_weighted_gang_are_those_of_an_even_one(tmp_path: Path) -> None:
    even = losses(tmp_path, [32, 32], [1.0, 1.0])
    weighted = losses(tmp_path, [52, 12], list(gang((52, 12)).weights))
    plain = losses(tmp_path, [52, 12], [1.0, 1.0])
    assert even[-1] < 0.5 * even[0], "it learns"
    assert max(abs(a - b) for a, b in zip(even, weighted, strict=True)) < TOLERANCE
    assert max(abs(a - b) for a, b in zip(even, plain, strict=True)) > 100 * TOLERANCE
