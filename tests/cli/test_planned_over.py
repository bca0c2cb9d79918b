"""`scav plan` over a workspace that is in use: with a state, or with edits by hand, it asks first."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from test_attacked_workspace import tree

ANOTHER = ("--nodes", "4..4")  # a plan with other values
STATE = {
    "version": 4,
    "resources": [
        {"mode": "managed", "type": "aws_autoscaling_group", "name": "nodes", "instances": [{}]},
        {"mode": "managed", "type": "aws_s3_bucket", "name": "checkpoints", "instances": [{}]},
        {"mode": "data", "type": "aws_region", "name": "current", "instances": [{}]},
    ],
}
REFUSED = "Nobody is here to be asked: add --force to go on\n"


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def refused_and_forced(run_scav, workspace: Path, words: str, *options: str) -> None:
    before = tree(workspace)
    result = run_scav("plan", *options)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert words in result.stderr
    assert result.stderr.endswith(REFUSED)
    assert tree(workspace) == before
    forced = run_scav("plan", "--force", *options)
    assert (forced.exit_code, len(forced.stderr.splitlines())) == (0, 1)
    assert words in forced.stderr
    assert run_scav("plan", "--check", *options).exit_code == 0


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("terraform.tfstate", STATE, "terraform.tfstate has 2 resources, which the next apply changes or replaces"),
        ("errored.tfstate", STATE, "errored.tfstate has 2 resources"),
        ("terraform.tfstate.d/staging/terraform.tfstate", STATE, "terraform.tfstate has 2 resources"),
        ("terraform.tfstate", "half of a st", "terraform.tfstate cannot be read, so it may stand for a run"),
        ("terraform.tfstate", {"encrypted_data": "AAAA"}, "terraform.tfstate cannot be read"),
        ("terraform.tfstate", {"resources": {}}, "terraform.tfstate cannot be read"),
    ],
)
def test_a_state_with_resources_is_not_planned_over_without_asking(run_scav, workspace, file, content, words):
    write(workspace / file, content)
    refused_and_forced(run_scav, workspace, words, *ANOTHER)


def test_a_local_backend_is_read_where_it_is(run_scav, workspace):
    backend = {"backend": {"type": "local", "config": {"path": "../kept/run.tfstate"}}}
    write(workspace / ".terraform" / "terraform.tfstate", backend)
    assert run_scav("plan", "--nodes", "3..3").exit_code == 0
    write(workspace.parent / "kept" / "run.tfstate", STATE)
    refused_and_forced(run_scav, workspace, "run.tfstate has 2 resources", *ANOTHER)


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        (".terraform/terraform.tfstate", {"backend": {"type": "s3", "config": {"bucket": "b"}}}, "backend s3"),
        ("backend.tf", 'terraform {\n  backend "s3" {}\n}\n', "backend.tf"),
        ("cloud.tf", "terraform {\n  cloud {}\n}\n", "cloud.tf"),
    ],
)
def test_of_a_remote_state_it_says_that_it_does_not_know(run_scav, workspace, file, content, place):
    """Whether it holds anything takes credentials to find out, so there is nothing to ask a pipeline about."""
    write(workspace / file, content)
    result = run_scav("plan", *ANOTHER)
    assert result.exit_code == 0
    assert result.stderr == (
        f"Warning: the state is elsewhere ({place}) and was not read: if a run is in it, the next apply may "
        "replace that\n"
    )


@pytest.mark.parametrize("state", [{}, {"version": 4, "resources": []}])
def test_an_empty_state_and_the_same_plan_ask_nothing(run_scav, workspace, state):
    write(workspace / "terraform.tfstate", state)
    assert (run_scav("plan", *ANOTHER).exit_code, run_scav("plan").exit_code) == (0, 0)
    write(workspace / "terraform.tfstate", STATE)
    write(workspace / "backend.tf", 'terraform {\n  backend "s3" {}\n}\n')
    same = run_scav("plan")
    assert (same.exit_code, same.stderr) == (0, "")


@pytest.mark.parametrize("file", ["main.tf", "README.md", "modules/gpu-cluster/iam.tf", "terraform.tfvars.json"])
def test_edits_by_hand_are_not_planned_over_without_asking(run_scav, workspace, file):
    (workspace / file).write_text((workspace / file).read_text() + "\n")
    refused_and_forced(run_scav, workspace, f"{file} would lose what was edited by hand")


def test_what_is_missing_or_as_the_new_plan_wants_it_is_no_edit(run_scav, workspace, tmp_path):
    (workspace / "outputs.tf").unlink()
    assert run_scav("plan", "--out", tmp_path / "other", *ANOTHER).exit_code == 0
    values = (tmp_path / "other" / "terraform.tfvars.json").read_text()
    (workspace / "terraform.tfvars.json").write_text(values)  # as after a merge that took theirs
    result = run_scav("plan", *ANOTHER)
    assert (result.exit_code, result.stderr) == (0, "")


def test_many_edits_are_one_line(run_scav, workspace):
    for path in (workspace / "modules" / "gpu-cluster").glob("*.tf"):
        path.write_text("")
    result = run_scav("plan")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert " more files would lose what was edited by hand" in result.stderr


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_at_a_terminal_it_asks(workspace, answer, code):
    (workspace / "main.tf").write_text("")
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    command = [sys.executable, "-m", "planner", "plan"]
    result = subprocess.run(command, cwd=workspace.parent, stdin=theirs, capture_output=True, text=True)
    os.close(ours)
    os.close(theirs)
    assert result.returncode == code, result.stderr
    assert "main.tf would lose what was edited by hand. Go on? [y/N]" in result.stderr
    assert ((workspace / "main.tf").read_text() == "") == bool(code)
