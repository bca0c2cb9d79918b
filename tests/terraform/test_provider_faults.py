"""The provider when something is wrong: in what it is told, in when it is killed, in how many ask at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from provider_home import ALONE, JOB, at_home, scav, write_alone

from planner.provider.installation import PLATFORMS

pytestmark = pytest.mark.slow

HEAD = ALONE.partition("resource")[0]
# What is wrong, in which attribute, and what is said of it. The first are found by `terraform validate`.
INVALID = [
    ('deadline = "8x"', "'8x' is not a duration"),
    ('budget = "-3"', ""),
    ('objective = "fast"', "'fast' is not one of"),
    ('nodes = "0..2"', ""),
    ("confidence = 7", ""),
    ('job = "name: ["', "line 1: not valid YAML"),
    ('job = "name: small\\nworkloads: {}"', "line 2: workloads: unknown key; did you mean workload?"),
]
IMPOSSIBLE = [
    ("max_usd_p95 = 0.5", "usd_p95 is"),
    ("max_hours_p95 = 0.1", "hours_p95 is"),
    ('measurements = "gone.jsonl"', "gone.jsonl: no such file"),
    ('catalog = "main.tf"', "main.tf"),
    ('regions = ["us-east-l"]', "did you mean us-east-1"),
    ('history = "nowhere"', "nowhere: no such folder"),
]


@pytest.mark.parametrize(("command", "wrong"), [("validate", INVALID), ("plan", IMPOSSIBLE)])
def test_each_of_many_mistakes_is_shown_at_its_line(plain_terraform, tmp_path, command, wrong):
    root = write_alone(tmp_path, HEAD + "\n".join(mistaken(index, line) for index, (line, _) in enumerate(wrong)))
    assert plain_terraform.run("init", cwd=root).returncode == 0
    result = plain_terraform.run(command, "-json", cwd=root)
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    lines = (root / "main.tf").read_text().splitlines()
    found = {lines[each["range"]["start"]["line"] - 1].strip(): each["detail"] for each in errors(result.stdout)}
    assert set(found) == {line for line, _ in wrong}
    assert {line: found[line] for line, said in wrong if said not in found[line]} == {}


def mistaken(index: int, line: str) -> str:
    job = "" if line.startswith("job") else '  job = file("scav.yaml")\n'
    return f'resource "scav_plan" "run{index}" {{\n{job}  {line}\n}}\n'


def errors(output: str) -> list[dict[str, Any]]:
    """Of `validate -json`, one object, or of `plan -json`, an event per line."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"')] or [json.loads(output)]
    every = [each for event in events for each in event.get("diagnostics", [event.get("diagnostic")]) if each]
    return [each for each in every if each["severity"] == "error"]


def test_a_provider_that_is_killed_leaves_the_state_whole(plain_terraform, tmp_path):
    """At ten moments of an apply that would change the plan: Terraform says so, and the next apply goes through."""
    root = write_alone(tmp_path)
    assert plain_terraform.run("init", cwd=root).returncode == 0
    assert plain_terraform.run("apply", "-auto-approve", cwd=root).returncode == 0
    kept = json.loads((root / "terraform.tfstate").read_text())["resources"]
    killed = 0
    for moment in range(10):
        (root / "scav.yaml").write_text(JOB.replace("24h", f"{30 + moment}h"))
        code, said = apply_and_kill(plain_terraform, root, after_seconds=0.1 * moment**1.5)
        state = json.loads((root / "terraform.tfstate").read_text())["resources"]
        if code:
            killed += 1
            assert state == kept
            assert "lugin" in said
            assert "Traceback" not in said
        kept = state
    assert killed >= 3
    assert plain_terraform.run("apply", "-auto-approve", cwd=root).returncode == 0


