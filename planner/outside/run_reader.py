"""A run that was applied: what AWS says of it, what it printed, and its end by hand.

The nodes write heartbeats and marks under the run's prefix in S3 and lines to CloudWatch; the group knows its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError, one_line
from planner.outside.aws import Access, aws_errors
from planner.outside.terraform import Workspace
from planner.plan import FAILURE, START, SUCCESS, NodeLife, Plan, Seen

_LAUNCHED, _ENDED = "Launching a new EC2 instance: ", "Terminating EC2 instance: "
_PAGE = 10_000  # the most lines that CloudWatch gives at once


class LogLine(NamedTuple):
    time: float  # seconds since 1970
    stream: str  # INSTANCE/train, or INSTANCE/node
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRun:
    """What Terraform's outputs name."""

    client: Callable[[str], Any]
    region: str
    run_id: str
    bucket: str
    group: str
    fallback_group: str | None = None
    memory_group: str | None
    log_group: str
    checkpoint_uri: str

    def look(self, now: float) -> Seen:
        with aws_errors(self.region):
            objects = self._objects()
            beats = [key for key in objects if key.startswith("heartbeats/")]
            activities = self._activities()
            return Seen(
                now=now,
                capacity=sum(map(self.capacity, self.groups)),
                nodes=_lives(activities, self._instances(), objects, now),
                heartbeats=[beat for key in beats if (beat := self._json(key))],
                marks={name: objects[name] for name in (START, SUCCESS, FAILURE) if name in objects},
                reason=str(self._json(FAILURE).get("reason", "")) if FAILURE in objects else "",
                checkpoints=_below(objects, "checkpoints/"),
                refusals=_refusals(activities),
            )

    @property
    def groups(self) -> list[str]:
        """Of nodes that train."""
        return [self.group, *([self.fallback_group] if self.fallback_group else [])]

    def capacity(self, group: str) -> int:
        """That the group is to have; a group that was destroyed has none."""
        answer = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return sum(int(found["DesiredCapacity"]) for found in answer["AutoScalingGroups"])

    def empty(self, group: str) -> None:
        """And keep it so: with a maximum of 0 nobody can start nodes by setting the capacity alone."""
        with aws_errors(self.region):
            self.client("autoscaling").update_auto_scaling_group(
                AutoScalingGroupName=group, MinSize=0, MaxSize=0, DesiredCapacity=0
            )

    def nodes_of(self, group: str) -> int:
        with aws_errors(self.region):
            return len(self._instances(group))

    def _objects(self) -> dict[str, float]:
        """Name below the run's prefix -> when it was written."""
        prefix = f"{self.run_id}/"
        pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        found = [item for page in pages for item in page.get("Contents", [])]
        return {item["Key"].removeprefix(prefix): item["LastModified"].timestamp() for item in found}

    def _json(self, name: str) -> dict[str, Any]:
        """Empty for what no node of ours wrote."""
        body = self.client("s3").get_object(Bucket=self.bucket, Key=f"{self.run_id}/{name}")["Body"].read()
        try:
            value = json.loads(body.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def _instances(self, group: str | None = None) -> list[dict[str, Any]]:
        filters = [
            {"Name": "tag:aws:autoscaling:groupName", "Values": [group] if group else self.groups},
            {"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping"]},
        ]
        pages = self.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        return [one for page in pages for reservation in page["Reservations"] for one in reservation["Instances"]]

    def _activities(self) -> list[dict[str, Any]]:
        """Newest first. AWS keeps them for six weeks."""
        pages = self.client("autoscaling").get_paginator("describe_scaling_activities")
        each = [pages.paginate(AutoScalingGroupName=group) for group in reversed(self.groups)]
        return [one for found in each for page in found for one in page["Activities"]]


