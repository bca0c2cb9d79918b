"""`scav probe` on this machine: real torchrun processes on the real example, and one line where it cannot be."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from planner.inputs.measurements import Measurement

pytest.importorskip("torch")

PATIENCE_SECONDS = 600.0
SCRIPTS = Path(__file__).parents[1] / "probes" / "scripts"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Without what somebody may have measured there, as the example invites to."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "digits", ignore=shutil.ignore_patterns("measurements.jsonl")))


@pytest.mark.slow
def test_measures_appends_resumes_and_feeds_the_plan(run_scav: Callable[..., Result], digits: Path) -> None:
    batches = digits / "scav.yaml"
    batches.write_text(batches.read_text().replace("64..256", "64"))
    first = run_scav("probe", digits)
    assert first.exit_code == 0, first.stderr
    assert "2 probes on local, 0 measured before" in first.stderr
    lines = (digits / "measurements.jsonl").read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        jsonschema.validate(json.loads(line), Measurement.model_json_schema())
    assert [json.loads(line)["gpus_per_node"] for line in lines] == [1, 2]

    again = run_scav("probe", digits)
    assert "2 measured before" in again.stderr
    assert len((digits / "measurements.jsonl").read_text().splitlines()) == 2

    planned = run_scav("plan", digits, "--out", digits / "cluster")
    assert planned.exit_code == 0, planned.stderr
    assert planned.stderr.count("their step times are of this machine; noise and sizes are used") == 1


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightning") is None, reason="not installed: lightning")
def test_lightning_takes_the_batch_from_the_adapter_alone(run_scav: Callable[..., Result], digits: Path) -> None:
    """No callback, no placeholder: the script would train at 24."""
    for file in SCRIPTS.glob("*.py"):
        shutil.copy(file, digits)
    batches = digits / "scav.yaml"
    batches.write_text(batches.read_text().replace("64..256", "64"))
    script = ("lightning_module.py", "--samples", "512", "--epochs", "1")
    result = run_scav("probe", digits, "--on", "local", "--", *script)
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in (digits / "measurements.jsonl").read_text().splitlines()]
    assert [row["gpus_per_node"] for row in rows] == [1, 2]
    for row in rows:
        asked = (row["asked_gpu_batch"], row["asked_accumulation_steps"])
        assert (row["gpu_batch"], row.get("accumulation_steps", 1)) == asked
        assert row["samples_per_step"] == asked[0] * asked[1] != 24
        assert (row["batch_source"], row["adapter"]) == ("counted", "lightning")
    # One process calls a part of the module, two call all of it; the noise is at the same parameters.
    assert len({row["noise"]["state"] for row in rows if "noise" in row}) <= 1
    assert "2 states" not in result.stderr


def test_a_dry_run_measures_nothing(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--dry-run")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert not (digits / "measurements.jsonl").exists()


def test_what_follows_two_dashes_is_the_script_though_no_job_is_named(
    run_scav: Callable[..., Result], digits: Path
) -> None:
    assert len(run_scav("probe", "--dry-run", "--", "train.py", cwd=digits).stdout.splitlines()) == 4
    assert run_scav("probe", "--dry-run", "--", "gone.py", cwd=digits).stderr == "Error: gone.py: no such script\n"


def test_a_dry_run_with_a_stated_batch_has_no_other(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--dry-run", "--samples-per-step", "96")
    assert result.stdout.splitlines() == ["1 x 1 workers, local batch 96", "1 x 2 workers, local batch 96"]
    fails_on_one_line(run_scav("probe", digits, "--samples-per-step", "many"), "--samples-per-step: write the samples")


def test_a_checkpoint_is_measured_at_whatever_was_measured_before(
    run_scav: Callable[..., Result], digits: Path
) -> None:
    (digits / "last.pt").touch()
    known = {"instance_type": "local", "nodes": 1, "gpus_per_node": 1, "precision": "fp32", "step_seconds": 0.1}
    (digits / "measurements.jsonl").write_text(json.dumps({**known, "gpu_batch": 128}) + "\n")
    assert len(run_scav("probe", digits, "--dry-run").stdout.splitlines()) == 3
    result = run_scav("probe", digits, "--dry-run", "--from-checkpoint", digits / "last.pt")
    assert len(result.stdout.splitlines()) == 4
    for options, words in (
        (["--on", "aws"], "--from-checkpoint: has no meaning with --on aws"),
        (["--writes-steps"], "--from-checkpoint: has no meaning with --writes-steps"),
    ):
        fails_on_one_line(run_scav("probe", digits, *options, "--from-checkpoint", digits / "last.pt"), words)
    fails_on_one_line(run_scav("probe", digits, "--from-checkpoint", digits / "no.pt"), "no.pt: no such checkpoint")


@pytest.mark.slow
def test_noise_is_measured_at_a_checkpoint_of_this_model_only(run_scav: Callable[..., Result], digits: Path) -> None:
    """The example's own way to save; the model is another if its width is."""
    job = digits / "scav.yaml"
    job.write_text(job.read_text().replace("64..256", "64"))
    saving = "import sys, torch; sys.path.insert(0, {folder!r}); import train; torch.manual_seed(7); "
    saving += "torch.save({{'step': 70, 'model': train.DigitsCnn({width}).state_dict()}}, {file!r})"
    for width in (48, 16):
        file = str(digits / f"{width}.pt")
        code = saving.format(folder=str(digits), width=width, file=file)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)
    options = ("--workers", "1", "--max-duration", "1h")
    refused = run_scav("probe", digits, *options, "--from-checkpoint", digits / "16.pt")
    fails_on_one_line(refused, "16.pt is of another model: it has no layers.0.bias of 48, as the script's has")
    result = run_scav("probe", digits, *options, "--from-checkpoint", digits / "48.pt")
    assert result.exit_code == 0, result.stderr
    (row,) = (json.loads(line) for line in (digits / "measurements.jsonl").read_text().splitlines())
    assert row["noise"]["at_step"] == 70
    assert "at_samples" not in row["noise"]
    assert "after 70 steps of training" in result.stdout


