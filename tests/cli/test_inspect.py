"""`scav inspect` and `scav init --from`: real scripts, run unchanged, and what is counted by hand beside it."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from planner.inputs.job.parse import parse_job

torch = pytest.importorskip("torch")

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
SCRIPTS = REPOSITORY / "tests" / "probes" / "scripts"
Scav = Callable[..., Result]


def inspected(run_scav: Scav, *arguments: str | Path) -> dict[str, Any]:
    result = run_scav("inspect", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_network_of_convolutions_is_counted_exactly(run_scav: Scav) -> None:
    found = inspected(run_scav, EXAMPLES / "digits-cnn")
    first, second, last = 64 * 48 * 9, 64 * 96 * 48 * 9, 1536 * 10  # multiply-adds
    assert found["flops_per_sample"] == 2 * (2 * first + 3 * second + 3 * last)
    parameters = 480 + 2 * 48 + (48 * 9 + 1) * 96 + 2 * 96 + 15370
    assert (found["trainable_parameters"], found["frozen_parameters"]) == (parameters, 0)
    assert (found["gradient_bytes"], found["optimizer"], found["momentum"]) == (4 * parameters, "SGD", 0.9)
    assert found["checkpoint_bytes"] == pytest.approx(8 * parameters, rel=0.02)
    batch = ("gpu_batch", "accumulation_steps", "samples_per_step", "dataset_samples")
    assert [found[key] for key in batch] == [64, 1, 64, 1438]
    assert (found["precision"], found["device"]) == ("fp32", "cpu")
    assert found["input_cpu_seconds_per_sample"] > 0
    assert list(found["missing"]) == ["input_bytes_per_sample"]


@pytest.mark.slow
def test_a_transformer_is_counted_exactly_and_what_it_has_not_is_named(run_scav: Scav) -> None:
    result = run_scav("inspect", EXAMPLES / "tiny-transformer", "--json")
    found = json.loads(result.stdout)
    in_layers = 2 * (64 * 192 + 64 * 64 + 2 * 64 * 256)
    attention = 2 * 7 * (2 * 32 * 32 * 64)
    assert found["flops_per_sample"] == 32 * 6 * (in_layers + 64 * 29) + attention
    assert (found["trainable_parameters"], found["gpu_batch"], found["optimizer"]) == (105757, 32, "AdamW")
    assert set(found["missing"].values()) == {"the script trains without torch's DataLoader"}


FLOPS = 2 * (2 * 16 * 16 + 3 * 16 * 4)  # of the network in all of these scripts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "batch", "samples"),
    [
        ("ddp.py --batch-size 5 --accumulate 3 --checkpointing", [5, 3, 15], 4096),
        ("trainer.py --batch-size 6 --accumulate 3 --evaluate", [6, 3, 18], 4096),
        ("lightning_module.py --batch-size 7 --accumulate 2 --evaluate", [7, 2, 14], 4096),
        ("trainer.py --stream", [24, 1, 24], None),
    ],
    ids=lambda value: str(value).split()[0],
)
def test_scripts_of_every_kind_are_counted(run_scav: Scav, command: str, batch: list[int], samples: int | None) -> None:
    found = inspected(run_scav, SCRIPTS, "--", *command.split())
    assert [found[key] for key in ("gpu_batch", "accumulation_steps", "samples_per_step")] == batch
    assert found["flops_per_sample"] == FLOPS
    assert (found["trainable_parameters"], found["optimizer"]) == (340, "AdamW")
    assert found.get("dataset_samples") == samples
    least = 4 * 16 + 4 * 16 + 4 * 4  # inputs, hidden layer, and what the loss keeps of the logits
    assert least <= found["activation_bytes_per_sample"] < 1.2 * least
    if samples is None:
        assert found["missing"]["dataset_samples"] == "its data set does not know how many samples it has"


@pytest.mark.slow
def test_an_optimizer_that_trains_several_times_a_step_is_counted(run_scav: Scav, tmp_path: Path) -> None:
    script = """
        import torch
        model, data = torch.nn.Linear(4, 3), torch.randn(8, 4)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        def closure():
            optimizer.zero_grad()
            loss = model(data).square().sum()
            loss.backward()
            return loss
        for _ in range(3):
            optimizer.step(closure)
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    found = inspected(run_scav, "--", "train.py")
    assert (found["flops_per_sample"], found["gpu_batch"], found["precision"]) == (2 * 2 * 3 * 4, 8, "fp32")
    assert (found["accumulation_steps"], found["optimizer"]) == (3, "LBFGS")


@pytest.mark.slow
def test_what_cannot_be_counted_is_not_guessed_and_can_be_said(run_scav: Scav) -> None:
    found = inspected(run_scav, SCRIPTS, "--", "no_module.py", "32")
    assert {"flops_per_sample", "activation_bytes_per_sample", "gpu_batch"} < set(found["missing"])
    assert "say --samples-per-step N" in found["missing"]["flops_per_sample"]
    said = inspected(run_scav, SCRIPTS, "--samples-per-step", "32", "--", "no_module.py", "32")
    assert (said["flops_per_sample"], said["gpu_batch"], said["trainable_parameters"]) == (2 * 2 * 64, 32, 64)