def applied_run(folder: Path, plan: Plan, access: Access) -> AppliedRun:
    outputs = Workspace(folder, environment=access.environment).outputs()
    if "run_id" not in outputs:
        raise InputError("nothing is applied here: `terraform apply` first", file=str(folder))
    values = {name: output.value for name, output in outputs.items()}
    if values["run_id"] != plan.run_id:
        message = f"{values['run_id']} is applied here and {plan.run_id} is planned: `terraform apply` first"
        raise InputError(message, file=str(folder))
    return AppliedRun(
        client=_kept(access.clients(plan.choice.region)),
        region=plan.choice.region,
        run_id=plan.run_id,
        bucket=values["checkpoint_bucket"],
        group=values["autoscaling_group_name"],
        fallback_group=values.get("fallback_autoscaling_group_name"),
        memory_group=values.get("memory_autoscaling_group_name"),
        log_group=values["log_group_name"],
        checkpoint_uri=values["checkpoint_uri"],
    )


def _kept(clients: Callable[[str], Any]) -> Callable[[str], Any]:
    """Making a client reads the whole model of its service, and a watcher asks for years."""
    made: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in made:
            made[service] = clients(service)
        return made[service]

    return client


def _lives(
    activities: Iterable[Mapping[str, Any]],
    instances: Iterable[Mapping[str, Any]],
    objects: Mapping[str, float],
    now: float,
) -> list[NodeLife]:
    """Every node that ever was. What is gone without a word ended with its last heartbeat, at the latest."""
    there = {instance["InstanceId"]: instance for instance in instances}
    began = {name: instance["LaunchTime"].timestamp() for name, instance in there.items()}
    ended: dict[str, float] = {}
    for activity in activities:
        description = str(activity.get("Description", ""))
        for start, times in ((_LAUNCHED, began), (_ENDED, ended)):
            if description.startswith(start) and activity.get("StatusCode") not in ("Failed", "Cancelled"):
                times.setdefault(description.removeprefix(start).split(" ")[0], activity["StartTime"].timestamp())
    beats = {name.removeprefix("heartbeats/").removesuffix(".json"): at for name, at in objects.items()}
    lives = [
        NodeLife(
            instance_id=name,
            began=start,
            ended=None if name in there else min(now, max(start, ended.get(name, beats.get(name, start)))),
            spot=there[name].get("InstanceLifecycle") == "spot" if name in there else None,
        )
        for name, start in began.items()
    ]
    return sorted(lives, key=lambda node: (node.began, node.instance_id))


def _refusals(activities: Iterable[Mapping[str, Any]]) -> list[str]:
    """Since a node was last started."""
    refused = []
    for activity in activities:
        if activity["StatusCode"] == "Successful":
            break
        if activity["StatusCode"] == "Failed":
            refused.append(one_line(str(activity.get("StatusMessage") or activity.get("Description"))))
    return refused


def _below(objects: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): at for name, at in objects.items() if name.startswith(prefix)}


@dataclass(slots=True, kw_only=True)
class LogTail:
    """The last lines of a run's streams, then those that came since."""

    run: AppliedRun
    kind: str  # train or node
    node: str | None = None
    _next: dict[str, str] = field(default_factory=dict)  # stream -> where to go on

    def last(self, count: int) -> list[LogLine]:
        lines = [line for stream in self._streams() for line in self._read(stream, limit=count, startFromHead=False)]
        return sorted(lines)[-count:]

    def since(self) -> list[LogLine]:
        return sorted(line for stream in self._streams() for line in self._more(stream))

    def _more(self, stream: str) -> Iterator[LogLine]:
        while True:
            before = self._next.get(stream)
            where = {"nextToken": before} if before else {}
            yield from self._read(stream, limit=_PAGE, startFromHead=True, **where)
            if self._next[stream] == before:  # CloudWatch says so that there is no more
                return

    def _read(self, stream: str, **how: Any) -> list[LogLine]:
        with aws_errors(self.run.region):
            answer = self.run.client("logs").get_log_events(
                logGroupName=self.run.log_group, logStreamName=stream, **how
            )
        self._next[stream] = answer["nextForwardToken"]
        return [LogLine(event["timestamp"] / 1000, stream, event["message"]) for event in answer["events"]]

    def _streams(self) -> list[str]:
        with aws_errors(self.run.region):
            pages = self.run.client("logs").get_paginator("describe_log_streams")
            found = pages.paginate(logGroupName=self.run.log_group, logStreamNamePrefix=self.node or "i-")
            names = [stream["logStreamName"] for page in found for stream in page["logStreams"]]
        return sorted(name for name in names if name.endswith(f"/{self.kind}"))