def apply_and_kill(terraform: Any, root: Path, *, after_seconds: float) -> tuple[int, str]:
    with subprocess.Popen(
        [terraform.executable, "apply", "-auto-approve", "-no-color"],
        cwd=root,
        env=terraform.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        while process.poll() is None and not (started := children_of(process.pid)):
            time.sleep(0.01)
        time.sleep(after_seconds)
        for child in {*started, *children_of(process.pid)}:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        said, _ = process.communicate(timeout=120)
    return process.returncode, said


def children_of(parent: int) -> list[int]:
    task = Path(f"/proc/{parent}/task")
    found = [each / "children" for each in task.iterdir()] if task.exists() else []
    return [int(child) for each in found if each.exists() for child in each.read_text().split()]


def test_twenty_plans_at_once_are_the_same_plan(plain_terraform, tmp_path):
    """In three roots at once, in each all of them at once."""
    main = ALONE.replace("{\n  job", "{\n  count = 20\n  job")
    roots = [write_alone(tmp_path / name, main) for name in ("one", "two", "three")]

    def planned(root: Path) -> list[str]:
        assert plain_terraform.run("init", cwd=root).returncode == 0
        result = plain_terraform.run("plan", "-parallelism=20", "-out=a.tfplan", cwd=root)
        assert result.returncode == 0, result.stderr
        shown = json.loads(plain_terraform.run("show", "-json", "a.tfplan", cwd=root).stdout)
        return [change["change"]["after"]["plan_sha256"] for change in shown["resource_changes"]]

    with ThreadPoolExecutor(3) as pool:
        plans = list(pool.map(planned, roots))
    assert [len(plan) for plan in plans] == [20, 20, 20]
    assert len({sha256 for plan in plans for sha256 in plan}) == 1


def test_a_written_plan_is_imported_and_kept(plain_terraform, tmp_path):
    root = write_alone(tmp_path / "root")
    assert scav("plan", str(root), "--out", str(tmp_path / "written"), home=tmp_path).returncode == 0
    assert plain_terraform.run("init", cwd=root).returncode == 0
    imported = plain_terraform.run("import", "scav_plan.run", str(tmp_path / "written"), cwd=root)
    assert imported.returncode == 0, imported.stderr
    result = plain_terraform.run("plan", "-no-color", cwd=root)
    assert "0 to add, 1 to change, 0 to destroy" in result.stdout
    changes = [line.split()[1] for line in result.stdout.splitlines() if line.lstrip().startswith(("+ ", "~ "))]
    assert changes == ["update", "resource", "job"]


TESTED = """\
run "feeds_a_count_and_agrees_with_the_data" {
  command = plan

  assert {
    condition     = length(terraform_data.node) == scav_plan.run.node_count
    error_message = "A count follows from the plan when Terraform plans."
  }
  assert {
    condition     = data.scav_plan.same.plan_sha256 == scav_plan.run.plan_sha256
    error_message = "The data is another plan."
  }
  assert {
    condition     = contains(data.scav_offers.all.offers[*].instance_type, scav_plan.run.instance_type)
    error_message = "The choice is not on offer."
  }
}
"""
USED = """
resource "terraform_data" "node" {
  count = scav_plan.run.node_count
}

data "scav_plan" "same" {
  job = file("scav.yaml")
}

data "scav_offers" "all" {
  queries = ["g5.*"]
}
"""


def test_terraform_s_own_tests_run_with_the_provider(plain_terraform, tmp_path):
    root = write_alone(tmp_path, ALONE + USED)
    (root / "plan.tftest.hcl").write_text(TESTED)
    assert plain_terraform.run("init", cwd=root).returncode == 0
    result = plain_terraform.run("test", "-no-color", cwd=root)
    assert result.returncode == 0, result.stdout + result.stderr


def test_archives_install_as_the_folder_does_and_have_its_hash(plain_terraform, scav_home, tmp_path):
    """The same lock file holds for both, since the launcher is the same."""
    root = write_alone(tmp_path / "root")
    assert plain_terraform.run("init", cwd=root).returncode == 0
    locked = (root / ".terraform.lock.hcl").read_text()
    shutil.rmtree(root / ".terraform")
    code = next(scav_home.parent.glob("code*"))
    packed = scav("provider", "package", "--out", str(tmp_path / "home/.terraform.d/plugins"), home=tmp_path, code=code)
    assert packed.returncode == 0, packed.stderr
    assert len(packed.stdout.splitlines()) == len(PLATFORMS)
    elsewhere = at_home(plain_terraform, tmp_path / "home")
    result = elsewhere.run("init", "-no-color", cwd=root)
    assert result.returncode == 0, result.stderr
    assert (root / ".terraform.lock.hcl").read_text() == locked
    assert elsewhere.run("plan", cwd=root).returncode == 0
