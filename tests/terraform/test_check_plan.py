"""`scav check` on plans that real Terraform makes of workspaces in which one thing was edited by hand.

With --update-golden the untouched plan is recorded, cut down to what is compared, for tests/unit/test_check.py.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mock_aws import IMAGE, OVERRIDE

from planner.cli import cli

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
OTHER_IMAGE = IMAGE.replace("0123", "ffff")
# One T4 per node, so that two further types may stand in for the chosen one.
JOB = """\
name: checked
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  precision: fp16
  target: {epochs: 9, reference_batch: 256}
constraints:
  {deadline: 200h, budget: $4000, nodes: 4..4, spot: always, regions: [us-east-1],
   instance_types: [g4dn.xlarge, g4dn.2xlarge, g4dn.4xlarge], quotas: {on_demand: {g: 4}, spot: {g: 12}}}
"""
VALUES, MAIN, MODULE = "terraform.tfvars.json", "main.tf", "modules/gpu-cluster"


def value(**changes: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | changes, indent=2, sort_keys=True) + "\n"


def line(pattern: str, replacement: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        edited, count = re.subn(pattern, replacement, text)
        assert count == 1, f"{pattern} is {count} times in the file"
        return edited

    return edit


def added(text: str) -> Callable[[str], str]:
    return lambda old: old + text


EDITS = {
    "type": (VALUES, value(instance_type="g4dn.8xlarge"), "types in order"),
    "count": (VALUES, value(node_count=8), "nodes at most"),
    "base": (VALUES, value(on_demand_count=0), "on-demand base"),
    "percentage": (
        f"{MODULE}/autoscaling_group.tf",
        line(r"(on_demand_percentage_above_base_capacity +=) .*", r"\1 50"),
        "on-demand % above base",
    ),
    "override-order": (
        VALUES,
        value(instance_type_overrides=["g4dn.4xlarge", "g4dn.2xlarge"]),
        "types in order",
    ),
    "image-in-another-file": ("own.auto.tfvars", added(f'container_image = "{OTHER_IMAGE}"\n'), "image on the nodes"),
    "image-in-the-module": (
        f"{MODULE}/user_data.tf",
        line(r"= local\.container_image\b", f'= "{OTHER_IMAGE}"'),
        "image on the nodes",
    ),
    "max-runtime": (VALUES, value(max_runtime_seconds=10**6), "max_runtime_seconds on the nodes"),
    "zone": (VALUES, value(availability_zone_id="use1-az2"), "zone of the subnets"),
    "added-resource": ("own.tf", added('resource "aws_sns_topic" "own" {}\n'), "aws_sns_topic.own"),
    "added-to-the-module": (
        f"{MODULE}/logs.tf",
        added('\ndata "aws_availability_zones" "own" {}\n'),
        "module.gpu_cluster.data.aws_availability_zones.own",
    ),
}


@pytest.fixture(scope="module")
def workspace(attached_terraform, mock_server, tmp_path_factory):
    """One planned and initialised workspace with subnets in every zone."""
    folder = tmp_path_factory.mktemp("checked")
    mock_server.reset()
    answers = mock_server.answers(zone_id="", instance_type="g4dn.xlarge")
    settings = {
        "network": {"vpc": answers["vpc_id"], "subnets": answers["subnet_ids"]},
        "run": {"ami": answers["ami_id"], "image": answers["container_image"], "command": ["train.py"]},
    }
    (folder / "scav.yaml").write_text(JOB + "".join(f"{key}: {json.dumps(item)}\n" for key, item in settings.items()))
    result = CliRunner().invoke(cli, ["plan", str(folder), "--out", str(folder / "run")])
    assert result.exit_code == 0, result.output
    (folder / "run" / "test_override.tf").write_text(OVERRIDE)
    attached_terraform.init(folder / "run")
    return folder / "run"


@pytest.fixture
def check(attached_terraform, workspace, tmp_path):
    """Plans the workspace with real Terraform and gives the result to `scav check`."""

    def run() -> Result:
        plan = tmp_path / "run.tfplan"
        planned = attached_terraform.run("plan", "-input=false", "-no-color", f"-out={plan}", cwd=workspace)
        assert planned.returncode == 0, planned.stdout + planned.stderr
        shown = attached_terraform.run("show", "-json", str(plan), cwd=workspace)
        (tmp_path / "plan.json").write_text(shown.stdout)
        command = ["check", str(workspace), str(tmp_path / "plan.json"), "--allow", "test_override.tf"]
        return CliRunner().invoke(cli, command, catch_exceptions=False)

    return run


def test_an_untouched_workspace_is_what_scav_planned(check, workspace, tmp_path, update_golden):
    result = check()
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert result.stdout.startswith("checked-1: the Terraform plan is what scav planned (")
    if update_golden:
        record(workspace, json.loads((tmp_path / "plan.json").read_text()))


@pytest.mark.parametrize("name", EDITS)
def test_each_single_edit_by_hand_is_found(check, workspace, name):
    file, edit, row = EDITS[name]
    path = workspace / file
    before = path.read_text() if path.exists() else None
    path.write_text(edit(before or ""))
    try:
        result = check()
    finally:
        path.unlink() if before is None else path.write_text(before)
    assert result.exit_code == 4, result.output
    assert result.stderr.startswith("Error: the Terraform plan is not what scav planned: ")
    assert row in result.stdout


# --- the recording ---


def record(workspace: Path, plan: dict[str, Any]) -> None:
    """Small, and without what differs between two recordings of the same: identifiers of the mock's account."""
    text = json.dumps(smaller(plan), indent=1, sort_keys=True)
    values = (workspace / VALUES).read_text()
    identifiers = sorted(set(re.findall(r"\b(?:subnet|vpc|ami)-[0-9a-f]{8,17}\b", text + values)))
    stable = {old: f"{old.partition('-')[0]}-{index:017x}" for index, old in enumerate(identifiers)}
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir(parents=True)
    planned = (workspace / "scav.plan.json").read_text()
    for name, content in (("plan.json", text + "\n"), (VALUES, values), ("scav.plan.json", planned)):
        for old, new in stable.items():
            content = content.replace(old, new)
        (GOLDEN / name).write_text(content)


