"""What whoever plans or applies a workspace may do in AWS: an IAM policy of the calls that Terraform makes, no others.

It is for every run of the job: whatever has a name is named scav-JOB-..., and what EC2 names by an ID carries the tag
`managed-by = scav`. Calls that only list or describe have no resource that they could be held to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from planner.errors import InputError
from planner.plan.schema import Plan

Statement = dict[str, Any]

# AWS knows no narrower resource for these.
_DESCRIBE = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeScheduledActions",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeManagedPrefixLists",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroupRules",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ec2:GetInstanceUefiData",
    "ec2:GetManagedPrefixListEntries",
    "servicequotas:GetAWSDefaultServiceQuota",
    "servicequotas:GetServiceQuota",
    "states:ListStateMachines",
    "states:ValidateStateMachineDefinition",
)
_BUCKET_SETTINGS = (
    *("BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock", "BucketTagging", "BucketVersioning"),
    *("EncryptionConfiguration", "LifecycleConfiguration"),
)
_BUCKET_FACTS = (
    *("AccelerateConfiguration", "BucketAcl", "BucketCORS", "BucketLogging"),
    *("BucketObjectLockConfiguration", "BucketRequestPayment", "BucketWebsite", "ReplicationConfiguration"),
)
_OF_PROFILES = (
    *("AddRoleToInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile"),
    *("RemoveRoleFromInstanceProfile", "TagInstanceProfile", "UntagInstanceProfile"),
)
_CHANGES = (
    *("CreateLaunchTemplateVersion", "DeleteLaunchTemplate", "DeleteLaunchTemplateVersions", "ModifyLaunchTemplate"),
    *("DeletePlacementGroup", "DeleteSecurityGroup", "ModifySecurityGroupRules", "CreateTags", "DeleteTags"),
    *("AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress"),
    *("RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress"),
)
# Service of IAM, what it is named as, what reads it, what else builds and removes it.
_NAMED = (
    (
        "autoscaling",
        ("autoScalingGroup:*:autoScalingGroupName/{name}",),
        (),
        (
            *("CreateAutoScalingGroup", "CreateOrUpdateTags", "DeleteAutoScalingGroup", "DeleteScheduledAction"),
            *("DeleteTags", "EnableMetricsCollection", "DisableMetricsCollection", "PutScheduledUpdateGroupAction"),
            *("ResumeProcesses", "SetDesiredCapacity", "SuspendProcesses", "UpdateAutoScalingGroup"),
        ),
    ),
    (
        "cloudwatch",
        ("alarm:{name}",),
        ("DescribeAlarms", "ListTagsForResource"),
        ("DeleteAlarms", "PutMetricAlarm", "TagResource", "UntagResource"),
    ),
    (
        "events",
        ("rule/{name}",),
        ("DescribeRule", "ListTagsForResource", "ListTargetsByRule"),
        ("DeleteRule", "PutRule", "PutTargets", "RemoveTargets", "TagResource", "UntagResource"),
    ),
    (
        "states",
        ("stateMachine:{name}",),
        ("DescribeStateMachine", "ListStateMachineVersions", "ListTagsForResource"),
        ("CreateStateMachine", "DeleteStateMachine", "TagResource", "UntagResource", "UpdateStateMachine"),
    ),
    (
        "scheduler",
        ("schedule/default/{name}",),
        ("GetSchedule",),
        ("CreateSchedule", "DeleteSchedule", "UpdateSchedule"),
    ),
)


def iam_policy(plan: Plan, *, read_only: bool = False, state: str | None = None) -> dict[str, Any]:
    """`read_only`: for plans. `state`: s3://BUCKET/KEY of Terraform's backend, with its lock file."""
    names = _Names(plan)
    statements = [
        {"Sid": "Describe", "Effect": "Allow", "Action": list(_DESCRIBE), "Resource": ["*"]},
        *_named(names, read_only=read_only),
        *_roles(names, read_only=read_only),
        *_budgets(names, read_only=read_only),
        *_logs(names, read_only=read_only),
        *_bucket(plan, names, read_only=read_only),
        *_images(plan, names),
        *(() if read_only else (*_by_tag(names), *_nodes(names))),
        *(_state(names, state, read_only=read_only) if state else ()),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


class _Names:
    """ARNs of what this job's runs are made of, in any account."""

    def __init__(self, plan: Plan) -> None:
        self.region = plan.choice.region
        special = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
        self.partition = next((name for start, name in special.items() if self.region.startswith(start)), "aws")
        self.job = plan.job
        self.name = f"scav-{plan.job}-*"

    def arn(self, service: str, resource: str, *, anywhere: bool = False) -> str:
        region = "" if anywhere else self.region
        return f"arn:{self.partition}:{service}:{region}:*:{resource.replace('{name}', self.name)}"

    def s3(self, path: str) -> str:
        return f"arn:{self.partition}:s3:::{path}"


def _statement(sid: str, service: str, actions: tuple[str, ...], resources: list[str], **condition: Any) -> Statement:
    found = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(f"{service}:{action}" for action in actions),
        "Resource": resources,
    }
    return found | ({"Condition": condition} if condition else {})


