"""Terraform stopped at ten random moments of an apply: killed, and interrupted as Ctrl-C does.

Killed, it loses what it was creating: measured here, plain `apply` then fails every time, since the names are taken. What
`planner.adopt` finds and imports makes the state whole again, and destroy leaves nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mock_aws import MockAws, copy_workspace, plan_workspace

from planner.adopt import adopting_plan, was_killed
from planner.terraform import Executable, Workspace

MOMENTS = 10
AT_ONCE = 5
RESOURCES = 21
"""Of this variant; a resource says when its creation begins and when it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """After so many resources began or were complete, and so many seconds: where things happen, at any speed."""

    run_id: str
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was left behind, and what came of it."""

    recorded: int
    killed: bool
    adopted: int
    leftovers: dict[str, list[str]]


def moments(name: str, count: int) -> list[Moment]:
    choose = random.Random(name)  # noqa: S311 - the same moments every time
    return [
        Moment(run_id=f"{name}-{number:02}-x", steps=choose.randint(1, 2 * RESOURCES), seconds=choose.uniform(0, 0.3))
        for number in range(count)
    ]


@pytest.fixture
def new_workspace(mock_aws, tmp_path) -> Callable[[str], Path]:
    values = plan_workspace(tmp_path / "planned", "resnet50-imagenet")
    values |= mock_aws.answers(instance_type=values["instance_type"], zone_id=values["availability_zone_id"])
    values |= {"node_count": 2, "on_demand_count": 1, "placement_group": True, "budget_emails": ["team@example.com"]}

    def create(run_id: str) -> Path:
        copy_workspace(tmp_path / "planned", tmp_path / run_id, values | {"run_id": run_id})
        return tmp_path / run_id

    return create


@pytest.mark.slow
def test_killed_apply_is_completed_by_the_next_and_destroyed(attached_terraform, mock_aws, new_workspace):
    def kill_and_recover(moment: Moment) -> Found:
        folder = new_workspace(moment.run_id)
        workspace = opened(folder, attached_terraform)
        workspace.init()
        kill(attached_terraform, folder, moment)
        recorded, killed = recorded_resources(folder), was_killed(folder)
        with adopting_plan(workspace, folder / "run.tfplan", mock_aws.client) as plan:
            planned = workspace.show(plan)
            workspace.apply(plan)
        assert workspace.plan(folder / "again.tfplan").has_changes is False
        assert recorded_resources(folder) == RESOURCES
        workspace.destroy()
        adopted = sum("importing" in change["change"] for change in planned["resource_changes"])
        leftovers = mock_aws.resources(moment.run_id)
        return Found(recorded=recorded, killed=killed, adopted=adopted, leftovers=leftovers)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = list(pool.map(kill_and_recover, moments("killed", MOMENTS)))
    for one in found:
        print(one)
    assert [one.leftovers for one in found] == [{}] * MOMENTS
    # Otherwise the moments were too late to show anything.
    assert sum(one.adopted > 0 for one in found) >= MOMENTS // 2
    assert all(one.killed for one in found if one.recorded < RESOURCES)


def opened(folder: Path, terraform: Any) -> Workspace:
    executable = Executable(kind="terraform", command=(terraform.executable, *terraform.arguments))
    return Workspace(folder, executable=executable, environment=terraform.environment, watch=lambda _progress: None)


def kill(terraform: Any, folder: Path, moment: Moment) -> None:
    with started_apply(terraform, folder) as process:
        wait_until(process, moment)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def started_apply(terraform: Any, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [terraform.executable, "apply", "-json", "-auto-approve", "-input=false"],
        cwd=folder,
        env=terraform.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(process: subprocess.Popen[str], moment: Moment) -> None:
    steps = 0
    for event in events(process):
        steps += event["type"] in ("apply_start", "apply_complete") and event["hook"]["action"] == "create"
        if steps >= moment.steps:
            break
    time.sleep(moment.seconds)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def recorded_resources(folder: Path) -> int:
    """Terraform creates the file, empty, before it writes it."""
    file = folder / "terraform.tfstate"
    text = file.read_text() if file.exists() else ""
    resources = json.loads(text)["resources"] if text else []
    return sum(len(resource["instances"]) for resource in resources if resource["mode"] == "managed")
