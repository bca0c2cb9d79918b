"""`scav tune`: it measures where that pays, stops by itself, and goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

# A step has a fixed part.
PROGRAM = """\
#!/usr/bin/env python3
import json, os, time

batch = int(os.environ["SCAV_GPU_BATCH"])
step = {"step_seconds": 2.0 + 0.001 * batch, "samples": batch}
with open("asked.txt", "a") as asked:
    asked.write(f"{batch}\\n")
time.sleep(float(os.environ.get("SLEEPS", "0")))
with open(os.environ["SCAV_PROBE_STEPS"], "a") as steps:
    steps.write((json.dumps(step) + "\\n") * 200)
"""


@pytest.fixture
def job(write_job: Callable[..., Path], tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    write_job(folder=folder)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "train.py").chmod(0o755)
    return folder


@pytest.fixture
def tune(run_scav: Callable[..., Result], job: Path) -> Callable[..., Result]:
    def run(*options: str) -> Result:
        return run_scav("tune", job, "--workers", "1", "--writes-steps", *options, "--", "./train.py")

    return run


def asked(job: Path) -> list[str]:
    file = job / "asked.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_it_measures_stops_by_itself_and_measures_nothing_twice(tune: Callable[..., Result], job: Path) -> None:
    first = tune()
    assert first.exit_code == 0, first.stderr
    assert "best so far 1 worker, local batch" in first.stderr
    assert first.stderr.splitlines()[-1].endswith("no further probe is expected to save what it takes")
    best = next(line for line in first.stdout.splitlines() if line.startswith("Best here: "))
    measured = asked(job)
    assert len(measured) == len(set(measured)) >= 2
    again = tune()
    assert best in again.stdout.splitlines()
    assert asked(job) == measured


def test_after_an_interruption_it_comes_to_the_same_answer(tune: Callable[..., Result], job: Path) -> None:
    whole = tune().stdout.splitlines()[-2]
    file = job / "measurements.jsonl"
    rows = file.read_text().splitlines(keepends=True)
    measured = asked(job)
    for kept in range(len(rows)):
        file.write_text("".join(rows[:kept]))
        (job / "asked.txt").unlink(missing_ok=True)
        assert tune().stdout.splitlines()[-2] == whole
        assert len(asked(job)) <= len(measured) - kept  # of a visit that was cut short not all is worth it any more


def begun(job: Path, *, probe_seconds: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "planner", "tune", str(job), "--workers", "1", "--writes-steps", "--", "./train.py"]
    environment = {**os.environ, "SCAV_LOCK_FOLDER": str(job), "SLEEPS": str(probe_seconds)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], file: Path, lines: int) -> None:
    while process.poll() is None and len(file.read_text().splitlines() if file.exists() else []) < lines:
        time.sleep(0.02)


@pytest.mark.slow
def test_interrupted_at_five_moments_it_goes_on_and_measures_nothing_twice(
    tune: Callable[..., Result], job: Path
) -> None:
    whole = tune().stdout.splitlines()[-2]
    file = job / "measurements.jsonl"
    count = len(file.read_text().splitlines())
    file.unlink()
    (job / "asked.txt").unlink()
    moments = [(signal.SIGINT, 1), (signal.SIGKILL, 2), (signal.SIGTERM, 2), (signal.SIGKILL, 1), (signal.SIGINT, 1)]
    known: list[str] = []
    for number, probes in moments:
        before = len(asked(job))
        process = begun(job, probe_seconds=2)
        wait_for(process, job / "asked.txt", before + probes)  # so many more are under way, the last of them still is
        process.send_signal(number)
        process.communicate()
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
        rows = file.read_text().splitlines() if file.exists() else []
        assert rows[: len(known)] == known  # what was measured stays
        known = rows
    out, err = begun(job, probe_seconds=0).communicate()
    assert whole in out.splitlines(), err
    rows = file.read_text().splitlines()
    assert rows[: len(known)] == known
    assert len(rows) == count == len({json.loads(row)["gpu_batch"] for row in rows})


def test_the_larger_batch_is_the_faster_one_here(tune: Callable[..., Result], job: Path) -> None:
    """2 s and 1 ms a sample: the fixed part, shared by more of them, outweighs that more are needed."""
    assert "Best here: 1 worker, local batch 1,024 (global batch 1,024)" in tune().stdout
    assert {json.loads(line)["gpu_batch"] for line in (job / "measurements.jsonl").read_text().splitlines()} >= {1024}


def test_a_dry_run_measures_nothing(tune: Callable[..., Result], job: Path) -> None:
    result = tune("--dry-run")
    assert result.exit_code == 0
    assert "1 worker, local batch 1,024" in result.stdout
    assert asked(job) == []


def test_on_aws_a_dry_run_shows_what_the_first_clusters_cost(run_scav: Callable[..., Result], job: Path) -> None:
    result = run_scav("tune", job, "--on", "aws", "--dry-run", "--max-cost", "$12")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(" x g5." in line and "at most $" in line for line in lines[:-1])
    assert lines[-1].endswith("in all at most $12.00")


def test_on_aws_what_a_cluster_needs_to_know_is_asked_for(run_scav: Callable[..., Result], job: Path) -> None:
    result = run_scav("tune", job, "--on", "aws", "--yes")
    assert result.exit_code == 1
    assert "to probe on AWS" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(("option", "place"), [("--spot", "aws"), ("--image", "container")])
def test_options_of_other_places_are_refused(tune: Callable[..., Result], option: str, place: str) -> None:
    result = tune(option, *(["x"] if option == "--image" else []))
    assert result.stderr == f"Error: {option}: has no meaning with --on local, only with --on {place}\n"