@pytest.mark.slow
def test_a_strategy_is_followed_and_kept_in_the_row(run_scav: Callable[..., Result], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE.parent / "tiny-llama", tmp_path / "llama"))
    job = folder / "scav.yaml"
    job.write_text(job.read_text().replace("16..64", "8"))
    options = ("--on", "local", "--workers", "2", "--strategy", "fsdp", "--max-duration", "1h")
    result = run_scav("probe", folder, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("fsdp:\n")
    rows = [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]
    assert [(row["gpus_per_node"], row["gpu_batch"]) for row in rows] == [(1, 8), (2, 4)]
    for row in rows:
        jsonschema.validate(row, Measurement.model_json_schema())
        assert row["strategy"] == {"sharding": "fsdp"}
        assert row["peak_memory_bytes"] > 0
    assert "2 measured before" in run_scav("probe", folder, *options).stderr
    other = run_scav("probe", folder, "--strategy", "ddp", "--dry-run")
    assert "0 measured before" in other.stderr
    assert run_scav("plan", folder, "--out", folder / "cluster").exit_code == 0


def test_processes_that_cut_layers_are_groups(run_scav: Callable[..., Result], digits: Path) -> None:
    """One and two groups of two; of the same samples in all."""
    tensor = ("--strategy", "fsdp,tensor_parallel=2")
    result = run_scav("probe", digits, "--dry-run", *tensor)
    assert result.stdout.splitlines() == [
        "1 x 2 workers, local batch 64, fsdp,tensor_parallel=2",
        "1 x 2 workers, local batch 128, fsdp,tensor_parallel=2",
        "1 x 4 workers, local batch 64, fsdp,tensor_parallel=2",
        "1 x 2 workers, local batch 256, fsdp,tensor_parallel=2",
    ]
    uneven = run_scav("probe", digits, *tensor, "--workers", "3")
    fails_on_one_line(uneven, "--workers: 3 cannot be groups of 2 that hold one model together")
    fails_on_one_line(run_scav("probe", digits, *tensor, "--on", "container"), "--strategy: has one worker per")
    of_no_transformer = "--strategy: needs workload.transformer in the job file"
    fails_on_one_line(run_scav("probe", digits, *tensor, "--on", "aws"), of_no_transformer)
    fails_on_one_line(run_scav("probe", digits, "--strategy", "zero3"), "--strategy: sharding: 'zero3' is not one of")


def test_an_unknown_placeholder_is_named(run_scav: Callable[..., Result], digits: Path) -> None:
    known = "known are {gpu_batch}, {accumulation_steps}, {global_batch}, {lr_scale}, {strategy}"
    fails_on_one_line(run_scav("probe", digits, "--", "train.py", "{batch}"), f"{{batch}} is no placeholder: {known}")
    fails_on_one_line(
        run_scav("probe", digits, "--on", "aws", "--", "train.py", "{batch}"), "{batch} is no placeholder"
    )
    job = digits / "scav.yaml"
    job.write_text(job.read_text().replace("[train.py]", "[train.py, '{batch}']"))
    fails_on_one_line(run_scav("probe", digits), "run.command: {batch} is no placeholder")


@pytest.mark.slow
def test_the_job_files_placeholders_are_filled_and_another_batch_leaves_no_row(
    run_scav: Callable[..., Result], digits: Path
) -> None:
    shutil.copy(SCRIPTS / "ddp.py", digits)
    job = digits / "scav.yaml"
    job.write_text(
        job.read_text().replace("64..256", "48").replace("[train.py]", "[ddp.py, --batch-size, '{gpu_batch}']")
    )
    ignoring = run_scav("probe", digits, "--workers", "1", "--", "ddp.py", "--batch-size", "32")
    fails_on_one_line(ignoring, "took 32 samples in 1 micro-step per optimizer step, asked for 48 in 1 micro-step")
    assert "{gpu_batch}" in ignoring.stderr
    assert not (digits / "measurements.jsonl").exists()

    assert run_scav("probe", digits, "--workers", "1").exit_code == 0
    (row,) = [json.loads(line) for line in (digits / "measurements.jsonl").read_text().splitlines()]
    assert (row["gpu_batch"], row["asked_gpu_batch"], row["samples_per_step"]) == (48, 48, 48.0)


@pytest.mark.slow
def test_a_failing_script_is_heard_before_us(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--workers", "1", "--", "train.py", "--batchsize", "{gpu_batch}")
    said = [line for line in result.stderr.splitlines() if not line.endswith("measured before")]
    assert said[0].startswith("usage: train.py")
    assert said[-2] == "train.py: error: unrecognized arguments: --batchsize 64"
    assert said[-1].startswith("Error: probe of 1 x 1 workers at local batch 64: the script failed")


def fails_on_one_line(result: Result, words: str) -> None:
    assert result.exit_code == 1
    errors = [line for line in result.stderr.splitlines() if not line.endswith("measured before")]
    assert len(errors) == 1
    assert words in errors[0]


def test_a_missing_script_is_named(run_scav: Callable[..., Result], digits: Path) -> None:
    fails_on_one_line(run_scav("probe", digits, "--", "nowhere.py"), "nowhere.py: no such script")


def test_no_script_at_all_says_how_to_name_one(run_scav: Callable[..., Result], digits: Path) -> None:
    job = digits / "scav.yaml"
    job.write_text(job.read_text().replace("  command: [train.py]", "  id: 2"))
    fails_on_one_line(run_scav("probe", digits), "set run.command")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("raise ValueError('no data here')", "ValueError: no data here"),
        ("import torch", "0 optimizer steps, before the measurement was complete; let it train longer, "),
        ("while True: pass", "not finished after 6 s"),
    ],
    ids=["crashes", "never steps", "never ends"],
)
def test_a_script_that_cannot_be_measured(
    run_scav: Callable[..., Result], digits: Path, script: str, words: str
) -> None:
    (digits / "bad.py").write_text(script + "\n")
    limit = ("--max-duration", "6s") if "while" in script else ()
    result = run_scav("probe", digits, *limit, "--", "bad.py")
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: probe of 1 x 1 workers")
    assert not (digits / "measurements.jsonl").exists()
