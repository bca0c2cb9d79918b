"""Does a Terraform plan still say what scav planned? For pipelines, where people edit files by hand.

Three looks at the same decisions, because each misses an edit that another sees: the root module's variables, how they
are wired to the module, and what the module makes of them in the group, the launch templates and the nodes' settings.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.contract import Contract
from planner.errors import InputError
from planner.plan.schema import Plan
from planner.plan.variables import workspace_variables

MODULE_CALL = "gpu_cluster"
MODULE_ADDRESS = f"module.{MODULE_CALL}"
GROUP = "aws_autoscaling_group.nodes"
TEMPLATE = "aws_launch_template.node"
STOP = "aws_autoscaling_schedule.stop"
MEMORY_GROUP = "aws_autoscaling_group.memory"
MEMORY_TEMPLATE = "aws_launch_template.memory"
# What starts machines. The module may declare more of them than a plan has (its optional checkpoint tier).
CAPACITY_TYPES = {
    *("aws_autoscaling_group", "aws_autoscaling_schedule", "aws_ec2_capacity_reservation", "aws_ec2_fleet"),
    *("aws_instance", "aws_spot_fleet_request", "aws_spot_instance_request"),
}
UNKNOWN = "known after apply"
ABSENT = "-"

Json = Mapping[str, Any]


class Difference(Contract):
    name: str
    planned: str
    found: str


class Unasked(Contract):
    """Something in the Terraform plan that scav did not write."""

    address: str
    what: str


class Comparison(Contract):
    run_id: str
    compared: int
    differences: tuple[Difference, ...] = ()
    unasked: tuple[Unasked, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.differences and not self.unasked


def declared_resources(module: Mapping[str, str]) -> frozenset[str]:
    """`aws_launch_template.node`, `data.aws_ami.node`, … of a module's files."""
    blocks = re.compile(r'^\s*(resource|data)\s+"(\w+)"\s+"(\w+)"', re.MULTILINE)
    found = (match for name, text in module.items() if name.endswith(".tf") for match in blocks.finditer(text))
    return frozenset(
        f"{'data.' if kind == 'data' else ''}{type_}.{name}" for kind, type_, name in (m.groups() for m in found)
    )


def compare_values(plan: Plan, values: Json) -> Comparison:
    """A workspace's `terraform.tfvars.json` with the plan beside it."""
    plan = _as_its_policy_may_ask(plan, values.get("on_demand_count"))
    decided = workspace_variables(plan)
    return Comparison(
        run_id=plan.run_id, compared=len(decided), differences=tuple(_different(decided, values, "variable "))
    )


def _as_its_policy_may_ask(plan: Plan, on_demand_count: object) -> Plan:
    """With spot nodes and a deadline, scav.policy.json may replace all of them by on-demand ones (`scav policy`)."""
    choice = plan.choice
    if plan.spot is None or plan.constraints.deadline_hours is None or on_demand_count != choice.node_count:
        return plan
    changed = choice.model_copy(update={"on_demand_count": choice.node_count, "spot_count": 0})
    return plan.model_copy(update={"choice": changed})


def compare_terraform_plan(plan: Plan, terraform_plan: Json, *, values: Json, declared: frozenset[str]) -> Comparison:
    """`terraform show -json` with the plan; `values` (terraform.tfvars.json) say what the plan does not hold.

    `declared` are the blocks of the module that scav wrote, from `declared_resources`.
    """
    if terraform_plan.get("errored"):
        raise InputError("this Terraform plan failed, so there is nothing to compare; plan again")
    try:
        return _comparison(plan, terraform_plan, values, declared)
    except (AttributeError, KeyError, TypeError) as error:  # the file may hold anything
        raise InputError("not a Terraform plan as JSON; make it with `terraform show -json PLAN_FILE`") from error


