"""A finished job stays finished: nothing that Terraform does starts it again, and a new run_id starts a new one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mock_aws import copy_workspace, plan_workspace, write_values

pytestmark = pytest.mark.slow

NO_CHANGES, CHANGES = 0, 2


@pytest.fixture
def workspace(mock_aws, tmp_path):
    values = plan_workspace(tmp_path / "planned", "resnet50-imagenet")
    values |= mock_aws.answers(instance_type=values["instance_type"], zone_id=values["availability_zone_id"])
    copy_workspace(
        tmp_path / "planned",
        tmp_path / "workspace",
        values | {"run_id": "finished-1", "node_count": 2, "on_demand_count": 2},
    )
    return tmp_path / "workspace"


def test_finished_run_stays_finished_until_a_new_run_id(attached_terraform, mock_aws, workspace):
    def terraform(*words: str, expected: int = 0) -> str:
        result = attached_terraform.run(*words, "-no-color", "-input=false", cwd=workspace)
        assert result.returncode == expected, result.stdout + result.stderr
        return result.stdout

    terraform("init")
    terraform("apply", "-auto-approve")
    assert len(mock_aws.resources("finished-1")["instances"]) == 2
    bucket = outputs(attached_terraform, workspace)["checkpoint_bucket"]

    finish_as_the_node_agent_does(mock_aws, bucket, "finished-1")
    terraform("plan", "-detailed-exitcode", expected=NO_CHANGES)
    assert "0 added, 0 changed, 0 destroyed" in terraform("apply", "-auto-approve")
    assert mock_aws.desired_capacity("scav-finished-1") == 0
    assert "instances" not in mock_aws.resources("finished-1")

    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    write_values(workspace, values | {"run_id": "finished-2"})
    terraform("apply", "-auto-approve")
    assert mock_aws.desired_capacity("scav-finished-2") == 2
    assert len(mock_aws.resources("finished-2")["instances"]) == 2
    # Only the bucket and the logs are left of the first run, with what it wrote; the new run writes beside it.
    assert mock_aws.resources("finished-1").keys() == {"buckets", "log groups"}
    assert outputs(attached_terraform, workspace)["checkpoint_uri"] == f"s3://{bucket}/finished-2/checkpoints"
    assert keys(mock_aws, bucket) == ["finished-1/_SUCCESS", "finished-1/checkpoints/last.pt"]
    terraform("plan", "-detailed-exitcode", expected=NO_CHANGES)


def finish_as_the_node_agent_does(aws: Any, bucket: str, run_id: str) -> None:
    for key in (f"{run_id}/checkpoints/last.pt", f"{run_id}/_SUCCESS"):
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")
    aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=f"scav-{run_id}", DesiredCapacity=0)


def outputs(terraform: Any, workspace: Any) -> dict[str, Any]:
    shown = json.loads(terraform.run("output", "-json", cwd=workspace).stdout)
    return {name: output["value"] for name, output in shown.items()}


def keys(aws: Any, bucket: str) -> list[str]:
    return sorted(item["Key"] for item in aws.client("s3").list_objects_v2(Bucket=bucket)["Contents"])
