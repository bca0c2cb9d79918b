"""What the module makes of a plan's decisions: in the group, the launch templates and the nodes' settings."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.inputs import GP3_MIBPS
from planner.plan.check.comparison import ABSENT, Json
from planner.plan.schema import Plan

MODULE_ADDRESS = "module.gpu_cluster"
GROUP = "aws_autoscaling_group.nodes"
TEMPLATE = "aws_launch_template.node"
STOP = "aws_autoscaling_schedule.stop"
MEMORY_GROUP = "aws_autoscaling_group.memory"
FALLBACK_GROUP = "aws_autoscaling_group.fallback"
MEMORY_TEMPLATE = "aws_launch_template.memory"
UNKNOWN = "known after apply"
_MOST_USER_DATA_BYTES = 1 << 20  # once unpacked; AWS takes 16 KiB
_SETTINGS_BEGIN, _SETTINGS_END = b"<<'SCAV_RUN'\n", b"\nSCAV_RUN\n"

Fact = tuple[str, Any, Any]


def plan_facts(plan: Plan, expected: Json, resources: Resources, settings: Sequence[Json | None]) -> list[Fact]:
    """Each with what it should be and what it is."""
    return [
        *_group_facts(plan, resources),
        *_memory_facts(plan, expected, resources),
        *_fallback_facts(plan, expected, resources),
        *_stop_facts(resources),
        *_template_facts(expected, resources),
        *_settings_facts(expected, settings),
    ]


class Resources:
    """The planned resources of the module, by `type.name`."""

    def __init__(self, terraform_plan: Json):
        self.changes = [
            change
            for change in terraform_plan["resource_changes"]
            if change.get("module_address") == MODULE_ADDRESS and change["change"].get("after") is not None
        ]
        self._zones = {
            resource["values"].get("id"): resource["values"].get("availability_zone_id")
            for resource in _state_resources(terraform_plan.get("prior_state", {}))
            if resource["type"] == "aws_subnet"
        }

    def named(self, name: str) -> list[Json]:
        return [change for change in self.changes if f"{change['type']}.{change['name']}" == name]

    def zones(self, subnets: object) -> list[str]:
        return sorted({str(self._zones.get(subnet, f"of {subnet}")) for subnet in _list(subnets)})

    def node_settings(self) -> Iterator[Json | None]:
        """What the user data of each launch template gives to its nodes, if known; None where unreadable."""
        for change in self.named(TEMPLATE):
            if "user_data" in change["change"]["after"]:  # Terraform leaves out what it will know after apply
                yield _settings_in(change["change"]["after"]["user_data"])


def _group_facts(plan: Plan, resources: Resources) -> Iterator[Fact]:
    choice, groups = plan.choice, resources.named(GROUP)
    yield "auto scaling groups", 1, len(groups)
    for change in groups:
        after, new = change["change"]["after"], "create" in change["change"]["actions"]
        policy = _first(after.get("mixed_instances_policy"))
        split = _first(policy.get("instances_distribution"))
        overrides = _list(_first(policy.get("launch_template")).get("override"))
        yield "group name", f"scav-{plan.run_id}", after.get("name", UNKNOWN)
        yield "nodes at most", choice.node_count, after.get("max_size", UNKNOWN)
        yield "nodes at least", 0, after.get("min_size", UNKNOWN)
        if new:  # later the run itself scales to 0, and Terraform leaves that alone
            yield "nodes at start", choice.node_count, after.get("desired_capacity", UNKNOWN)
        yield "on-demand base", choice.on_demand_count, split.get("on_demand_base_capacity", UNKNOWN)
        share = 100 if choice.on_demand_count == choice.node_count else 0
        yield "on-demand % above base", share, split.get("on_demand_percentage_above_base_capacity", UNKNOWN)
        yield "highest spot price", "on-demand", split.get("spot_max_price") or "on-demand"
        yield "types in order", [choice.instance_type, *choice.overrides], [_override(item) for item in overrides]
        yield "placement group", choice.placement_group, bool(after.get("placement_group"))
        zones = resources.zones(after.get("vpc_zone_identifier"))
        allowed = [choice.availability_zone, *choice.other_zones]
        yield "zone of the subnets", zones if zones and set(zones) <= set(allowed) else allowed, zones


def _memory_facts(plan: Plan, expected: Json, resources: Resources) -> Iterator[Fact]:
    """Of the checkpoint tier; without one, its group is unasked for."""
    tier = plan.choice.checkpoint_tier
    if tier is None:
        return
    groups, templates = resources.named(MEMORY_GROUP), resources.named(MEMORY_TEMPLATE)
    yield "groups of memory nodes", 1, len(groups)
    yield "types of memory nodes", [tier.instance_type], [_after(change).get("instance_type") for change in templates]
    for change in groups:
        after = _after(change)
        yield "name of the memory group", f"scav-{plan.run_id}-memory", after.get("name", UNKNOWN)
        yield "memory nodes at most", tier.node_count, after.get("max_size", UNKNOWN)
        yield "memory nodes at least", 0, after.get("min_size", UNKNOWN)
        if "create" in change["change"]["actions"]:
            yield "memory nodes at start", tier.node_count, after.get("desired_capacity", UNKNOWN)
        yield (
            "zone of the memory nodes",
            [plan.choice.availability_zone],
            resources.zones(after.get("vpc_zone_identifier")),
        )
    for change in templates:
        volumes = [f"gp3 {expected['root_volume_gib']} GiB"]
        yield "volumes of memory nodes", volumes, list(_volumes(_after(change)))
        if "ami_id" in expected:
            yield "machine image of memory nodes", expected["ami_id"], _after(change).get("image_id", UNKNOWN)


def _fallback_facts(plan: Plan, expected: Json, resources: Resources) -> Iterator[Fact]:
    """Of on-demand nodes that may take over; without a policy their group is unasked for."""
    if "policy_file" not in expected:
        return
    groups = resources.named(FALLBACK_GROUP)
    yield "groups of on-demand nodes", 1, len(groups)
    for change in groups:
        after = _after(change)
        yield "name of the on-demand group", f"scav-{plan.run_id}-on-demand", after.get("name", UNKNOWN)
        yield "on-demand nodes at most", plan.choice.node_count, after.get("max_size", UNKNOWN)
        yield "on-demand nodes at least", 0, after.get("min_size", UNKNOWN)
        if "create" in change["change"]["actions"]:
            yield "on-demand nodes at start", 0, after.get("desired_capacity", UNKNOWN)
        zones = resources.zones(after.get("vpc_zone_identifier"))
        allowed = [plan.choice.availability_zone, *plan.choice.other_zones]
        yield "zone of the on-demand nodes", zones if zones and set(zones) <= set(allowed) else allowed, zones


def _stop_facts(resources: Resources) -> Iterator[Fact]:
    """What stops a run whose nodes do not."""
    for change in resources.named(STOP):
        after = change["change"]["after"]
        yield "nodes after the stop", [0, 0], [after.get("min_size"), after.get("desired_capacity")]


def _template_facts(expected: Json, resources: Resources) -> Iterator[Fact]:
    types = [expected["instance_type"], *expected["instance_type_overrides"]]
    templates = resources.named(TEMPLATE)
    yield "launch templates", sorted(types), sorted(str(change.get("index")) for change in templates)
    for change in templates:
        name, after = change.get("index"), change["change"]["after"]
        yield f"type of template {name}", name, after.get("instance_type", UNKNOWN)
        volumes = [
            f"gp3 {expected['root_volume_gib']} GiB{_pace(expected.get('root_volume_mibps'))}",
            *(f"gp3 of {snapshot}" for snapshot in _snapshots(expected)),
        ]
        yield f"volumes of {name}", volumes, list(_volumes(after))
        if "ami_id" in expected:
            yield f"machine image of {name}", expected["ami_id"], after.get("image_id", UNKNOWN)


def _settings_facts(expected: Json, settings: Sequence[Json | None]) -> Iterator[Fact]:
    """The same in every template, so each is named once."""
    names = {
        "run_id": "run_id",
        "region": "region",
        "node_count": "node_count",
        "gpus_per_node": "gpus_per_node",
        "image": "container_image",
        "command": "container_command",
        "max_runtime_seconds": "max_runtime_seconds",
    }
    for node in settings:
        yield "user data of the nodes", "readable", "readable" if node is not None else "not readable"
        for setting, variable in names.items():
            if variable in expected and node is not None:
                yield f"{setting} on the nodes", expected[variable], node.get(setting, ABSENT)
        if "strategy" in expected and node is not None:
            yield "strategy on the nodes", expected["strategy"], _strategy_in(node)


def _strategy_in(node: Json) -> Any:
    """Of SCAV_STRATEGY, as the script will read it."""
    environment = node.get("environment")
    text = environment.get("SCAV_STRATEGY", ABSENT) if isinstance(environment, Mapping) else ABSENT
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def _settings_in(user_data: object) -> Json | None:
    """The run's settings in a launch template's user data: base64 of (compressed) JSON in a (compressed) script."""
    try:
        script = _unpacked(base64.b64decode(str(user_data), validate=True))
        begun, found = script.partition(_SETTINGS_BEGIN)[1:]
        encoded, ended, _ = found.partition(_SETTINGS_END)
        settings = json.loads(_unpacked(base64.b64decode(encoded))) if begun and ended else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return settings if isinstance(settings, dict) else None


def _unpacked(content: bytes) -> bytes:
    packed = content.startswith(b"\x1f\x8b")
    return zlib.decompressobj(wbits=31).decompress(content, _MOST_USER_DATA_BYTES) if packed else content


def _override(item: Json) -> str:
    instance_type = str(item.get("instance_type") or "any type by its attributes")
    weight = item.get("weighted_capacity")
    return f"{instance_type} (counts as {weight})" if weight else instance_type


def _snapshots(expected: Json) -> list[str]:
    return [source["uri"] for source in expected.get("data", ()) if source["uri"].startswith("snap-")]


def _volumes(template: Json) -> Iterator[str]:
    for mapping in _list(template.get("block_device_mappings")):
        disk = _first(mapping.get("ebs"))
        if disk.get("snapshot_id"):
            yield f"{disk.get('volume_type', UNKNOWN)} of {disk['snapshot_id']}"
            continue
        size = f"{disk.get('volume_type', UNKNOWN)} {disk.get('volume_size', UNKNOWN)} GiB"
        yield f"{size}{_pace(disk.get('throughput'))}"


def _pace(mibps: object) -> str:
    """Nothing for what every such volume gives."""
    return f" at {mibps} MiB/s" if mibps not in (None, 0, GP3_MIBPS) else ""


def _state_resources(state: Json) -> Iterator[Json]:
    pending = [state.get("values", {}).get("root_module", {})]
    while pending:
        module = pending.pop()
        yield from module.get("resources", ())
        pending += module.get("child_modules", ())


def _after(change: Json) -> Json:
    after: Json = change["change"]["after"]
    return after


def _first(blocks: object) -> Json:
    items = _list(blocks)
    return items[0] if items and isinstance(items[0], Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