def smaller(plan: dict[str, Any]) -> dict[str, Any]:
    call = plan["configuration"]["root_module"]["module_calls"]["gpu_cluster"]
    addresses = [{"address": item["address"]} for item in call["module"]["resources"]]
    subnets = [item for item in _module(plan["prior_state"]["values"]) if item["type"] == "aws_subnet"]
    kept = ("id", "availability_zone_id")
    return {
        **{key: plan[key] for key in ("format_version", "terraform_version", "complete", "errored", "variables")},
        "resource_changes": [smaller_change(change) for change in plan["resource_changes"]],
        "prior_state": {
            "values": {
                "root_module": {
                    "resources": [
                        {"type": item["type"], "values": {key: item["values"][key] for key in kept}} for item in subnets
                    ]
                }
            }
        },
        "configuration": {
            "provider_config": plan["configuration"]["provider_config"],
            "root_module": {
                "module_calls": {
                    "gpu_cluster": {
                        "source": call["source"],
                        "expressions": call["expressions"],
                        "module": {"resources": addresses},
                    }
                }
            },
        },
    }


def smaller_change(change: dict[str, Any]) -> dict[str, Any]:
    after = change["change"]["after"] or {}
    if change["type"] not in ("aws_autoscaling_group", "aws_autoscaling_schedule", "aws_launch_template"):
        after = {}
    if "user_data" in after:
        after = {**after, "user_data": smaller_user_data(after["user_data"])}
    kept = ("address", "module_address", "mode", "type", "name", "index")
    return {
        **{key: change[key] for key in kept if key in change},
        "change": {
            "actions": change["change"]["actions"],
            "after": {key: item for key, item in after.items() if item is not None},
        },
    }


def smaller_user_data(user_data: str) -> str:
    script = gzip.decompress(base64.b64decode(user_data))
    settings = re.search(rb"[^\n]*<<'SCAV_RUN'\n.*?\nSCAV_RUN\n", script, re.DOTALL)
    assert settings is not None
    return base64.b64encode(gzip.compress(settings[0], mtime=0)).decode()


def _module(values: dict[str, Any]) -> list[dict[str, Any]]:
    children = values["root_module"]["child_modules"]
    return [resource for child in children for resource in child["resources"]]