@pytest.mark.slow
def test_a_failing_script_shows_its_own_error(run_scav: Scav) -> None:
    result = run_scav("inspect", SCRIPTS, "--", "ddp.py", "--batches", "3")
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert lines[1].startswith("usage: ddp.py")
    assert lines[-2:] == [
        "ddp.py: error: the following arguments are required: --batch-size",
        "Error: inspecting: the script failed with exit code 1",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "meaning"),
    [
        ("import torch; torch.zeros(1).cuda()", "it wants a GPU, and this machine has none"),
        ("from .model import Net", "a script is no part of a package"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_a_failure_means_is_said(run_scav: Scav, tmp_path: Path, script: str, meaning: str) -> None:
    (tmp_path / "train.py").write_text(script + "\n")
    result = run_scav("inspect", "--", "train.py")
    assert result.exit_code == 1
    assert f"the script failed with exit code 1: {meaning}" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_script_that_looks_at_values_is_run_again_with_true_ones(
    run_scav: Scav, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAV_INSPECT_PRODUCT_SECONDS", "0")
    script = """
        import torch
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            out = model(torch.randn(8, 4))
            with open("runs.txt", "a") as file:
                print(bool(out.std() > 0), file=file)
            if not out.std() > 0:
                raise SystemExit("collapsed")
            out.sum().backward()
            optimizer.step()
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    found = inspected(run_scav, "--", "train.py")
    assert (found["trainable_parameters"], found["flops_per_sample"]) == (15, 2 * 2 * 3 * 4)
    assert (tmp_path / "runs.txt").read_text().split() == ["False", "True", "True"]


@pytest.mark.slow
def test_a_script_that_hardly_trains_says_so(run_scav: Scav, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('nothing to do')\n")
    result = run_scav("inspect", "--", "train.py")
    assert result.exit_code == 1
    assert "Error: inspecting: the script ended after 0 backward passes, two are needed to count" in result.stderr


@pytest.mark.slow
def test_a_job_file_writes_itself_and_asks_for_its_target_alone(run_scav: Scav, tmp_path: Path) -> None:
    folder = tmp_path / "my digits"
    shutil.copytree(EXAMPLES / "digits-cnn", folder)
    (folder / "scav.yaml").unlink()
    written = run_scav("init", folder, "--from", folder / "train.py", "--", "--epochs", "3")
    assert written.exit_code == 0, written.stderr
    assert "Say there what is required" in written.stdout
    refused = run_scav("plan", folder)
    assert refused.stderr.endswith("workload.target.reference_batch: this key is required\n")
    path = folder / "scav.yaml"
    text = (
        path.read_text().replace("    samples:", "    samples: 13k").replace("reference_batch:", "reference_batch: 64")
    )
    path.write_text(text)
    job = parse_job(text, file="scav.yaml").job
    by_hand = parse_job((EXAMPLES / "digits-cnn" / "scav.yaml").read_text(), file="x").job.workload
    for key in ("dataset_samples", "parameters", "precision", "optimizer"):
        assert getattr(job.workload, key) == getattr(by_hand, key)
    for key in ("flops_per_sample", "activation_bytes_per_sample"):
        assert getattr(job.workload, key) == pytest.approx(getattr(by_hand, key), rel=0.005)
    assert (job.name, job.run.command) == ("my-digits", ("train.py", "--epochs", "3"))
    assert set(job.workload.origins.model_dump(exclude_unset=True).values()) == {"measured", "derived"}
    for line in text.splitlines():
        assert not line.startswith("  f") or "# measured: " in line
    assert run_scav("plan", folder, "--instance-type", "g5.*", "--nodes", "1").exit_code == 0


def test_mistakes_are_one_line_before_anything_runs(run_scav: Scav, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "job").mkdir()

    def last_line(*arguments: str) -> str:
        result = run_scav(*arguments)
        assert result.exit_code in (1, 2)
        assert not (tmp_path / "scav.yaml").exists()
        return result.stderr.splitlines()[-1]

    assert last_line("inspect", "--", "missing.py").endswith("no such script")
    assert "leave out python3 and its options" in last_line("inspect", "--", "python3", "train.py")
    assert "leave out torchrun" in last_line("inspect", "--", "torchrun", "--nproc-per-node", "2", "train.py")
    assert "of a module make one" in last_line("inspect", "--", "-m", "package.train")
    assert "{batch} is no placeholder" in last_line("inspect", "--", "train.py", "{batch}")
    assert "--gpu-batch 8" in last_line("inspect", "--", "train.py", "{gpu_batch}")
    assert "'soon' is not a duration" in last_line("inspect", "--max-duration", "soon", "--", "train.py")
    assert "--from: must be inside DIR" in last_line("init", "job", "--from", "train.py")
    assert "--gpu-batch needs --from" in last_line("init", "--gpu-batch", "3")
    assert "need the script: scav init --from train.py" in last_line("init", "--", "--epochs", "3")
    assert "exclude each other" in last_line("init", "--from", "train.py", "--model", "config.json")


def test_without_a_script_the_job_files_is_inspected(run_scav: Scav) -> None:
    assert "scav init" in run_scav("inspect").stderr


@pytest.mark.parametrize("command", ["inspect", "probe"])
def test_a_script_in_the_place_of_the_job_is_told_where_to_stand(run_scav: Scav, command: str) -> None:
    result = run_scav(command, "train.py")
    assert result.exit_code == 2
    assert f"train.py is a script and no job: write cli {command} -- train.py" in result.stderr
