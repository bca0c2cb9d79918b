"""A mock AWS on loopback and the AWS provider attached to it: started once, shared by tests, emptied between them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from click.testing import CliRunner

from planner.cli import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "mock", "AWS_SECRET_ACCESS_KEY": "mock"}
IMAGE = "registry.example.com/train@sha256:" + "0123456789abcdef" * 4

# Test-only arguments: few retries, for lost connections only, since the mock's answers do not change; no lifecycle
# rules, for which the provider itself waits 55 seconds.
OVERRIDE = """\
provider "aws" {
  max_retries = 3
}

module "gpu_cluster" {
  checkpoint_lifecycle = false
}
"""


# AWS's own words.
NO_CAPACITY = (
    "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone}). Our "
    "system will be working on provisioning additional capacity. You can currently get {instance_type} capacity by not "
    "specifying an Availability Zone in your request or choosing us-east-1b, us-east-1d. Launching EC2 instance failed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MockAws:
    url: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What points Terraform and the provider here: the address and not a name, for path-style S3."""
        settings = {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}
        return {**settings, **CREDENTIALS, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def client(self, service: str, key: str = "mock") -> Any:
        """Kept: making one reads the whole model of its service, and boto3 must not do it in two threads at once."""
        with MAKING_CLIENTS:
            return made_client(self.url, service, key)

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")  # noqa: S310 - loopback
        urllib.request.urlopen(request).close()  # noqa: S310
        self.log.write_text("")
        self.log.with_name("calls.jsonl").unlink(missing_ok=True)
        self.faults.unlink(missing_ok=True)

    @property
    def faults(self) -> Path:
        return faults_file(self.log)

    @contextlib.contextmanager
    def fault(self, **faults: Any) -> Iterator[None]:
        """While it lasts, things go wrong (see moto_faults.py, and the two below); several may at once."""
        before = json.loads(self.faults.read_text(encoding="utf-8")) if self.faults.exists() else {}
        self._set_faults(before | faults)
        try:
            yield
        finally:
            self._set_faults(before)

    def _set_faults(self, faults: dict[str, Any]) -> None:
        new = self.faults.with_suffix(".new")
        new.write_text(json.dumps(faults), encoding="utf-8")
        new.replace(self.faults)

    def without_capacity(self, *, after: int = 0, message: str = NO_CAPACITY) -> AbstractContextManager[None]:
        """Groups get `after` instances and no more; their scaling activities say why."""
        return self.fault(launch={"after": after, "message": message})

    def s3_denied(self) -> AbstractContextManager[None]:
        """Objects and lists of them are refused, except to Terraform and to nodes."""
        return self.fault(s3_denied=True)

    def failures(self) -> list[str]:
        """What moto could not answer since the last reset."""
        return re.findall(r"^\S*(?:Error|Exception)\b.*$", self.log.read_text(), re.MULTILINE)

    def calls(self) -> list[dict[str, Any]]:
        """What Terraform asked since the last reset (see moto_calls.py)."""
        file = self.log.with_name("calls.jsonl")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def answers(self, *, instance_type: str, zone_id: str = "") -> dict[str, Any]:
        """What a plan leaves open, from the mock's own account: subnets of its default VPC in that zone, or in all.

        As nodes without a public address need them: with a NAT gateway, and a gateway endpoint for S3.
        """
        ec2 = self.client("ec2")
        offered = ec2.describe_instance_type_offerings(
            LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": [instance_type]}]
        )
        zones = {zone_id} if zone_id else {offer["Location"] for offer in offered["InstanceTypeOfferings"]}
        subnets = [subnet for subnet in ec2.describe_subnets()["Subnets"] if subnet["AvailabilityZoneId"] in zones]
        lead_out(ec2, subnets[0])
        linux = [{"Name": "architecture", "Values": ["x86_64"]}, {"Name": "name", "Values": ["amzn2-ami-*"]}]
        return {
            "vpc_id": subnets[0]["VpcId"],
            "subnet_ids": sorted(subnet["SubnetId"] for subnet in subnets),
            "ami_id": ec2.describe_images(Filters=linux)["Images"][0]["ImageId"],
            "container_image": IMAGE,
        }

    def connect_default_vpc(self) -> None:
        """To the internet, as AWS's own is."""
        ec2 = self.client("ec2")
        default = [{"Name": "is-default", "Values": ["true"]}]
        vpc = ec2.describe_vpcs(Filters=default)["Vpcs"][0]["VpcId"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        table = main_route_table(ec2, vpc)["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)

    def resources(self, run_id: str) -> dict[str, list[str]]:
        """What exists of a run, by kind: everything whose name or tags mention it. Empty kinds are left out."""
        found = {kind: [item for item in items(self.client) if run_id in item] for kind, items in KINDS.items()}
        return {kind: sorted(items) for kind, items in found.items() if items}

    def desired_capacity(self, group: str) -> int:
        described = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        capacity: int = described["AutoScalingGroups"][0]["DesiredCapacity"]
        return capacity


def logs_of(run_id: str) -> dict[str, list[str]]:
    """What a destroyed run leaves on purpose, beside a bucket that somebody emptied."""
    return {"log groups": [f"/scav/{run_id} []"]}


def lead_out(ec2: Any, subnet: dict[str, Any]) -> None:
    """Once: routes of the subnet's VPC to AWS, and to S3 beside the NAT gateway."""
    table = main_route_table(ec2, subnet["VpcId"])
    if any(route.get("NatGatewayId") for route in table["Routes"]):
        return
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], AllocationId=address)["NatGateway"]["NatGatewayId"]
    where = {"RouteTableId": table["RouteTableId"]}
    ec2.create_route(**where, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    ec2.create_vpc_endpoint(
        VpcId=subnet["VpcId"], ServiceName=f"com.amazonaws.{REGION}.s3", RouteTableIds=[table["RouteTableId"]]
    )


def main_route_table(ec2: Any, vpc: str) -> dict[str, Any]:
    of_vpc = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    (table,) = ec2.describe_route_tables(Filters=of_vpc)["RouteTables"]
    return dict(table)


MAKING_CLIENTS = threading.Lock()


@functools.cache
def made_client(url: str, service: str, key: str) -> Any:
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key="mock",  # noqa: S106 - the mock takes any
    )


Client = Callable[[str], Any]


def _instances(client: Client) -> list[str]:
    reservations = client("ec2").describe_instances()["Reservations"]
    instances = [instance for reservation in reservations for instance in reservation["Instances"]]
    return [
        f"{instance['InstanceId']} {_tags(instance)}"
        for instance in instances
        if instance["State"]["Name"] not in ("terminated", "shutting-down")
    ]


def _budgets(client: Client) -> list[str]:
    account = client("sts").get_caller_identity()["Account"]
    return [budget["BudgetName"] for budget in client("budgets").describe_budgets(AccountId=account)["Budgets"]]


def _tags(item: dict[str, Any]) -> str:
    return json.dumps(item.get("Tags", []))


def _named(service: str, call: str, key: str, *names: str) -> Callable[[Client], list[str]]:
    """The items that a describe or list call answers, each as its name and tags."""

    def items(client: Client) -> list[str]:
        answer = getattr(client(service), call)()[key]
        return [" ".join([*(str(item.get(name, "")) for name in names), _tags(item)]).strip() for item in answer]

    return items


KINDS: dict[str, Callable[[Client], list[str]]] = {
    "alarms": _named("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "schedules": _named("scheduler", "list_schedules", "Schedules", "Name"),
    "auto scaling groups": _named(
        "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"
    ),
    "buckets": _named("s3", "list_buckets", "Buckets", "Name"),
    "budgets": _budgets,
    "event rules": _named("events", "list_rules", "Rules", "Name"),
    "instance profiles": _named("iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
    "instances": _instances,
    "launch templates": _named("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateName"),
    "log groups": _named("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "network interfaces": _named("ec2", "describe_network_interfaces", "NetworkInterfaces", "Description"),
    "placement groups": _named("ec2", "describe_placement_groups", "PlacementGroups", "GroupName"),
    "policies": _named("iam", "list_policies", "Policies", "PolicyName"),
    "roles": _named("iam", "list_roles", "Roles", "RoleName"),
    "security groups": _named("ec2", "describe_security_groups", "SecurityGroups", "GroupName"),
    "state machines": _named("stepfunctions", "list_state_machines", "stateMachines", "name"),
    "topics": _named("sns", "list_topics", "Topics", "TopicArn"),
    "volumes": _named("ec2", "describe_volumes", "Volumes", "VolumeId"),
}


def faults_file(log: Path) -> Path:
    return log.with_name("faults.json")


@contextlib.contextmanager
def started_mock(folder: Path) -> Iterator[MockAws]:
    """moto in a process of its own, so that neither its patches nor its warnings touch the tests."""
    log = folder / "moto.log"
    program = Path(__file__).with_name("moto_plugin.py")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with (
        log.open("a") as stderr,  # appending, so that reset() can empty it
        subprocess.Popen(
            [sys.executable, str(program), str(faults_file(log))],
            env=inherited | CREDENTIALS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, log.read_text()
        try:
            yield MockAws(url=f"http://127.0.0.1:{port}", log=log)
        finally:
            process.stdin.close()
            process.wait(timeout=300)


@contextlib.contextmanager
def attached_provider(binary: Path, environment: dict[str, str], log: Path) -> Iterator[str]:
    """The provider for as long as the tests take: yields what TF_REATTACH_PROVIDERS has to be."""
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [str(binary), "-debug"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"TF_REATTACH_PROVIDERS='(.*)'", line):
                    yield found[1]
                    return
            raise AssertionError(f"the provider did not start: {log.read_text()}")
        finally:
            process.terminate()
            process.wait(timeout=300)


def plan_workspace(folder: Path, example: str, *options: str) -> dict[str, Any]:
    """A real `scav plan`; returns the values that it chose."""
    result = CliRunner().invoke(cli, ["plan", str(EXAMPLES / example), "--out", str(folder), *options])
    assert result.exit_code == 0, result.output
    values: dict[str, Any] = json.loads((folder / "terraform.tfvars.json").read_text())
    return values


def write_values(folder: Path, values: dict[str, Any]) -> None:
    (folder / "terraform.tfvars.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def copy_workspace(planned: Path, folder: Path, values: dict[str, Any], *, override: str = OVERRIDE) -> None:
    shutil.copytree(planned, folder)
    write_values(folder, values)
    (folder / "test_override.tf").write_text(override)
