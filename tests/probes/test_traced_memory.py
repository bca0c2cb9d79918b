"""What a GPU would hold of a training, traced without memory: `scav memory --trace` and the watch behind it."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensor

from planner.cli import cli
from probes.allocations import AllocationWatch

REPOSITORY = Path(__file__).resolve().parents[2]
TINY_LLAMA = REPOSITORY / "examples" / "tiny-llama"
PARAMETERS = 201_280
KIB = 1024


def memory(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["memory", *map(str, arguments)], catch_exceptions=False)


def traced(job: Path, *options: str) -> dict[str, Any]:
    result = memory(job, "--json", "--trace", "--instance-type", "g5.48xlarge", *options)
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    return dict(row["traced"])


def test_a_storage_counts_once_from_its_making_to_its_end() -> None:
    watch = AllocationWatch()
    with watch, watch.within("forward pass"):
        held = torch.empty(100, dtype=torch.float32)  # 400 bytes are a block of 512
        view = held[:10]
        assert watch.bytes == 512
        del held
        assert watch.bytes == 512
        del view
        assert (watch.bytes, watch.peak_bytes) == (0, 512)
        torch.empty(KIB, dtype=torch.uint8)
    assert (watch.bytes, watch.peak_bytes, watch.fullest) == (0, KIB, "forward pass")


def test_what_is_made_outside_stays_real() -> None:
    watch = AllocationWatch()
    with watch:
        number = torch.ones(3) + 1
        made = watch.without_memory(torch.empty(1 << 20))
        assert isinstance(made * 2, FakeTensor)
        assert (made.sum().item(), bool(made[0] > 0)) == (1.0, True)
    assert number.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.slow
def test_shards_are_a_share_and_what_is_computed_again_is_not_held() -> None:
    whole, shards = traced(TINY_LLAMA), traced(TINY_LLAMA, "--strategy", "fsdp", "--micro-batch", "2")
    again = traced(TINY_LLAMA, "--strategy", "fsdp", "--micro-batch", "2", "--recompute", "full")
    assert {one["trained_parameters"] for one in (whole, shards, again)} == {PARAMETERS}
    assert (whole["trained_bytes"], shards["trained_bytes"]) == (4 * PARAMETERS, 4 * PARAMETERS // 8)
    assert whole["optimizer_bytes"] == pytest.approx(8 * PARAMETERS, rel=0.01)
    assert shards["optimizer_bytes"] == pytest.approx(PARAMETERS, rel=0.01)
    # Weights, gradients and buckets, both of Adam's.
    assert whole["peak_bytes"] > 20 * PARAMETERS
    assert again["peak_bytes"] < shards["peak_bytes"] < whole["peak_bytes"] * 2
    assert traced(TINY_LLAMA, "--strategy", "fsdp", "--micro-batch", "4")["peak_bytes"] > shards["peak_bytes"]


SCRIPT = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4096, 65536, bias=False), nn.ReLU(), nn.Linear(65536, 4096, bias=False))
    model = model.to(torch.bfloat16)  # half a billion parameters, after 2 GiB in fp32
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range({steps}):
        output = model(torch.randn(2, 4096, dtype=torch.bfloat16))
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.3f}")
"""
JOB = """
name: wide
workload:
  transformer: {layers: 2, width: 4096, heads: 32, feed_forward_width: 11008, vocabulary: 1000, sequence_length: 16}
  dataset_samples: 1M
  global_batch: 8..64
  target: {epochs: 1, reference_batch: 8}
constraints: {deadline: 7d}
run: {command: [train.py]}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "scav.yaml").write_text(JOB, encoding="utf-8")
    return tmp_path


def write_script(job: Path, steps: int) -> None:
    (job / "train.py").write_text(textwrap.dedent(SCRIPT).replace("{steps}", str(steps)), encoding="utf-8")


@pytest.mark.slow
def test_a_script_that_knows_nothing_of_it_holds_weights_gradients_and_little_else(job: Path) -> None:
    write_script(job, steps=9)
    result = memory(job, "--trace", "--instance-type", "g5.xlarge")
    assert result.exit_code == 0, result.stderr
    assert "Warning: the script trains 536,870,912 parameters, the job file says" in result.stderr
    assert "Warning: asked for 8 samples per GPU and step, the script took 2" in result.stderr
    assert "Traced: the script trains 537 M parameters and is fullest in the" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    (row,) = json.loads(memory(job, "--json", "--trace", "--instance-type", "g5.xlarge").stdout)["rows"]
    two_copies = 2 * 2 * 536_870_912
    assert two_copies < row["traced"]["peak_bytes"] < 1.001 * two_copies + 2 * 536_870_912  # and foreach's products


@pytest.mark.slow
def test_a_library_is_handed_the_batch_and_its_ddp_has_buckets(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    scripts = Path(__file__).parent / "scripts"
    shutil.copytree(scripts, tmp_path, dirs_exist_ok=True)
    (tmp_path / "scav.yaml").write_text(JOB.replace("train.py", "trainer.py"), encoding="utf-8")
    result = memory(tmp_path, "--trace", "--json", "--instance-type", "g5.48xlarge", "--micro-batch", "2")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    assert row["traced"]["samples_per_step"] == 2
    assert "asked for" not in result.stderr


@pytest.mark.slow
def test_a_script_that_ends_too_early_says_so(job: Path) -> None:
    write_script(job, steps=1)
    result = memory(job, "--trace", "--instance-type", "g5.xlarge")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "tracing: the script ended after 1 optimizer steps, 2 are needed" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--trace: is of one cluster: name it with --instance-type"),
        (("--instance-type", "g5.48xlarge", "--pipeline", "2"), "--trace: a trace is of one process"),
        (("--instance-type", "g5.48xlarge", "--tensor-parallel", "16"), "--tensor-parallel: 16 is beyond a node"),
        (("--instance-type", "g5.48xlarge"), "no such script"),
    ],
)
def test_what_cannot_be_traced_is_one_line(job: Path, options: tuple[str, ...], words: str) -> None:
    result = memory(job, "--trace", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr.splitlines()[-1]


def test_a_job_without_a_shape_cannot_be_traced() -> None:
    result = memory(REPOSITORY / "examples" / "resnet50-imagenet", "--trace", "--instance-type", "g5.xlarge")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith("--trace: needs workload.transformer in the job file")


def test_a_traced_factor_moves_the_answer(job: Path) -> None:
    def needed() -> float:
        result = memory(job, "--json", "--instance-type", "g5.48xlarge")
        return float(json.loads(result.stdout)["rows"][0]["allocated"]["p50"])

    before = needed()
    text = JOB.replace("  dataset_samples", "  memory_factor: 1.5\n  dataset_samples")
    (job / "scav.yaml").write_text(text, encoding="utf-8")
    assert 1.2 * before < needed() < 1.5 * before
