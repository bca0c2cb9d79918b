"""Terraform stopped at ten random moments of an apply: killed, and interrupted as Ctrl-C does; and scav ten times each.

Killed, it loses what it was creating, and plain `apply` then fails, since the names are taken. What `scav adopt`
finds and imports makes the state whole again, and destroy leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mock_aws import MockAws, copy_workspace, logs_of, plan_workspace
from stand_ins import PATIENCE_SECONDS, wait_until

from planner.errors import TerraformFailed
from planner.outside.terraform.adopt import adopting_plan
from planner.outside.terraform.executable import Executable
from planner.outside.terraform.process import FIRST
from planner.outside.terraform.workspace import Workspace

pytestmark = pytest.mark.slow

WORKSPACES = 5
KILLS_EACH = 2
KILLS = 10
ABOUT_RESOURCES = 20
SCAV = """\
import sys
from pathlib import Path
from planner.outside.terraform import Workspace
workspace = Workspace(Path(sys.argv[1]))
workspace.apply(workspace.plan(Path("run.tfplan")))
"""


def was_killed(folder: Path) -> bool:
    """Whether Terraform died here with its state locked, or is still running."""
    return (folder / ".terraform.tfstate.lock.info").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """After so many resources began or were complete, and so many seconds: where things happen, at any speed."""

    steps: int
    seconds: float


def moments(seed: int) -> Iterator[Moment]:
    choose = random.Random(seed)  # noqa: S311 - the same moments every time
    while True:
        yield Moment(steps=choose.randint(1, 2 * ABOUT_RESOURCES - 4), seconds=choose.uniform(0, 0.3))


def within(moment: Moment, resources: int) -> Moment:
    """The same moment in an apply that has only so many left to create."""
    return replace(moment, steps=1 + moment.steps % max(resources, 1), seconds=0)


@pytest.fixture
def new_workspace(mock_aws, tmp_path) -> Callable[[str], Path]:
    values = plan_workspace(tmp_path / "planned", "resnet50-imagenet")
    values |= mock_aws.answers(instance_type=values["instance_type"], zone_id=values["availability_zone_id"])
    values |= {"node_count": 2, "on_demand_count": 1, "placement_group": True, "budget_emails": ["team@example.com"]}

    def create(run_id: str) -> Path:
        copy_workspace(tmp_path / "planned", tmp_path / run_id, values | {"run_id": run_id})
        return tmp_path / run_id

    return create


def test_killed_apply_is_completed_by_the_next_and_destroyed(attached_terraform, mock_aws, new_workspace):
    """Each workspace is killed, recovered by an apply that is killed as well, and recovered again."""

    def kill_and_recover(number: int) -> list[int]:
        folder = new_workspace(f"killed-{number}")
        workspace = opened(folder, attached_terraform)
        workspace.init()
        adopted, file, moment = [], folder / "run.tfplan", moments(number)
        kill(attached_terraform, folder, next(moment), "-auto-approve")
        for _ in range(KILLS_EACH - 1):
            assert was_killed(folder)
            with adopting_plan(workspace, file, mock_aws.client) as adoption:
                adopted.append(len(adoption.found))
                kill(attached_terraform, folder, within(next(moment), adoption.plan.added), str(file))
            assert was_killed(folder), "the second kill came after the end"
        with adopting_plan(workspace, file, mock_aws.client) as adoption:
            adopted.append(len(adoption.found))
            workspace.apply(adoption.plan)
        assert not was_killed(folder)
        assert workspace.plan(file).has_changes is False
        workspace.destroy()
        assert mock_aws.resources(f"killed-{number}") == logs_of(f"killed-{number}")
        return adopted

    with ThreadPoolExecutor(max_workers=WORKSPACES) as pool:
        adopted = list(pool.map(kill_and_recover, range(WORKSPACES)))
    # Without an import, applying again would have failed: some moments have to show that. Not each of them does, since
    # a resource that began may not have reached AWS when Terraform dies.
    assert any(first > 0 for first, *_ in adopted), adopted


def test_plain_apply_fails_after_a_kill_and_scav_adopt_finishes_it(attached_terraform, mock_aws, new_workspace):
    """Why adopting is needed. With the first half failing one day, it is not."""
    folder = new_workspace("plain-1")
    opened(folder, attached_terraform).init()
    kill(attached_terraform, folder, Moment(steps=12, seconds=0), "-auto-approve")
    assert mock_aws.resources("plain-1")
    again = attached_terraform.run("apply", "-auto-approve", "-input=false", "-no-color", cwd=folder)
    assert again.returncode == 1
    assert re.search("already ?exists|Duplicate", again.stderr, re.IGNORECASE)

    refused = scav_adopt(attached_terraform, folder)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "It can cost at most $" in refused.stderr
    assert "add --yes" in refused.stderr
    finished = scav_adopt(attached_terraform, folder, "--yes")
    assert finished.returncode == 0, finished.stderr
    assert "is whole again" in finished.stdout
    opened(folder, attached_terraform).destroy()
    assert mock_aws.resources("plain-1") == logs_of("plain-1")


def test_stopped_scav_leaves_a_state_that_the_next_apply_continues(
    terraform_on_mock, attached_terraform, mock_aws, new_workspace
):
    """Interrupted, scav passes it on once and waits. Killed, it leaves Terraform alone, which ends by itself.

    Here Terraform starts its provider itself: a shared one would be stopped for everybody.
    """

    def stop_and_continue(number: signal.Signals) -> None:
        run_id = f"stopped-by-{number.name.lower()}"
        folder = new_workspace(run_id)
        opened(folder, terraform_on_mock).init()
        with subprocess.Popen(
            [sys.executable, "-c", SCAV, str(folder)],
            cwd=folder,
            env=terraform_on_mock.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as scav:
            wait_until(lambda: has_role(mock_aws, run_id))
            scav.send_signal(number)
            _, said = scav.communicate(timeout=PATIENCE_SECONDS)
        assert scav.returncode in (1, -signal.SIGKILL), said
        assert (FIRST in said) is (number == signal.SIGINT)
        wait_until(lambda: not was_killed(folder))

        workspace = opened(folder, attached_terraform)
        workspace.init()
        # An interrupt also cancels requests that AWS is answering: what they created may not be in the state.
        with adopting_plan(workspace, folder / "again.tfplan", mock_aws.client) as adoption:
            workspace.apply(adoption.plan)
        workspace.destroy()
        assert mock_aws.resources(run_id) == logs_of(run_id)

    with ThreadPoolExecutor() as pool:
        list(pool.map(stop_and_continue, [signal.SIGINT, signal.SIGKILL]))


def test_scav_is_killed_ten_times_and_terraform_ends_what_it_had_begun(attached_terraform, mock_aws, new_workspace):
    """Each time scav alone, at another moment; what is left is whole, and `scav adopt` finds nothing to do."""

    def kill_and_adopt(number: int) -> None:
        run_id = f"alone-{number}"
        folder = new_workspace(run_id)
        opened(folder, attached_terraform).init()
        with started(attached_terraform, folder, "-c", SCAV, str(folder)) as scav:
            wait_until(lambda: existing(mock_aws, run_id) >= number or scav.poll() is not None)
            assert scav.poll() is None, scav.communicate()
            scav.kill()
            scav.wait()
        wait_until(lambda: not was_killed(folder))
        adopted = scav_adopt(attached_terraform, folder, "--yes")
        assert adopted.returncode == 0, adopted.stderr
        assert adopted.stdout.startswith("Nothing to adopt")
        workspace = opened(folder, attached_terraform)
        assert workspace.plan(folder / "again.tfplan").has_changes is False
        workspace.destroy()
        assert mock_aws.resources(run_id) == logs_of(run_id)

    with ThreadPoolExecutor(max_workers=WORKSPACES) as pool:
        list(pool.map(kill_and_adopt, range(1, KILLS + 1)))


def test_scav_is_killed_ten_times_with_terraform_and_its_provider(
    terraform_on_mock, attached_terraform, mock_aws, new_workspace
):
    """In each workspace during the apply, and again during the `scav adopt` that should have finished it."""

    def kill_and_finish(number: int) -> list[set[str]]:
        folder, run_id = new_workspace(f"together-{number}"), f"together-{number}"
        opened(folder, terraform_on_mock).init()
        killed, moment = [], number
        for command in (("-c", SCAV, str(folder)), ("-m", "planner", "adopt", str(folder), "--yes")):
            with started(terraform_on_mock, folder, *command) as scav:
                wait_until(lambda: recorded(folder) >= moment or scav.poll() is not None)  # noqa: B023 - at once
                assert scav.poll() is None, scav.communicate()
                killed.append(kill_all(scav))
            moment = recorded(folder) + 1
        finished = scav_adopt(terraform_on_mock, folder, "--yes")
        assert finished.returncode == 0, finished.stderr
        workspace = opened(folder, attached_terraform)
        workspace.init()
        assert workspace.plan(folder / "again.tfplan").has_changes is False
        workspace.destroy()
        assert mock_aws.resources(run_id) == logs_of(run_id)
        return killed

    with ThreadPoolExecutor(max_workers=WORKSPACES) as pool:
        trees = [tree for killed in pool.map(kill_and_finish, range(1, WORKSPACES + 1)) for tree in killed]
    assert len(trees) == KILLS
    for programs in trees:
        assert {"terraform", "terraform-provider-aws"} <= {program.partition("_")[0] for program in programs}


def recorded(folder: Path) -> int:
    """How much of the state is there: what is read in no time says when, however busy the machine is."""
    try:
        state = json.loads((folder / "terraform.tfstate").read_text())
    except (FileNotFoundError, ValueError):  # being written
        return 0
    return sum(len(resource["instances"]) for resource in state["resources"] if resource["mode"] == "managed")


def existing(aws: MockAws, run_id: str) -> int:
    return sum(len(items) for items in aws.resources(run_id).values())


@contextlib.contextmanager
def started(terraform: Any, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=terraform.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def kill_all(process: subprocess.Popen[str]) -> set[str]:
    """Stopped first, all of them, so that none starts or finishes anything meanwhile; returns their programs."""
    pending, tree = [process.pid], []
    while pending:
        pid = pending.pop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            tree.append(pid)
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
    programs = {Path(f"/proc/{pid}/exe").readlink().name for pid in tree}
    for pid in tree:
        os.kill(pid, signal.SIGKILL)
    return programs


def has_role(aws: MockAws, run_id: str) -> bool:
    """One of the first of the run's resources: the rest of the apply is still to come."""
    return any(run_id in role["RoleName"] for role in aws.client("iam").list_roles()["Roles"])


