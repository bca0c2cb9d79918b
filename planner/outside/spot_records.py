"""What AWS tells of spot capacity without renting any: placement scores, prices, and the account's own activities.

Every call is read-only and free. A dry run of a launch says nothing about capacity, so none is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from planner.errors import AwsFailed
from planner.inputs import Kind, Observation
from planner.outside.aws import aws_errors, fetch_spot_prices, fetch_zone_ids

Place = tuple[str, str]  # instance type and zone ID
_LAUNCHING, _TERMINATING = "Launching a new EC2 instance", "Terminating EC2 instance"
_NO_CAPACITY = ("no spot capacity", "insufficientinstancecapacity", "unfulfillablecapacity", "sufficient capacity")
_INTERRUPTED = ("spot instance interruption", "spot interruption", "rebalance recommendation", "ec2 health check")


class Noted(NamedTuple):
    place: Place
    observation: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the files hold already: activities that are not noted twice, and nodes that AWS may have forgotten."""

    activities: Collection[str] = ()
    instances: Mapping[str, Place] = field(default_factory=dict)


def fetch_observations(
    clients: Callable[[str], Any], region: str, names: Sequence[str], *, nodes: int, now: datetime, known: Known
) -> tuple[list[Noted], list[str]]:
    """Of one region, and what could not be had: one answer that is refused does not lose the others."""
    ec2, found, warnings = clients("ec2"), [], []
    with aws_errors(region):
        zone_ids = fetch_zone_ids(ec2)
    parts: dict[str, Callable[[], Iterator[Noted]]] = {
        "scores": lambda: _scores(ec2, region, names, nodes, now),
        "prices": lambda: _prices(ec2, names, zone_ids, now),
        "activities": lambda: _activities(ec2, clients("autoscaling"), set(names), zone_ids, now, known),
    }
    for name, part in parts.items():
        try:
            with aws_errors(region):
                found += list(part())
        except AwsFailed as error:
            warnings.append(f"no {name} of {region}: {error}")
    return found, warnings


def _scores(ec2: Any, region: str, names: Sequence[str], nodes: int, now: datetime) -> Iterator[Noted]:
    for name in names:
        answer = ec2.get_spot_placement_scores(
            InstanceTypes=[name], TargetCapacity=nodes, SingleAvailabilityZone=True, RegionNames=[region]
        )
        for row in answer["SpotPlacementScores"]:
            score = Observation(noted=now, kind="score", value=row["Score"], nodes=nodes)
            yield Noted((name, row["AvailabilityZoneId"]), score)


def _prices(ec2: Any, names: Sequence[str], zone_ids: dict[str, str], now: datetime) -> Iterator[Noted]:
    prices = fetch_spot_prices(ec2, list(names), zone_ids, date=now.date())
    for place, usd in sorted(prices.items()):
        yield Noted(place, Observation(noted=now, kind="price", value=usd))


def _activities(
    ec2: Any, scaling: Any, names: set[str], zone_ids: Mapping[str, str], now: datetime, known: Known
) -> Iterator[Noted]:
    """Of groups that rent spot nodes. Which nodes are spot, and where, is asked of the nodes themselves."""
    nodes = dict(known.instances) | _spot_instances(ec2, zone_ids)
    for group in _spot_groups(scaling):
        pages = scaling.get_paginator("describe_scaling_activities").paginate(
            AutoScalingGroupName=group["AutoScalingGroupName"]
        )
        rows = [row for page in pages for row in page["Activities"] if row["ActivityId"] not in known.activities]
        for row in sorted(rows, key=lambda row: (row["StartTime"], row["ActivityId"])):
            kind, instance = _meaning(row)
            place = _refused_at(row, group, zone_ids) if kind == "refused" else nodes.get(instance)
            if kind is None or place is None or place[0] not in names:
                continue
            observation = Observation(
                noted=now,
                kind=kind,
                happened=min(row["StartTime"], now),
                activity=row["ActivityId"],
                instance=instance or None,
            )
            yield Noted(place, observation)


def _refused_at(row: Mapping[str, Any], group: Mapping[str, Any], zone_ids: Mapping[str, str]) -> Place | None:
    """There is no node to ask: the zone is in the activity's details, the type the first that the group asks for."""
    zone = zone_ids.get(json.loads(row.get("Details") or "{}").get("Availability Zone", ""))
    overrides = group["MixedInstancesPolicy"].get("LaunchTemplate", {}).get("Overrides", [])
    names = [override["InstanceType"] for override in overrides if "InstanceType" in override]
    return (names[0], zone) if names and zone else None


def _spot_instances(ec2: Any, zone_ids: Mapping[str, str]) -> dict[str, Place]:
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": "instance-lifecycle", "Values": ["spot"]},
            {"Name": "tag-key", "Values": ["aws:autoscaling:groupName"]},
        ]
    )
    rows = [row for page in pages for kept in page["Reservations"] for row in kept["Instances"]]
    zones = ((row, zone_ids.get(row["Placement"]["AvailabilityZone"])) for row in rows)
    return {row["InstanceId"]: (row["InstanceType"], zone) for row, zone in zones if zone}


def _spot_groups(scaling: Any) -> list[dict[str, Any]]:
    pages = scaling.get_paginator("describe_auto_scaling_groups").paginate()
    groups = [group for page in pages for group in page["AutoScalingGroups"]]
    return [group for group in groups if "MixedInstancesPolicy" in group]


def _meaning(row: Mapping[str, Any]) -> tuple[Kind | None, str]:
    """What an activity says of capacity, and of which node; nothing while it is under way."""
    description, said = row.get("Description", ""), row.get("StatusMessage", "").lower()
    instance = description.rpartition(": ")[2].split(" ")[0] if ": " in description else ""
    if description.startswith(_LAUNCHING):
        if row["StatusCode"] == "Successful":
            return "launched", instance
        refused = row["StatusCode"] in ("Failed", "Cancelled") and any(word in said for word in _NO_CAPACITY)
        return ("refused" if refused else None), ""
    if description.startswith(_TERMINATING):
        cause = row.get("Cause", "").lower()
        return ("taken_back" if any(word in cause for word in _INTERRUPTED) else "ended"), instance
    return None, ""