def _named(names: _Names, *, read_only: bool) -> Iterator[Statement]:
    for service, resources, reads, writes in _NAMED:
        actions = reads if read_only else (*reads, *writes)
        if actions:
            yield _statement(service.title(), service, actions, [names.arn(service, each) for each in resources])


def _roles(names: _Names, *, read_only: bool) -> Iterator[Statement]:
    """A role is handed over to those services alone that the module hands it to."""
    roles = [names.arn("iam", "role/{name}", anywhere=True)]
    profiles = [names.arn("iam", "instance-profile/{name}", anywhere=True)]
    reads = ("GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListInstanceProfilesForRole", "ListRolePolicies")
    yield _statement("ReadRoles", "iam", reads, roles)
    yield _statement("ReadInstanceProfiles", "iam", ("GetInstanceProfile",), profiles)
    if read_only:
        return
    writes = ("CreateRole", "DeleteRole", "DeleteRolePolicy", "PutRolePolicy", "TagRole", "UntagRole", "UpdateRole")
    yield _statement("Roles", "iam", writes, roles)
    managed = f"arn:{names.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
    yield _statement(
        "SessionManager",
        "iam",
        ("AttachRolePolicy", "DetachRolePolicy"),
        roles,
        ArnEquals={"iam:PolicyARN": [managed]},
    )
    yield _statement("InstanceProfiles", "iam", _OF_PROFILES, profiles)
    domain = "amazonaws.com.cn" if names.partition == "aws-cn" else "amazonaws.com"
    services = [f"ec2.{domain}", *(f"{service}.amazonaws.com" for service in ("events", "scheduler", "states"))]
    yield _statement("HandRolesOver", "iam", ("PassRole",), roles, StringEquals={"iam:PassedToService": services})
    # Once in an account: the roles by which Auto Scaling starts nodes, and EC2 spot nodes.
    linked = [f"arn:{names.partition}:iam::*:role/aws-service-role/*"]
    owners = ["autoscaling.amazonaws.com", "spot.amazonaws.com"]
    yield _statement(
        "RolesOfAws", "iam", ("CreateServiceLinkedRole",), linked, StringEquals={"iam:AWSServiceName": owners}
    )


def _budgets(names: _Names, *, read_only: bool) -> Iterator[Statement]:
    writes = () if read_only else ("ModifyBudget", "TagResource", "UntagResource")
    budgets = [names.arn("budgets", "budget/{name}", anywhere=True)]
    yield _statement("Budgets", "budgets", ("ListTagsForResource", "ViewBudget", *writes), budgets)


def _logs(names: _Names, *, read_only: bool) -> Iterator[Statement]:
    """The group is named as the run is; with an asterisk, which some calls write after it."""
    yield _statement("FindLogs", "logs", ("DescribeLogGroups",), [names.arn("logs", "log-group:*")])
    group = names.arn("logs", f"log-group:/scav/{names.job}-*")
    writes = ("CreateLogGroup", "DeleteLogGroup", "PutRetentionPolicy", "TagResource", "UntagResource")
    yield _statement("Logs", "logs", ("ListTagsForResource", *(() if read_only else writes)), [group])


