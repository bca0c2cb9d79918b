"""`--history`: what other jobs measured on the same instance types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

OWN = {"instance_type": "g5.12xlarge", "gpus_per_node": 4, "gpu_batch": 64, "precision": "bf16"}


def line(nodes: int, gpu_batch: int, seconds: float, sync: float) -> str:
    row = OWN | {"nodes": nodes, "gpu_batch": gpu_batch, "step_seconds": seconds, "exposed_sync_seconds": sync}
    return json.dumps(row) + "\n"


@pytest.fixture
def jobs(tmp_path: Path, write_job: Callable[..., Path]) -> Path:
    """A job with probes on one and two nodes, and another whose network saturates beyond two."""
    write_job({"1..2": "1..8"}, folder=tmp_path / "own")
    (tmp_path / "own" / "measurements.jsonl").write_text(line(1, 64, 0.2, 0.02) + line(2, 64, 0.3, 0.12))
    other = tmp_path / "other"
    other.mkdir()
    sync = {1: 0.02, 2: 0.12, 4: 0.5, 8: 1.2}
    rows = [line(n, b, 0.003 * b + sync[n], sync[n]) for n in (1, 2, 4, 8) for b in (16, 32, 64, 128)]
    (other / "measurements.jsonl").write_text("".join(rows))
    return tmp_path


def hours(result: Result) -> float:
    assert result.exit_code == 0, result.stderr
    found: float = json.loads(result.stdout)["rows"][0]["hours"]["p50"]
    return found


def test_other_jobs_say_how_a_type_behaves_on_more_nodes(run_scav: Callable[..., Result], jobs: Path) -> None:
    asked = ("predict", jobs / "own", "--instance-type", "g5.12xlarge", "--nodes", "8", "--gpu-batch", "32", "--json")
    alone = hours(run_scav(*asked))
    assert hours(run_scav(*asked, "--history", jobs)) > 1.1 * alone


def test_the_plan_names_its_history_and_leaves_the_job_itself_out(run_scav: Callable[..., Result], jobs: Path) -> None:
    def digest(*options: str | Path) -> str | None:
        result = run_scav("plan", jobs / "own", "--json", "--out", jobs / "cluster", *options)
        assert result.exit_code == 0, result.stderr
        found: str | None = json.loads(result.stdout)["inputs"].get("history_sha256")
        return found

    assert digest() is None
    assert digest("--history", jobs / "own") is None
    assert digest("--history", jobs) == digest("--history", jobs / "other")


def test_a_folder_that_is_not_there_is_one_line(run_scav: Callable[..., Result], jobs: Path) -> None:
    result = run_scav("fit", jobs / "own", "--history", jobs / "none")
    assert result.exit_code == 1
    assert result.stderr == f"Error: {jobs / 'none'}: no such folder\n"


def job_like_it(folder: Path, write_job: Callable[..., Path], seconds: float) -> None:
    """The same job elsewhere, measured on a type that nobody probed here."""
    write_job({"1..2": "1..8"}, folder=folder)
    row = OWN | {"instance_type": "g5.48xlarge", "gpus_per_node": 8, "nodes": 1, "software": {"torch": "2.13.0"}}
    rows = [json.dumps(row | {"gpu_batch": batch, "step_seconds": seconds * batch}) for batch in (16, 32, 64, 128)]
    (folder / "measurements.jsonl").write_text("\n".join(rows) + "\n")


def test_a_job_like_it_says_how_fast_an_unprobed_type_is(
    run_scav: Callable[..., Result], write_job: Callable[..., Path], tmp_path: Path
) -> None:
    write_job({"1..2": "1..8"}, folder=tmp_path / "own")
    asked = (
        "predict",
        tmp_path / "own",
        "--instance-type",
        "g5.48xlarge",
        "--nodes",
        "1",
        "--gpu-batch",
        "64",
        "--json",
    )
    cold = hours(run_scav(*asked))
    job_like_it(tmp_path / "past" / "slow", write_job, 0.1)
    slow = hours(run_scav(*asked, "--history", tmp_path / "past"))
    job_like_it(tmp_path / "past" / "slow", write_job, 0.02)
    assert slow > hours(run_scav(*asked, "--history", tmp_path / "past"))
    assert slow != cold


def test_other_jobs_are_listed_most_alike_first(
    run_scav: Callable[..., Result], write_job: Callable[..., Path], jobs: Path
) -> None:
    job_like_it(jobs / "again", write_job, 0.02)
    result = run_scav("history", "like", jobs / "own", "--history", jobs)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].split()[:4] == ["again", "4", "0.90", "0"]
    assert lines[2].split()[:4] == ["other", "16", "no", "job"]


def test_no_other_job_is_said(run_scav: Callable[..., Result], jobs: Path) -> None:
    result = run_scav("history", "like", jobs / "own", "--history", jobs / "own")
    assert result.stdout == "No other job was measured in this folder.\n"


def test_measurements_of_other_jobs_that_cannot_be_true_are_named(
    run_scav: Callable[..., Result], write_job: Callable[..., Path], tmp_path: Path
) -> None:
    write_job({"1..2": "1..8"}, folder=tmp_path / "own")
    job_like_it(tmp_path / "past" / "odd", write_job, 0.02)
    rows = (tmp_path / "past" / "odd" / "measurements.jsonl").read_text().splitlines()
    rows.append(json.dumps(json.loads(rows[0]) | {"step_seconds": 320.0}))
    (tmp_path / "past" / "odd" / "measurements.jsonl").write_text("\n".join(rows) + "\n")
    result = run_scav("plan", tmp_path / "own", "--out", tmp_path / "cluster", "--history", tmp_path / "past")
    assert "other job odd: used without 320 s per step on 1 x g5.48xlarge" in " ".join(result.stderr.split())


def test_a_job_file_that_cannot_be_read_is_one_line(run_scav: Callable[..., Result], jobs: Path) -> None:
    (jobs / "other" / "scav.yaml").write_text("name: 1: 2")
    result = run_scav("fit", jobs / "own", "--history", jobs)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {jobs / 'other' / 'scav.yaml'}:1: ")
    assert result.stderr.count("\n") == 1
