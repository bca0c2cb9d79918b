"""`scav permissions`: every call that Terraform makes from plan to destroy is in the policy, and nothing else is in it.

The calls are recorded where real Terraform meets the mock AWS. What no call shows is listed with its reason.
That an ARN or a condition is AWS's own cannot be shown here: moto evaluates neither for most calls.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable
from typing import Any

import pytest
from mock_aws import OVERRIDE, plan_workspace, write_values

RUN_ID = "digits-cnn-1"
# Where a call's name is not its permission's, and where a REST call has none.
SETTINGS = {
    "accelerate": "AccelerateConfiguration",
    "acl": "BucketAcl",
    "cors": "BucketCORS",
    "encryption": "EncryptionConfiguration",
    "lifecycle": "LifecycleConfiguration",
    "logging": "BucketLogging",
    "object-lock": "BucketObjectLockConfiguration",
    "ownershipControls": "BucketOwnershipControls",
    "policy": "BucketPolicy",
    "publicAccessBlock": "BucketPublicAccessBlock",
    "replication": "ReplicationConfiguration",
    "requestPayment": "BucketRequestPayment",
    "tagging": "BucketTagging",
    "versioning": "BucketVersioning",
    "website": "BucketWebsite",
}
BUDGETS = {
    **dict.fromkeys(("CreateBudget", "CreateNotification", "DeleteBudget", "UpdateBudget"), "ModifyBudget"),
    **dict.fromkeys(
        ("DescribeBudget", "DescribeNotificationsForBudget", "DescribeSubscribersForNotification"), "ViewBudget"
    ),
}
SCHEDULER = {"GET": "GetSchedule", "POST": "CreateSchedule", "PUT": "UpdateSchedule", "DELETE": "DeleteSchedule"}
NOT_SEEN = {
    "what AWS asks for beside the call itself": {
        *("iam:PassRole", "iam:CreateServiceLinkedRole", "ec2:RunInstances"),
    },
    "this run has no placement group, and the tests' workspaces no lifecycle rules": {
        *("ec2:CreatePlacementGroup", "ec2:DeletePlacementGroup", "ec2:DescribePlacementGroups"),
        "s3:PutLifecycleConfiguration",
    },
    "`scav adopt` looks for what a killed apply made": {"s3:ListAllMyBuckets", "states:ListStateMachines"},
    "a later plan may change or drop it": {
        *("autoscaling:DeleteTags", "autoscaling:DisableMetricsCollection", "autoscaling:ResumeProcesses"),
        *("budgets:UntagResource", "cloudwatch:UntagResource", "ec2:DeleteLaunchTemplateVersions", "ec2:DeleteTags"),
        *("ec2:ModifySecurityGroupRules", "events:UntagResource", "iam:UntagInstanceProfile", "iam:UntagRole"),
        *("iam:UpdateRole", "logs:UntagResource", "scheduler:UpdateSchedule", "states:UntagResource"),
        "states:UpdateStateMachine",
    },
    "nodes that are still there when the group goes, and why any came or went": {
        *("autoscaling:DescribeScalingActivities", "autoscaling:SetDesiredCapacity"),
    },
    "logs of a probe go with it": {"logs:DeleteLogGroup"},
}


def permission(call: dict[str, Any]) -> str:
    service, operation = {"monitoring": "cloudwatch"}.get(call["service"], call["service"]), call["operation"]
    if service == "budgets":
        operation = BUDGETS.get(operation, operation)
    elif service == "scheduler":
        operation = SCHEDULER[call["method"]]
    elif service == "s3":
        operation = s3_permission(call)
    return f"{service}:{operation}"


def s3_permission(call: dict[str, Any]) -> str:
    method, is_object = call["method"], call["path"].strip("/").count("/") > 0
    setting = next((name for name in call["query"] if name in SETTINGS), None)
    if is_object:
        verb = {"HEAD": "Get", "GET": "Get", "PUT": "Put", "DELETE": "Delete"}[method]
        return f"{verb}Object{'Tagging' if setting else ''}{'Version' if 'versionId' in call['query'] else ''}"
    if setting:  # all but a policy are deleted by who may put them
        verb = {"GET": "Get", "PUT": "Put", "DELETE": "Delete" if setting == "policy" else "Put"}[method]
        return verb + SETTINGS[setting]
    if "versions" in call["query"]:
        return "ListBucketVersions"
    return {"HEAD": "ListBucket", "GET": "ListBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}[method]


def permissions(calls: Iterable[dict[str, Any]]) -> set[str]:
    return {permission(call) for call in calls} - {"sts:GetCallerIdentity"}  # nobody can be denied that


def actions(policy: dict[str, Any]) -> set[str]:
    return {action for statement in policy["Statement"] for action in statement["Action"]}


@pytest.fixture
def printed(run_scav, tmp_path):
    def policy(*options: str) -> dict[str, Any]:
        result = run_scav("permissions", tmp_path / "w", *options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return policy


@pytest.mark.slow
def test_terraform_does_what_the_policy_says_and_nothing_else(attached_terraform, mock_aws, printed, tmp_path):
    values = plan_workspace(tmp_path / "w", "digits-cnn", "--spot", "always", "--on-demand-fallback", "--nodes", "2")
    folder = tmp_path / "w"
    values |= {"tags": {"team": "vision"}, "budget_emails": ["team@example.com"]}
    write_values(folder, values)
    (folder / "test_override.tf").write_text(OVERRIDE)
    mock_aws.connect_default_vpc()
    asked: dict[str, set[str]] = {}

    def terraform(*words: str) -> None:
        before = len(mock_aws.calls())
        done = attached_terraform.run(*words, "-no-color", "-input=false", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        asked.setdefault(words[0], set()).update(permissions(mock_aws.calls()[before:]))

    terraform("init")
    terraform("plan", "-lock=false")
    terraform("apply", "-auto-approve")
    terraform("plan", "-lock=false")
    write_values(folder, values | {"tags": {"team": "speech"}, "budget_usd": 9.0})
    terraform("apply", "-auto-approve")
    terraform("destroy", "-auto-approve")

    whole, reading = actions(printed()), actions(printed("--read-only"))
    every = set().union(*asked.values())
    assert every - whole == set()
    assert whole - every == set().union(*NOT_SEEN.values())
    assert asked["plan"] - reading == set()
    # Nothing that changes anything, and nothing that only an apply would ask.
    assert reading - asked["plan"] <= {
        *("autoscaling:DescribeScalingActivities", "ec2:DescribeNetworkInterfaces", "ec2:DescribePlacementGroups"),
        *("iam:ListInstanceProfilesForRole", "states:ListStateMachines"),
    }


def test_a_policy_names_this_jobs_runs_or_a_tag(printed, tmp_path):
    """Only what lists and describes goes further; and a role of AWS's own, which is made once in an account."""
    plan_workspace(tmp_path / "w", "digits-cnn")
    for statement in printed("--state", "s3://states/scav/digits/terraform.tfstate")["Statement"]:
        named = all("digits-cnn-" in arn or "states" in arn for arn in statement["Resource"])
        tagged = any(":LaunchTemplate" in key or "managed-by" in key for key in conditions(statement))
        verbs = {action.split(":")[1] for action in statement["Action"]}
        looks = all(verb.startswith(("Describe", "Get", "List", "Validate")) for verb in verbs)
        narrow = statement["Sid"] in ("RolesOfAws", "TagWhatIsMade", "InTheVpc")
        assert named or tagged or looks or narrow, statement
        assert not any("*" in action for action in statement["Action"])
    assert conditions(statement_of(printed(), "RolesOfAws")) == {"iam:AWSServiceName"}
    assert conditions(statement_of(printed(), "TagWhatIsMade")) == {"ec2:CreateAction"}
    assert statement_of(printed(), "InTheVpc")["Action"] == ["ec2:CreateSecurityGroup"]


