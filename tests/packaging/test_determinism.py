"""Same inputs, same bytes: on another day, in another time zone, under another locale, with more threads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BASE = {
    name: value for name, value in os.environ.items() if not name.startswith(("SCAV_", "LC_", "LANG", "TZ", "PYTHON"))
}
ENVIRONMENTS = {
    "plain": {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C", "OMP_NUM_THREADS": "1"},
    "Tokyo": {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "4"},
    "Turkey": {"PYTHONHASHSEED": "4294967295", "TZ": "Europe/Istanbul", "LC_ALL": "tr_TR.UTF-8"},
    "no UTF-8": {"PYTHONHASHSEED": "7", "TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONUTF8": "0"},
    "ASCII": {"PYTHONHASHSEED": "8", "PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"},
}


def planned(job: Path, *options: str, environment=None) -> dict[str, bytes]:
    """The files of the workspace, written under a name that no other run shares."""
    out = job.parent / f"plan-{len(list(job.parent.iterdir()))}"
    command = [sys.executable, "-m", "planner", "plan", job, "--out", out, *options]
    result = subprocess.run(command, cwd=job.parent, env=BASE | (environment or {}), capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return files_of(out)


def files_of(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture
def planned_here(run_scav):
    """The same in this process, where only the job and the options differ."""

    def plan(job: Path, *options: str) -> dict[str, bytes]:
        out = job.parent / f"plan-{len(list(job.parent.iterdir()))}"
        result = run_scav("plan", job, "--out", out, *options)
        assert result.exit_code == 0, result.output
        return files_of(out)

    return plan


@pytest.fixture
def example(tmp_path):
    shutil.copytree(REPOSITORY / "examples" / "resnet50-imagenet", tmp_path / "job")
    return tmp_path / "job"


@pytest.mark.slow
def test_hash_seed_time_zone_locale_and_threads_do_not_change_a_byte(example):
    folders = [planned(example, environment=environment) for environment in ENVIRONMENTS.values()]
    assert all(folder == folders[0] for folder in folders)
    assert len(folders[0]) > 10


@pytest.mark.parametrize("name", ["Turkey", "no UTF-8", "ASCII"])
def test_the_answer_can_be_printed_under_any_locale(write_job, name):
    planned(write_job().parent, environment=ENVIRONMENTS[name])


def test_the_same_job_in_another_place_gives_the_same_files(write_job, tmp_path):
    first = planned(write_job(folder=tmp_path / "here" / "job").parent)
    assert first == planned(write_job(folder=tmp_path / "there" / "else").parent)


def test_comments_and_order_in_the_job_file_do_not_change_a_byte(planned_here, write_job, tmp_path):
    first = planned_here(write_job(folder=tmp_path / "a" / "job").parent)
    changed = {"  deadline: 24h\n  budget: $400\n": "  # in this order\n  budget: $400.00\n  deadline: 1d\n"}
    assert first == planned_here(write_job(changed, folder=tmp_path / "b" / "job").parent)


@pytest.mark.parametrize(("deadline", "also"), [("25h", set()), ("12h", {"terraform.tfvars.json"})])
def test_a_deadline_changes_only_the_decisions_and_the_account_of_them(planned_here, write_job, deadline, also):
    job = write_job({"nodes: 1..2": "nodes: 1..16", "$400": "$4000"}).parent
    before, after = planned_here(job), planned_here(job, "--deadline", deadline)
    assert before.keys() - {"scav.policy.json"} == after.keys() - {"scav.policy.json"}
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert {"scav.plan.json", "COST.md"} | also <= changed
    assert changed <= {"scav.plan.json", "COST.md", "terraform.tfvars.json", "scav.policy.json", "scav.files.json"}
    listed = [json.loads(files["scav.files.json"])["files"] for files in (before, after)]
    assert {name for name in listed[0].keys() | listed[1].keys() if listed[0].get(name) != listed[1].get(name)} == (
        changed - {"scav.files.json"}
    )
