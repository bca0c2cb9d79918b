"""What AWS does on a bad day, in moto's server: a group gets no instances, S3 refuses to be read.

Switched on by a file, which is read at each call (see MockAws.fault); and scaling activities, which moto has none of.
"""

import functools
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from flask import Response, request
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.core.utils import convert_to_flask_response, utcnow

DENIED = """\
<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::123456789012:user/mock is not authorized to perform: \
{action} on resource: "arn:aws:s3:::{resource}" because no identity-based policy allows the {action} action</Message>\
<RequestId>0123456789ABCDEF</RequestId></Error>"""


def install() -> None:
    replace = FakeAutoScalingGroup.replace_autoscaling_group_instances
    FakeAutoScalingGroup.replace_autoscaling_group_instances = launch_or_fail(replace)
    AutoScalingBackend.notify_terminate_instances = leave_if_suspended(AutoScalingBackend.notify_terminate_instances)
    AutoScalingResponse.describe_scaling_activities = describe_scaling_activities
    convert_to_flask_response.__call__ = deny_reading(convert_to_flask_response.__call__)


def fault(name: str) -> Any:
    """The value of a fault that is switched on, else None. The file is the program's only argument."""
    try:
        return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).get(name)
    except (FileNotFoundError, IndexError):
        return None


# Auto Scaling groups: what launches is an activity, and so is what does not.


def launch_or_fail(launch: Any) -> Any:
    @functools.wraps(launch)
    def launch_if_possible(self: FakeAutoScalingGroup, count_needed: int, tags: dict[str, str]) -> None:
        failing = fault("launch")
        possible = count_needed
        if failing is not None:
            possible = min(count_needed, max(0, failing["after"] - len(self.active_instances())))
        if possible:
            launch(self, possible, tags)
            for state in self.instance_states[-possible:]:
                note_activity(self, f"Launching a new EC2 instance: {state.instance.id}", "Successful")
        if possible < count_needed:
            message = failing["message"].format(instance_type=self.instance_type, zone=self.availability_zones[0])
            description = f"Launching a new EC2 instance.  Status Reason: {message}"
            note_activity(self, description, "Failed", StatusMessage=message)

    return launch_if_possible


def note_activity(group: FakeAutoScalingGroup, description: str, code: str, **more: str) -> None:
    now = utcnow()
    cause = f"At {now:%Y-%m-%dT%H:%M:%SZ} an instance was started in response to a difference between desired and "
    activity = {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": group.name,
        "Description": description,
        "Cause": f"{cause}actual capacity, increasing the capacity from 0 to {group.desired_capacity}.",
        "StartTime": now,
        "EndTime": now,
        "StatusCode": code,
        "Progress": 100,
        "Details": json.dumps({"Availability Zone": group.availability_zones[0]}),
        **more,
    }
    activities(group).insert(0, activity)


def activities(group: FakeAutoScalingGroup) -> list[dict[str, Any]]:
    """Newest first, as AWS has them; kept in the group."""
    noted: list[dict[str, Any]] = group.__dict__.setdefault("activities", [])
    return noted


def describe_scaling_activities(self: AutoScalingResponse) -> ActionResult:
    name = self._get_param("AutoScalingGroupName")
    groups = [group for group in self.autoscaling_backend.autoscaling_groups.values() if name in (None, group.name)]
    for group in groups:  # AWS tries again and again; here, when somebody looks
        if activities(group) and activities(group)[0]["StatusCode"] == "Failed" and fault("launch") is None:
            group.set_desired_capacity(group.desired_capacity)
    return ActionResult({"Activities": [activity for group in groups for activity in activities(group)]})


def leave_if_suspended(replace: Any) -> Any:
    """moto replaces what is terminated even where the group was told not to."""

    @functools.wraps(replace)
    def replace_unless_suspended(self: AutoScalingBackend, instance_ids: list[str]) -> None:
        for group in self.autoscaling_groups.values():
            if "ReplaceUnhealthy" in group._suspended_processes:
                group.instance_states = [one for one in group.instance_states if one.instance.id not in instance_ids]
        replace(self, instance_ids)

    return replace_unless_suspended


# S3: objects and lists of them are refused to all but Terraform and the nodes (which have a key of their own).


def deny_reading(answer: Any) -> Any:
    @functools.wraps(answer)
    def answer_or_deny(*args: Any, **kwargs: Any) -> Any:
        if not (request.method in ("GET", "HEAD") and is_other_caller() and fault("s3_denied")):
            return answer(*args, **kwargs)
        bucket, _, key = request.path.strip("/").partition("/")
        lists = "list-type" in request.args or "prefix" in request.args
        if not bucket or not (key or lists):
            return answer(*args, **kwargs)
        text = DENIED.format(
            action="s3:ListBucket" if lists else "s3:GetObject", resource=bucket if lists else f"{bucket}/{key}"
        )
        return Response(text, 403, content_type="application/xml")

    return answer_or_deny


def is_other_caller() -> bool:
    signed = request.headers.get("Authorization", "")
    is_terraform = "terraform" in request.headers.get("User-Agent", "").lower()
    return "/s3/" in signed and "Credential=node/" not in signed and not is_terraform
