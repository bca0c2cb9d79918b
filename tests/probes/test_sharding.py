"""What `scav_probe.shard` refuses, and what a probe sees of a script that shards or does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

from torch import nn

from probes.cluster import Place
from probes.sharded import fault
from probes.sharding import CannotShard, data_parallel, refuse
from probes.strategy import Strategy

REPOSITORY = Path(__file__).resolve().parents[2]
PLAN = {"0": object()}


def place(rank: int, world_size: int, per_node: int) -> Place:
    return Place(rank=rank, world_size=world_size, local_rank=rank % per_node, local_world_size=per_node)


@pytest.mark.parametrize(
    ("asked", "how", "words"),
    [
        ({"pipeline": 2}, {}, "pipeline: stages are for the script to make"),
        ({"sharding": "zero1"}, {}, "zero1 shards the optimizer and not the model"),
        ({"sharding": "fsdp", "tensor_parallel": 4}, {}, "tensor_parallel: 4 is beyond a node of 2 processes"),
        ({"sharding": "fsdp", "tensor_parallel": 2}, {}, "tensor_parallel: needs tensor_plan="),
        ({"tensor_parallel": 2}, {"tensor_plan": PLAN}, "tensor_parallel: does not go with PyTorch's DDP, use fsdp"),
        ({"sharding": "fsdp"}, {"blocks": ()}, "needs blocks="),
        ({"recompute": "full"}, {"blocks": ()}, "needs blocks="),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(asked: dict[str, Any], how: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"blocks": (nn.Linear,), "tensor_plan": None, **how}
    with pytest.raises(CannotShard) as error:
        refuse(Strategy(**asked), place(0, 4, 2), **given)
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


def test_processes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(CannotShard, match="tensor_parallel: 3 processes cannot be divided by 2"):
        refuse(Strategy(sharding="fsdp", tensor_parallel=2), place(0, 3, 3), blocks=(nn.Linear,), tensor_plan=PLAN)


def test_neighbours_that_cut_layers_take_the_same_samples() -> None:
    strategy = Strategy(sharding="fsdp", tensor_parallel=2)
    assert [data_parallel(strategy, place(rank, 4, 4)) for rank in range(4)] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert [data_parallel(Strategy(), place(rank, 2, 2)) for rank in range(2)] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("asked", "taken", "recomputes", "words"),
    [
        (None, False, True, None),
        (Strategy(), False, False, None),
        (Strategy(), True, True, "asked for no recompute, and the script computes activations twice"),
        (Strategy(sharding="fsdp"), False, False, "asked for fsdp, and the script shards nothing"),
        (Strategy(tensor_parallel=2), False, False, "asked for ddp,tensor_parallel=2, and the script shards nothing"),
        (Strategy(recompute="full"), False, False, "asked for ddp,recompute=full, and the script computes nothing"),
        (Strategy(recompute="full"), False, True, None),
        (Strategy(sharding="zero1"), True, False, None),
    ],
)
def test_a_whole_model_follows_what_is_asked_or_one_line_says_no(
    asked: Strategy | None, taken: bool, recomputes: bool, words: str | None
) -> None:
    found = fault(nn.Linear(2, 2), asked, is_taken=taken, recomputes=recomputes)
    assert found is None if words is None else found is not None and found.startswith(words)


def test_the_older_fsdp_whose_shards_cannot_be_told_is_refused() -> None:
    """It cannot be made without a GPU, so this one is empty."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    older = FullyShardedDataParallel.__new__(FullyShardedDataParallel)
    nn.Module.__init__(older)
    found = fault(nn.Sequential(older), Strategy(sharding="fsdp"), is_taken=True, recomputes=False)
    assert found is not None
    assert found.startswith("its FSDP is FullyShardedDataParallel")


SCRIPT = """
import os, torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
{spread}
while True:
    x, y = torch.randn(int(os.environ["SCAV_GPU_BATCH"]), 64), torch.zeros(int(os.environ["SCAV_GPU_BATCH"])).long()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)"
OWN_FSDP = f"from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n{SGD}"
ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = nn.parallel.DistributedDataParallel(model)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01)
"""
ASKED = "from probes import scav_probe\nassert scav_probe.strategy().sharding == 'zero1'"


def probe(tmp_path: Path, spread: str, strategy: str, processes: int = 2) -> dict[str, Any]:
    (tmp_path / "train.py").write_text(SCRIPT.format(spread=spread))
    output = tmp_path / "probe.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "SCAV_GPU_BATCH": "8",
        "SCAV_STRATEGY": strategy,
        "SCAV_CHECKPOINT_DIR": str(tmp_path),
        "SCAV_PROBE_OUTPUT": str(output),
        "SCAV_PROBE_WINDOWS": "2",
        "SCAV_PROBE_WINDOW_STEPS": "5",
    }
    command = [*torchrun, "-m", "probes.run", "train.py"]
    finished = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert finished.returncode == 0, finished.stderr
    record: dict[str, Any] = json.loads(output.read_text())
    return record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "strategy", "words"),
    [
        (SGD, '{"sharding": "fsdp"}', "asked for fsdp, and the script shards nothing"),
        (OWN_FSDP, "", "the script shards its model by itself: name the way, as in --strategy fsdp"),
        (OWN_FSDP, '{"sharding": "ddp"}', "asked for ddp, and the script shards its model"),
    ],
)
def test_a_script_that_does_otherwise_is_ended(tmp_path: Path, spread: str, strategy: str, words: str) -> None:
    record = probe(tmp_path, spread, strategy)
    assert record["outcome"] == "other_strategy"
    assert record["reason"].startswith(words)


@pytest.mark.slow
def test_an_unchanged_script_with_fsdp_of_its_own_is_measured_when_it_is_named(tmp_path: Path) -> None:
    record = probe(tmp_path, OWN_FSDP, '{"sharding": "fsdp"}')
    assert record["outcome"] == "measured"
    assert record["parameters"] == 64 * 256 + 256 + 256 * 8 + 8


@pytest.mark.slow
def test_an_optimizer_that_has_another_inside_steps_once(tmp_path: Path) -> None:
    record = probe(tmp_path, ASKED + ZERO, '{"sharding": "zero1"}')
    assert (record["outcome"], record["samples_per_step"]) == ("measured", 8)
    assert "exposed_sync_seconds" not in record  # only a part of its communication can be switched off
    assert record["checkpoint_bytes"] > 2 * record["gradient_bytes"]  # both moments, of all processes