def _bucket(plan: Plan, names: _Names, *, read_only: bool) -> Iterator[Statement]:
    """A bucket that is given keeps its settings; what belongs to the run is put there."""
    given = plan.run.checkpoint_bucket
    bucket = given or names.name
    if given is None:
        reads = (*(f"Get{setting}" for setting in (*_BUCKET_SETTINGS, *_BUCKET_FACTS)), "ListBucket")
        own = ("CreateBucket", "DeleteBucket", "DeleteBucketPolicy", "ListBucketVersions")
        writes = () if read_only else (*own, *(f"Put{setting}" for setting in _BUCKET_SETTINGS))
        yield _statement("Bucket", "s3", (*reads, *writes), [names.s3(bucket)])
        if not read_only:
            yield _statement("FindBucket", "s3", ("ListAllMyBuckets",), ["*"])
    without_versions = ("DeleteObject",) if given else ()
    writes = () if read_only else (*without_versions, "DeleteObjectVersion", "PutObject", "PutObjectTagging")
    what = [names.s3(f"{bucket}/{names.job}-*/{folder}/*") for folder in ("source", "policy")]
    yield _statement("SourceAndPolicy", "s3", ("GetObject", "GetObjectTagging", *writes), what)
    if given is not None and not read_only:
        yield _statement("ListVersions", "s3", ("ListBucketVersions",), [names.s3(bucket)])


def _images(plan: Plan, names: _Names) -> Iterator[Statement]:
    """AWS's own, where the job names none."""
    if plan.run.ami is None:
        parameter = f"arn:{names.partition}:ssm:{names.region}::parameter/aws/service/deeplearning/*"
        yield _statement("MachineImage", "ssm", ("GetParameter",), [parameter])
    if plan.run.image is None:
        images = [names.arn("ecr", "repository/*")]
        yield _statement("ContainerImage", "ecr", ("DescribeImages", "DescribeRepositories"), images)


def _by_tag(names: _Names) -> Iterator[Statement]:
    """Templates, security groups and placement groups: made with scav's tag, and changed only with it."""
    kinds = [names.arn("ec2", f"{kind}/*") for kind in ("launch-template", "placement-group", "security-group")]
    rules = names.arn("ec2", "security-group-rule/*")
    asked, there = {"aws:RequestTag/managed-by": "scav"}, {"aws:ResourceTag/managed-by": "scav"}
    create = ("CreateLaunchTemplate", "CreatePlacementGroup", "CreateSecurityGroup")
    yield _statement("CreateWithTag", "ec2", create, kinds, StringEquals=asked)
    yield _statement("InTheVpc", "ec2", ("CreateSecurityGroup",), [names.arn("ec2", "vpc/*")])
    makers = [*create, "AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress", "RunInstances"]
    made = names.arn("ec2", "*/*")
    yield _statement("TagWhatIsMade", "ec2", ("CreateTags",), [made], StringEquals={"ec2:CreateAction": makers})
    yield _statement("ChangeWithTag", "ec2", _CHANGES, [*kinds, rules], StringEquals=there)
    ruled = ("AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress")
    yield _statement("NewRules", "ec2", ruled, [rules], StringEquals=asked)


def _nodes(names: _Names) -> Iterator[Statement]:
    """Auto Scaling asks whether who makes a group could start its nodes: only from a launch template."""
    kinds = (
        "instance",
        "launch-template",
        "network-interface",
        "placement-group",
        "security-group",
        "subnet",
        "volume",
    )
    what = [names.arn("ec2", f"{kind}/*") for kind in kinds]
    images = f"arn:{names.partition}:ec2:{names.region}::image/*"
    template = {"ec2:LaunchTemplate": names.arn("ec2", "launch-template/*")}
    yield _statement("Nodes", "ec2", ("RunInstances",), [images, *what], ArnLike=template)


_STATE = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<key>[A-Za-z0-9!_.'()/-]{1,900})")


def _state(names: _Names, place: str, *, read_only: bool) -> Iterator[Statement]:
    found = _STATE.fullmatch(place)
    if found is None:
        raise InputError(f"{place} is no place in S3 (s3://bucket/key)", key="--state")
    yield _statement("FindState", "s3", ("ListBucket",), [names.s3(found["bucket"])])
    key = names.s3(f"{found['bucket']}/{found['key']}")
    yield _statement("State", "s3", ("GetObject",) if read_only else ("GetObject", "PutObject"), [key])
    if not read_only:
        yield _statement("Lock", "s3", ("DeleteObject", "GetObject", "PutObject"), [f"{key}.tflock"])