def _comparison(plan: Plan, terraform_plan: Json, values: Json, declared: frozenset[str]) -> Comparison:
    found = {name: item.get("value") for name, item in terraform_plan["variables"].items()}
    written, plan = plan, _as_its_policy_may_ask(plan, found.get("on_demand_count"))
    expected = {**values, **workspace_variables(plan)}
    resources = _Resources(terraform_plan)
    settings = list(resources.node_settings())
    facts = [
        *_group_facts(plan, resources),
        *_memory_facts(plan, expected, resources),
        *_stop_facts(resources),
        *_template_facts(expected, resources),
        *_settings_facts(expected, settings),
    ]
    differences = [
        *compare_values(written, values).differences,
        *_different(expected, found, "variable "),
        *_wiring(terraform_plan, sorted(expected)),
        *(
            Difference(name=name, planned=_shown(want), found=_shown(have))
            for name, want, have in facts
            if want != have
        ),
        *_missing(terraform_plan, declared),
    ]
    if terraform_plan.get("complete") is False:
        differences.append(Difference(name="whole plan", planned="yes", found="no (-target, or deferred changes)"))
    return Comparison(
        run_id=plan.run_id,
        compared=len(expected) * 2 + len(facts),
        differences=tuple(dict.fromkeys(differences)),
        unasked=tuple(_unasked(plan, terraform_plan, declared)),
        unchecked=() if settings else ("the nodes' settings in the user data: not known before apply",),
    )


class _Resources:
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

    def node_settings(self) -> Iterator[Json]:
        """What the user data of each launch template gives to its nodes, as far as it is known."""
        for change in self.named(TEMPLATE):
            settings = _settings_in(change["change"]["after"].get("user_data"))
            if settings is not None:
                yield settings


Fact = tuple[str, Any, Any]


def _group_facts(plan: Plan, resources: _Resources) -> Iterator[Fact]:
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


def _memory_facts(plan: Plan, expected: Json, resources: _Resources) -> Iterator[Fact]:
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


def _stop_facts(resources: _Resources) -> Iterator[Fact]:
    """What stops a run whose nodes do not."""
    for change in resources.named(STOP):
        after = change["change"]["after"]
        yield "nodes after the stop", [0, 0], [after.get("min_size"), after.get("desired_capacity")]


def _template_facts(expected: Json, resources: _Resources) -> Iterator[Fact]:
    types = [expected["instance_type"], *expected["instance_type_overrides"]]
    templates = resources.named(TEMPLATE)
    yield "launch templates", sorted(types), sorted(str(change.get("index")) for change in templates)
    for change in templates:
        name, after = change.get("index"), change["change"]["after"]
        yield f"type of template {name}", name, after.get("instance_type", UNKNOWN)
        yield f"volumes of {name}", [f"gp3 {expected['root_volume_gib']} GiB"], list(_volumes(after))
        if "ami_id" in expected:
            yield f"machine image of {name}", expected["ami_id"], after.get("image_id", UNKNOWN)


def _settings_facts(expected: Json, settings: Sequence[Json]) -> Iterator[Fact]:
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
        for setting, variable in names.items():
            if variable in expected:
                yield f"{setting} on the nodes", expected[variable], node.get(setting, ABSENT)


def _wiring(terraform_plan: Json, names: Iterable[str]) -> Iterator[Difference]:
    """The module takes each variable as it is; the provider takes the region."""
    configuration = terraform_plan["configuration"]
    call = configuration["root_module"].get("module_calls", {}).get(MODULE_CALL, {})
    provider = configuration.get("provider_config", {}).get("aws", {}).get("expressions", {})
    inputs = {**call.get("expressions", {}), "region": provider.get("region")}
    for name in names:
        if name in inputs and inputs[name] != {"references": [f"var.{name}"]}:
            owner = "provider" if name == "region" else "module"
            yield Difference(name=f"{name} of the {owner}", planned=f"var.{name}", found=_expression(inputs[name]))


def _missing(terraform_plan: Json, declared: frozenset[str]) -> Iterator[Difference]:
    """Blocks that the module had when scav wrote it."""
    module = terraform_plan["configuration"]["root_module"].get("module_calls", {}).get(MODULE_CALL, {})
    present = {resource["address"] for resource in module.get("module", {}).get("resources", ())}
    for address in sorted(declared - present):
        yield Difference(name=f"{MODULE_ADDRESS}.{address}", planned="declared", found="removed")


