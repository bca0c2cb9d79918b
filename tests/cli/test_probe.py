"""`scav probe` on this machine: real torchrun processes on the real example, and one line where it cannot be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from planner.inputs.measurements import Measurement

pytest.importorskip("torch")

SCRIPTS = Path(__file__).parents[1] / "probes" / "scripts"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "digits"))


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
    assert planned.stderr.count("local is not in the catalogue") == 1


def test_a_dry_run_measures_nothing(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--dry-run")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert not (digits / "measurements.jsonl").exists()


def test_a_dry_run_with_a_stated_batch_has_no_other(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--dry-run", "--samples-per-step", "96")
    assert result.stdout.splitlines() == ["1 x 1 workers, local batch 96", "1 x 2 workers, local batch 96"]
    fails_on_one_line(run_scav("probe", digits, "--samples-per-step", "many"), "--samples-per-step: write the samples")


def test_an_unknown_placeholder_is_named(run_scav: Callable[..., Result], digits: Path) -> None:
    known = "known are {gpu_batch}, {accumulation_steps}, {global_batch}, {lr_scale}"
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
        ("import torch", "0 optimizer steps"),
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
