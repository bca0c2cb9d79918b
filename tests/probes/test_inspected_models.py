"""`scav inspect` on the examples and on two networks that everybody knows, beside what is published of them and what
the allocator keeps; and the plan that follows from a GPT-2 script, beside the one that was written by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")
pytest.importorskip("transformers")

from planner.cli import cli
from planner.inputs import InspectedScript, drafted_job, job_values

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
DIGITS, TRANSFORMER = (REPOSITORY / "examples" / name for name in ("digits-cnn", "tiny-transformer"))
NANOGPT_HOURS = 4 * 24.0  # one node of eight A100-40GB, as nanoGPT's README says
RESNET_PARAMETERS, GPT2_PARAMETERS = 25_557_032, 124_439_808


def inspected(folder: Path, *command: str) -> dict[str, Any]:
    arguments = ["inspect", "--json", "--max-duration", "10min", str(folder), "--", *command]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def kept_in_use(folder: Path, checkpoints: Path, *command: str) -> int:
    """By the C library's own count, in a process of its own."""
    finished = subprocess.run(
        [sys.executable, str(HERE / "kept_in_use.py"), *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "SCAV_CHECKPOINT_DIR": str(checkpoints)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return int(finished.stdout.split()[-1])


def assert_kept(found: dict[str, Any], in_use: int) -> None:
    kept = found["gpu_batch"] * found["activation_bytes_per_sample"] + found["constant_bytes"]
    assert kept == pytest.approx(in_use, rel=0.05)


@pytest.mark.parametrize("folder", [DIGITS, TRANSFORMER], ids=lambda folder: folder.name)
def test_the_examples_keep_what_the_allocator_keeps(folder: Path, tmp_path: Path) -> None:
    assert_kept(inspected(folder, "train.py"), kept_in_use(folder, tmp_path, "train.py"))


def test_resnet_50_is_as_published(tmp_path: Path) -> None:
    """4.09 G multiply-adds forward (torchvision's model card), twice that again backward; images need no gradient."""
    command = ("resnet50.py", "--batch-size", "2")
    found = inspected(HERE / "scripts", *command)
    assert found["trainable_parameters"] == RESNET_PARAMETERS
    assert found["flops_per_sample"] == pytest.approx(3 * 2 * 4.1e9, rel=0.03)
    assert found["constant_bytes"] == 2 * 4 * 26_560  # mean and deviation of every channel that is normalised
    assert_kept(found, kept_in_use(HERE / "scripts", tmp_path, *command))


@pytest.fixture(scope="module")
def gpt2() -> dict[str, Any]:
    return inspected(HERE / "scripts", "gpt2.py", "--batch-size", "1", "--bf16")


def test_gpt_2_is_as_nanogpt_counts_it(gpt2: dict[str, Any], tmp_path: Path) -> None:
    assert gpt2["trainable_parameters"] == GPT2_PARAMETERS
    # 6 N + 12 layers x width x length per token; N without positions, with the embedding that is the last layer, too.
    counted = GPT2_PARAMETERS - 1024 * 768
    assert gpt2["flops_per_sample"] == pytest.approx(1024 * (6 * counted + 12 * 12 * 768 * 1024), rel=0.03)
    assert (gpt2["precision"], gpt2["optimizer"], gpt2["dataset_samples"]) == ("bf16", "AdamW", 8_830_000)
    assert gpt2["gradient_bytes"] == 4 * GPT2_PARAMETERS
    assert gpt2["checkpoint_bytes"] == pytest.approx(12 * GPT2_PARAMETERS, rel=0.01)
    assert_kept(gpt2, kept_in_use(HERE / "scripts", tmp_path, "gpt2.py", "--batch-size", "1", "--bf16"))


def test_the_job_file_of_a_gpt_2_script_plans_as_the_one_by_hand(
    run_scav: Callable[..., Result], gpt2: dict[str, Any], tmp_path: Path
) -> None:
    by_hand = yaml.safe_load((REPOSITORY / "examples" / "gpt2-openwebtext" / "scav.yaml").read_text())
    found = InspectedScript.model_validate(gpt2)
    text = drafted_job(by_hand["name"], job_values(found, asked_batch=True), source="gpt2.py", command=["gpt2.py"])
    draft = yaml.safe_load(text)
    for key in ("target", "convergence", "global_batch"):  # what a person says
        draft["workload"][key] = by_hand["workload"][key]
    draft |= {key: by_hand[key] for key in ("constraints", "objective")}

    def hours(job: dict[str, Any]) -> dict[str, float]:
        (tmp_path / "scav.yaml").write_text(yaml.safe_dump(job))
        result = run_scav("plan", "--json")
        assert result.exit_code == 0, result.stderr
        estimate: dict[str, float] = json.loads(result.stdout)["estimate"]["hours"]
        return estimate

    assert hours(draft)["p50"] == pytest.approx(hours(by_hand)["p50"], rel=0.2)
    p4d = {"instance_types": ["p4d.24xlarge"], "nodes": 1, "spot": "never", "regions": ["us-east-1"]}
    size = found.activation_bytes_per_sample
    assert size is not None
    # With fused and with plain activations, with and without dropout, and in fp32: 0.65 to 1.1 GB; with plain attention
    # 1.6 to 2.2 GB.
    for factor in (1 / 1.5, 1.0, 1.3, 1.5, 1.7, 2.5, 3.4):
        workload = {**draft["workload"], "activation_bytes_per_sample": factor * size, "global_batch": 480}
        estimate = hours({**draft, "workload": workload, "constraints": p4d})
        assert estimate["p05"] < NANOGPT_HOURS < estimate["p95"], factor