def scav_adopt(terraform: Any, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner", "adopt", str(folder), *options],
        env=terraform.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def opened(folder: Path, terraform: Any) -> Workspace:
    executable = Executable(kind="terraform", command=(terraform.executable, *terraform.arguments))
    return Workspace(folder, executable=executable, environment=terraform.environment, watch=lambda _progress: None)


def kill(terraform: Any, folder: Path, moment: Moment, *what: str) -> None:
    """Terraform and all that it started; later than its end, nothing happens."""
    with subprocess.Popen(
        [terraform.executable, "apply", "-json", "-input=false", *what],
        cwd=folder,
        env=terraform.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        let_pass(process, moment)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def let_pass(process: subprocess.Popen[str], moment: Moment) -> None:
    steps = 0
    for event in events(process):
        steps += event["type"] in ("apply_start", "apply_complete") and event["hook"]["action"] != "read"
        if steps >= moment.steps:
            break
    time.sleep(moment.seconds)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_a_log_group_whose_creation_was_interrupted_is_kept(attached_terraform, mock_aws, new_workspace):
    """Terraform would make it anew, and destroying leaves it: its name would be taken."""
    folder = new_workspace("half-created")
    workspace = opened(folder, attached_terraform)
    workspace.init()
    file, group = folder / "run.tfplan", "module.gpu_cluster.aws_cloudwatch_log_group.run"
    workspace.apply(workspace.plan(file))
    attached_terraform.run("taint", group, cwd=folder)
    with pytest.raises(TerraformFailed, match="already exists"):
        workspace.apply(workspace.plan(file))
    with adopting_plan(workspace, file, mock_aws.client) as adoption:
        workspace.apply(adoption.plan)
    assert workspace.plan(file).has_changes is False
    workspace.destroy()
    assert mock_aws.resources("half-created") == logs_of("half-created")