def _unasked(plan: Plan, terraform_plan: Json, declared: frozenset[str]) -> Iterator[Unasked]:
    found: dict[str, str] = {}
    planned = {GROUP, STOP, *([MEMORY_GROUP] if plan.choice.checkpoint_tier else [])}
    for change in terraform_plan["resource_changes"]:
        address = f"{'data.' if change.get('mode') == 'data' else ''}{change['type']}.{change['name']}"
        asked = change.get("module_address") == MODULE_ADDRESS and address in declared
        machines = change["type"] in CAPACITY_TYPES and address not in planned
        if not asked or machines:
            actions = "/".join(change["change"]["actions"])
            found[change["address"]] = f"{actions}, machines outside the plan" if machines else actions
    listed = {re.sub(r"\[[^]]*\]", "", address) for address in found}
    for address, what in _configured(terraform_plan["configuration"]["root_module"], "", declared):
        if address not in listed:
            found.setdefault(address, what)
    yield from (Unasked(address=address, what=what) for address, what in sorted(found.items()))


def _configured(module: Json, prefix: str, declared: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Blocks in the configuration, also those that make nothing: a data source may run a program."""
    inside = prefix == f"{MODULE_ADDRESS}."
    for resource in module.get("resources", ()):
        if not inside or resource["address"] not in declared:
            yield prefix + resource["address"], "declared"
        for provisioner in resource.get("provisioners", ()):
            yield f"{prefix}{resource['address']}", f"provisioner {provisioner.get('type')}"
    for name, call in module.get("module_calls", {}).items():
        address = f"{prefix}module.{name}"
        if address == MODULE_ADDRESS:
            if call.get("source") != "./modules/gpu-cluster":
                yield address, f"source {call.get('source')}"
            yield from _configured(call.get("module", {}), f"{address}.", declared)
        else:
            yield address, f"module from {call.get('source')}"


def _settings_in(user_data: object) -> Json | None:
    """The run's settings in a launch template's user data: base64 of JSON in a (compressed) script."""
    try:
        script = base64.b64decode(str(user_data), validate=True)
        if script.startswith(b"\x1f\x8b"):
            script = zlib.decompress(script, wbits=31)
        found = re.search(rb"<<'SCAV_RUN'\n(.*?)\nSCAV_RUN\n", script, re.DOTALL)
        settings = json.loads(base64.b64decode(found[1])) if found else None
    except (binascii.Error, zlib.error, ValueError):
        return None
    return settings if isinstance(settings, dict) else None


def _different(expected: Json, found: Json, kind: str) -> Iterator[Difference]:
    for name, want in expected.items():
        have = found.get(name, ABSENT)
        if have != want:
            yield Difference(name=f"{kind}{name}", planned=_shown(want), found=_shown(have))


def _override(item: Json) -> str:
    kind = str(item.get("instance_type") or "any type by its attributes")
    weight = item.get("weighted_capacity")
    return f"{kind} (counts as {weight})" if weight else kind


def _volumes(template: Json) -> Iterator[str]:
    for mapping in _list(template.get("block_device_mappings")):
        disk = _first(mapping.get("ebs"))
        yield f"{disk.get('volume_type', UNKNOWN)} {disk.get('volume_size', UNKNOWN)} GiB"


def _state_resources(state: Json) -> Iterator[Json]:
    pending = [state.get("values", {}).get("root_module", {})]
    while pending:
        module = pending.pop()
        yield from module.get("resources", ())
        pending += module.get("child_modules", ())


def _expression(expression: object) -> str:
    if isinstance(expression, Mapping) and "constant_value" in expression:
        return _shown(expression["constant_value"])
    references = expression.get("references", ()) if isinstance(expression, Mapping) else ()
    return " and ".join(references) or ABSENT


def _after(change: Json) -> Json:
    after: Json = change["change"]["after"]
    return after


def _first(blocks: object) -> Json:
    items = _list(blocks)
    return items[0] if items and isinstance(items[0], Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value) or "none"
    return json.dumps(value, ensure_ascii=False)
