"""`scav memory`: a table that fits a terminal, JSON for programs, and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.cli import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = """
name: llama-7b
workload:
  dataset_samples: 1M
  flops_per_sample: 90 TFLOP
  parameters: 6.74G
  activation_bytes_per_sample: 10GB
  global_batch: 64..256
  target: {epochs: 1, reference_batch: 64}
  transformer: {layers: 32, width: 4096, heads: 32, feed_forward_width: 11008, vocabulary: 32000, sequence_length: 2048}
constraints: {deadline: 7d}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["memory", *arguments])


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "scav.yaml").write_text(JOB, encoding="utf-8")
    return str(tmp_path)


def test_every_gpu_of_the_catalogue_has_a_line(job: str) -> None:
    result = run(job, "--strategy", "fsdp", "--recompute", "full")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("GPU")) + 1
    assert lines[0].startswith("6.74 G parameters, fsdp, full recompute, full training, micro-batch 1; asked for")
    assert [line.split()[0] for line in lines[first:]].count("H100") == 1
    assert all(line.endswith(("  fits", "does not fit")) for line in lines[first:])


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--instance-type", "p4d.24xlarge"),
        ("--instance-type", "p4d.24xlarge", "--strategy", "hsdp", "--nodes", "128", "--recompute", "selective"),
        ("--instance-type", "p5.48xlarge", "--tensor-parallel", "4", "--pipeline", "2", "--micro-batch", "1024"),
        ("--instance-type", "p5.48xlarge", "--training", "qlora", "--recompute", "selective", "--accumulation", "1024"),
    ],
)
def test_text_fits_80_columns(job: str, options: tuple[str, ...]) -> None:
    result = run(job, *options)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_one_instance_type_says_what_limits_and_what_would_help(job: str) -> None:
    result = run(job, "--instance-type", "p4d.24xlarge")
    assert "Does not fit: probability <1 %, asked for 95 %." in result.stdout
    assert "--strategy fsdp" in result.stdout
    sharded = run(job, "--instance-type", "p4d.24xlarge", "--strategy", "fsdp")
    assert "\nFits: probability" in sharded.stdout


def test_json_has_the_parts_that_the_text_has(job: str) -> None:
    (row,) = json.loads(run(job, "--instance-type", "p4d.24xlarge", "--strategy", "fsdp", "--json").stdout)["rows"]
    assert row["fits"] is True
    assert row["allocated"]["p05"] < row["allocated"]["p50"] < row["allocated"]["p95"]
    assert set(row["peak"]["parts"]) >= {"weights", "gradients", "optimizer", "gathered", "activations", "logits"}
    assert row["strategy"]["accumulation"] == 8  # 64 samples on 8 GPUs


def test_a_job_without_a_shape_gets_the_flat_answer() -> None:
    result = run(str(EXAMPLES / "resnet50-imagenet"), "--instance-type", "g5.xlarge")
    assert result.exit_code == 0
    assert "samples per GPU" in result.stdout
    refused = run(str(EXAMPLES / "resnet50-imagenet"), "--strategy", "fsdp")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "Error: --strategy: needs workload.transformer in the job file\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tensor-parallel", "3", "--instance-type", "p4d.24xlarge"), "cannot be divided among 3 GPUs"),
        (("--tensor-parallel", "64"), "--tensor-parallel: 64 is beyond every node of the catalogue"),
        (("--lora-rank", "-4"), "--lora-rank: -4 is not a whole number from 1"),
        (("--micro-batch", "0"), "--micro-batch: 0 is not a whole number from 1"),
        (("--tensor-parallel", "0"), "--tensor-parallel: 0 is not a whole number from 1"),
        (("--pipeline", "64"), "--pipeline: 32 layers are too few for 64 stages"),
        (("--instance-type", "p4d.24xlargee"), "did you mean p4d.24xlarge"),
    ],
)
def test_what_cannot_be_is_one_line(job: str, options: tuple[str, ...], words: str) -> None:
    result = run(job, *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("heads: 32", "heads: 33", "a width of 4,096 cannot be divided among 33 heads"),
        ("heads: 32", "heads: 32, key_value_heads: 5", "32 heads cannot share 5 key-value heads evenly"),
        ("heads: 32", "heads: 32, num_experts: 8", "mixtures of experts are not supported"),
        ("layers: 32", "layers: -1", "workload.transformer.layers"),
        ("layers: 32", "layer: 32", "did you mean layers?"),
    ],
)
def test_a_shape_that_cannot_be_is_one_line(tmp_path: Path, before: str, after: str, words: str) -> None:
    (tmp_path / "scav.yaml").write_text(JOB.replace(f"{before},", f"{after},"), encoding="utf-8")
    result = run(str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_a_measured_peak_moves_the_answer(job: str) -> None:
    asked = (job, "--instance-type", "p4d.24xlarge", "--strategy", "fsdp", "--json")

    def allocated() -> float:
        (row,) = json.loads(run(*asked).stdout)["rows"]
        return float(row["allocated"]["p50"])

    before = allocated()
    row = {
        "instance_type": "p4d.24xlarge",
        "nodes": 1,
        "gpus_per_node": 8,
        "gpu_batch": 1,
        "accumulation_steps": 8,
        "strategy": {"sharding": "fsdp"},
        "precision": "bf16",
        "step_seconds": 9.0,
        "peak_memory_bytes": 1.5 * before,
    }
    (Path(job) / "measurements.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert 1.2 * before < allocated() < 1.5 * before