def test_a_policy_fits_into_a_role(printed, tmp_path):
    """Inline policies of a role may have 10,240 characters, without blanks."""
    plan_workspace(tmp_path / "w", "digits-cnn")
    for options in ((), ("--state", "s3://states/scav/digits/terraform.tfstate"), ("--read-only",)):
        policy = printed(*options)
        assert len(json.dumps(policy, separators=(",", ":"))) <= 10240
        sids = [statement["Sid"] for statement in policy["Statement"]]
        assert len(set(sids)) == len(sids)
        assert all(sid.isalnum() for sid in sids)


def test_a_role_that_reads_may_neither_change_nor_hand_over(printed, tmp_path):
    plan_workspace(tmp_path / "w", "digits-cnn")
    policy = printed("--read-only", "--state", "s3://states/scav/digits/terraform.tfstate")
    verbs = {action.split(":")[1] for action in actions(policy)}
    assert not [verb for verb in verbs if not verb.startswith(("Describe", "Get", "List", "Validate", "View"))]
    assert actions(policy) < actions(printed("--state", "s3://states/scav/digits/terraform.tfstate"))


def test_names_of_the_runs_match_and_those_of_other_jobs_do_not(printed, tmp_path):
    plan_workspace(tmp_path / "w", "digits-cnn")
    (arn,) = statement_of(printed(), "Autoscaling")["Resource"]
    group = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:0-0-0:autoScalingGroupName/scav-{}"
    assert fnmatch.fnmatchcase(group.format(RUN_ID), arn)
    assert fnmatch.fnmatchcase(group.format(f"{RUN_ID}-on-demand"), arn)
    assert not fnmatch.fnmatchcase(group.format("digits-cn-1"), arn)


@pytest.mark.parametrize("place", ["states/key", "s3://states", "s3://states/k*", "s3://states/${aws:username}"])
def test_a_place_of_the_state_is_one_object(run_scav, tmp_path, place):
    plan_workspace(tmp_path / "w", "digits-cnn")
    result = run_scav("permissions", tmp_path / "w", "--state", place)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--state" in result.stderr


def statement_of(policy: dict[str, Any], sid: str) -> dict[str, Any]:
    return next(statement for statement in policy["Statement"] if statement["Sid"] == sid)


def conditions(statement: dict[str, Any]) -> set[str]:
    return {key for keys in statement.get("Condition", {}).values() for key in keys}
