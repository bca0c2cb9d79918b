"""The nodes that test_probe_on_aws.py plays: lost, replaced, silent, and what AWS says when it has none."""

import base64
import gzip

import pytest
from botocore.exceptions import ClientError
from played_nodes import played_nodes
from stand_ins import wait_until


def make_group(aws, user_data, *, count=1, suspended=()):
    """A group of the smallest kind, by hand: Terraform takes a quarter of a minute."""
    found = aws.answers(instance_type="g5.xlarge")
    data = {
        "ImageId": found["ami_id"],
        "InstanceType": "g5.xlarge",
        "UserData": base64.b64encode(gzip.compress(user_data.encode())).decode(),
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "scav-run", "Value": "run-1"}]}],
    }
    template = aws.client("ec2").create_launch_template(LaunchTemplateName="node", LaunchTemplateData=data)
    identity = template["LaunchTemplate"]["LaunchTemplateId"]
    aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="group",
        MinSize=0,
        MaxSize=count,
        DesiredCapacity=count,
        LaunchTemplate={"LaunchTemplateId": identity, "Version": "1"},
        VPCZoneIdentifier=found["subnet_ids"][0],
    )
    if suspended:
        aws.client("autoscaling").suspend_processes(AutoScalingGroupName="group", ScalingProcesses=list(suspended))


def instances_of(aws):
    (group,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return [instance["InstanceId"] for instance in group["Instances"]]


def test_a_node_that_is_lost_is_gone(mock_aws, tmp_path):
    beat = "#!/bin/sh\nwhile :; do echo beat >> /etc/scav-beats; sleep 0.05; done\n"
    make_group(mock_aws, beat, count=2, suspended=["ReplaceUnhealthy"])
    with played_nodes(mock_aws, root=tmp_path) as nodes:
        nodes.wait_for(2)
        beats = [node.root / "machine/etc/now/scav-beats" for node in nodes]
        wait_until(lambda: all(file.exists() for file in beats))
        nodes.lose(nodes[0].instance_id)
        wait_until(lambda: not nodes[0].alive)
        assert nodes[1].alive
        assert instances_of(mock_aws) == [nodes[1].instance_id]
    assert not nodes[1].alive
    assert len(nodes) == 2


def test_a_node_that_shuts_down_is_terminated_and_replaced(mock_aws, tmp_path):
    make_group(mock_aws, "#!/bin/sh\nshutdown -h now\nsleep 60\n")
    with played_nodes(mock_aws, root=tmp_path) as nodes:
        nodes.wait_for(2)
        assert nodes[0].world.calls == ["shutdown -h now"]
        mock_aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName="group", DesiredCapacity=0)


def test_a_silent_node_exists_and_does_nothing(mock_aws, tmp_path):
    make_group(mock_aws, "#!/bin/sh\ntouch /etc/ran\n")
    with played_nodes(mock_aws, root=tmp_path, silent=True) as nodes:
        nodes.wait_for(1)
        assert nodes[0].user_data == "#!/bin/sh\ntouch /etc/ran\n"
    assert not nodes[0].alive
    assert not (nodes[0].root / "machine").exists()


def test_what_launches_is_an_activity(mock_aws):
    make_group(mock_aws, "#!/bin/sh\n", count=2)
    found = mock_aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName="group")["Activities"]
    assert [activity["StatusCode"] for activity in found] == ["Successful", "Successful"]
    launched = {activity["Description"].rpartition(" ")[2] for activity in found}
    assert launched == set(instances_of(mock_aws))


def test_without_capacity_an_activity_says_so_and_nothing_launches(mock_aws):
    client = mock_aws.client("autoscaling")
    with mock_aws.without_capacity(after=1):
        make_group(mock_aws, "#!/bin/sh\n", count=2)
        newest, _ = client.describe_scaling_activities(AutoScalingGroupName="group")["Activities"]
        assert newest["StatusCode"] == "Failed"
        assert newest["StatusMessage"].startswith("We currently do not have sufficient g5.xlarge capacity in the Avail")
        assert newest["StatusMessage"].endswith(" Launching EC2 instance failed.")
        assert len(instances_of(mock_aws)) == 1
    client.describe_scaling_activities(AutoScalingGroupName="group")
    assert len(instances_of(mock_aws)) == 2  # AWS tries again


def test_s3_refuses_to_be_read_except_by_nodes(mock_aws):
    mine, nodes = mock_aws.client("s3"), mock_aws.client("s3", key="node")
    mine.create_bucket(Bucket="results")
    mine.put_object(Bucket="results", Key="run-1/heartbeats/i-1.json", Body=b"{}")
    where = {"Bucket": "results", "Key": "run-1/heartbeats/i-1.json"}
    with mock_aws.s3_denied(), mock_aws.without_capacity():
        for call in (lambda: mine.get_object(**where), lambda: mine.list_objects_v2(Bucket="results", Prefix="run-1/")):
            with pytest.raises(ClientError, match=r"\(AccessDenied\).*is not authorized to perform: s3:"):
                call()
        assert nodes.get_object(**where)["Body"].read() == b"{}"
        mine.put_object(**where, Body=b"2")
    assert mine.get_object(**where)["Body"].read() == b"2"
