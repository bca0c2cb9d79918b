"""scav as a provider, in real Terraform without any CLI configuration, with the real AWS provider on a mock AWS."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mock_aws import MockAws, logs_of
from provider_home import REPOSITORY, at_home, install, scav, write_alone
from test_cycle import CHANGES, NO_CHANGES, Commands, changed

EXAMPLE = REPOSITORY / "examples/resnet50-imagenet/scav.yaml"
PLAN = "scav_plan.run"
LIMITS = """\
constraints:
  deadline: 100h
  budget: $4000
  nodes: 1..4
  spot: never
  instance_types: [g4dn.xlarge, g5.12xlarge]
"""
OVERRIDE = """\
provider "aws" {
  max_retries = 3
}

module "run" {
  options = { checkpoint_lifecycle = false }
}
"""
DEADLINE = """\
variable "deadline" {
  default = null
}

resource "scav_plan" "run" {
  deadline = var.deadline
}
"""


def example_job(**settings: Any) -> str:
    """The example's job within limits that two kinds of machines keep."""
    text = EXAMPLE.read_text(encoding="utf-8")
    start, end = text.index("constraints:"), text.index("objective:")
    return (
        text[:start] + LIMITS + "\n" + text[end:] + "".join(f"\n{key}: {json.dumps(settings[key])}" for key in settings)
    )


def write_root(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "scav.yaml").write_text(text, encoding="utf-8")
    made = scav("init", "--terraform", str(folder), home=folder)
    assert made.returncode == 0, made.stderr
    (folder / "test_override.tf").write_text(OVERRIDE + "\n" + DEADLINE.split("\n\n")[1])
    (folder / "deadline.tf").write_text(DEADLINE.split("\n\n")[0] + "\n")
    return folder


def settings_of(aws: MockAws) -> dict[str, Any]:
    answers = aws.answers(instance_type="g5.12xlarge")
    return {
        "network": {"vpc": answers["vpc_id"], "subnets": answers["subnet_ids"]},
        "run": {"ami": answers["ami_id"], "image": answers["container_image"]},
    }


@pytest.mark.slow
def test_the_plan_is_a_resource_that_feeds_the_module(plain_terraform, mock_aws, tmp_path):
    """Init, validate, plan, apply, the same again, another deadline, destroy."""
    root = write_root(tmp_path / "root", example_job(**settings_of(mock_aws)))
    main = (root / "main.tf").read_text(encoding="utf-8")
    assert len([line for line in main.splitlines() if line.strip()]) <= 20
    environment = plain_terraform.environment | mock_aws.environment
    run = Commands(terraform=replace(plain_terraform, environment=environment), folder=root)

    initialized = plain_terraform.run("init", "-input=false", cwd=root)
    assert initialized.returncode == 0, initialized.stderr
    assert re.search(r'provider "terraform.local/scav/scav" \{[^}]*"h1:', (root / ".terraform.lock.hcl").read_text())
    run("validate")
    first = run.plan("first.tfplan", expected=CHANGES)
    decided = values_of(first)
    groups = [change for change in changed(first) if change["type"] == "aws_autoscaling_group"]
    assert [group["change"]["after"]["max_size"] for group in groups] == [decided["node_count"]]
    assert decided["variables"]["instance_type"] == decided["instance_type"]
    run("apply", "-input=false", "first.tfplan")
    assert len(mock_aws.resources(decided["run_id"])["instances"]) == decided["node_count"]

    run.plan("again.tfplan", expected=NO_CHANGES)

    sooner = run.plan("sooner.tfplan", "-var=deadline=30h", expected=CHANGES)
    assert values_of(sooner)["instance_type"] != decided["instance_type"]
    assert set(different(decided, values_of(sooner))) <= MOVED_BY_A_DEADLINE
    run("destroy", "-input=false", "-auto-approve")
    assert mock_aws.resources(decided["run_id"]) == logs_of(decided["run_id"])


@pytest.mark.slow
def test_both_ways_plan_the_same_resources(plain_terraform, mock_aws, tmp_path):
    """The root with the provider, and the folder that `scav plan` writes of the same job, with its source.

    Of a job that names no network and no images, so that AWS is asked for them: at the first plan, both ways.
    """
    root = write_root(tmp_path / "root", example_job(run={"source": "source", "command": ["train.py", "{gpu_batch}"]}))
    (root / "source/__pycache__").mkdir(parents=True)
    (root / "source/train.py").write_text("print('Hello')\n")
    (root / "source/__pycache__/train.pyc").write_bytes(b"")
    written = scav("plan", str(root), "--out", str(tmp_path / "written"), home=root)
    assert written.returncode == 0, written.stderr
    rendered_override = OVERRIDE.replace('"run"', '"gpu_cluster"').replace("options = { checkpoint", "checkpoint")
    (tmp_path / "written/test_override.tf").write_text(rendered_override.replace("false }", "false"))

    online = replace(plain_terraform, environment=plain_terraform.environment | mock_aws.environment)
    plans = []
    for folder in (root, tmp_path / "written"):
        seconds = [timed(online, folder, *words) for words in (["init"], ["validate"], ["plan", "-out=a.tfplan"])]
        print(f"{folder.name}: init, validate, plan in {seconds} s")  # shown with -s
        plans.append(json.loads(online.run("show", "-json", "a.tfplan", cwd=folder).stdout))
    by_provider, by_folder = plans
    plan_file = (tmp_path / "written/scav.plan.json").read_bytes()
    assert values_of(by_provider)["plan_sha256"] == hashlib.sha256(plan_file).hexdigest()
    ours, theirs = created(by_provider), created(by_folder)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 15
    assert {at: unlike(theirs[at], ours[at]) for at in ours if unlike(theirs[at], ours[at])} == {}


def timed(terraform: Any, folder: Path, *words: str) -> float:
    start = time.monotonic()
    result = terraform.run(*words, "-no-color", cwd=folder)
    assert result.returncode == 0, result.stderr
    return round(time.monotonic() - start, 1)


def unlike(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Where one of them has a value only after the apply, it has none here."""
    return {name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)}


def created(plan: dict[str, Any]) -> dict[str, Any]:
    return {
        change["address"].removeprefix("module.run."): change["change"]["after"]
        for change in plan["resource_changes"]
        if change["address"] != PLAN and change["change"]["actions"] == ["create"]
    }


# The machine, how many, hours and dollars; what follows from the machine; and what names the plan.
MOVED_BY_A_DEADLINE = {
    *("instance_type", "gpu", "instance_type_order", "node_count", "on_demand_count", "hours_p50", "hours_p95"),
    *("usd_p50", "usd_p95", "usd_max", "deadline_probability", "budget_probability"),
    *("gpus_per_node", "gpu_batch", "accumulation_steps", "global_batch", "availability_zones"),
    *("checkpoint_interval_seconds", "max_runtime_hours", "deadline", "plan_sha256", "variables"),
}


def values_of(plan: dict[str, Any]) -> dict[str, Any]:
    (found,) = [change["change"]["after"] for change in plan["resource_changes"] if change["address"] == PLAN]
    return dict(found)


def different(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in after if after[name] != before[name]]


@pytest.mark.slow
def test_one_changed_byte_of_the_launcher_or_of_the_code_is_refused(terraform, tmp_path):
    code, root = tmp_path / "code", write_alone(tmp_path / "root")
    (tmp_path / "home").mkdir()
    install(code, tmp_path / "home")
    alone = at_home(terraform, tmp_path / "home")
    assert alone.run("init", "-no-color", cwd=root).returncode == 0
    assert alone.run("validate", "-no-color", cwd=root).returncode == 0

    units = code / "planner/units.py"
    text = units.read_bytes()
    units.write_bytes(text + b"\n")
    refused = alone.run("validate", "-no-color", cwd=root)
    assert refused.returncode == 1
    said = " ".join(refused.stderr.split())
    assert "is not what scav provider install saw of" in said
    assert "run `scav provider install` again" in said

    units.write_bytes(text)
    assert alone.run("validate", "-no-color", cwd=root).returncode == 0
    (launcher,) = (tmp_path / "home/.terraform.d/plugins").glob("*/scav/scav/*/linux_amd64/terraform-provider-scav_v*")
    launcher.write_bytes(launcher.read_bytes() + b"\n")
    for command in ("init", "plan"):
        refused = alone.run(command, "-no-color", cwd=root)
        assert refused.returncode == 1
        assert "checksums" in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_a_home_that_cannot_be_written_does_no_harm(plain_terraform, tmp_path):
    root = write_alone(tmp_path / "root")
    assert plain_terraform.run("init", "-no-color", cwd=root).returncode == 0
    environment = plain_terraform.environment | {"HOME": "/proc/nowhere"}
    planned = replace(plain_terraform, environment=environment).run("plan", "-no-color", cwd=root)
    assert planned.returncode == 0, planned.stderr
    assert "node_count" in planned.stdout
