"""The comparison of a Terraform plan with scav's, on a recorded plan of real Terraform (see test_check_plan.py)."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.outside.assets import load_module
from planner.plan.check.terraform_plan import compare_terraform_plan, compare_values, declared_resources
from planner.plan.schema import CheckpointTier, Plan, parse_plan
from planner.plan.variables import workspace_variables

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
PLAN = parse_plan((GOLDEN / "scav.plan.json").read_text(), file="scav.plan.json")
VALUES = json.loads((GOLDEN / "terraform.tfvars.json").read_text())
TERRAFORM = json.loads((GOLDEN / "plan.json").read_text())
CALL = TERRAFORM["configuration"]["root_module"]["module_calls"]["gpu_cluster"]
DECLARED = frozenset(resource["address"] for resource in CALL["module"]["resources"])
GROUP = "module.gpu_cluster.aws_autoscaling_group.nodes"
TEMPLATE = 'module.gpu_cluster.aws_launch_template.node["g4dn.xlarge"]'


def compared(terraform: Any, *, values: Any = VALUES, plan: Plan = PLAN):
    return compare_terraform_plan(plan, terraform, values=values, declared=DECLARED)


def after(terraform: Any, address: str) -> Any:
    return next(item for item in terraform["resource_changes"] if item["address"] == address)["change"]["after"]


def distribution(terraform: Any) -> Any:
    return after(terraform, GROUP)["mixed_instances_policy"][0]["instances_distribution"][0]


def overrides(terraform: Any) -> Any:
    return after(terraform, GROUP)["mixed_instances_policy"][0]["launch_template"][0]["override"]


def call(terraform: Any) -> Any:
    return terraform["configuration"]["root_module"]["module_calls"]["gpu_cluster"]


def set_setting(terraform: Any, name: str, value: object, address: str = TEMPLATE) -> None:
    template = after(terraform, address)
    script = gzip.decompress(base64.b64decode(template["user_data"])).decode()
    head, settings, tail = script.split("\n", 2)
    settings = json.loads(gzip.decompress(base64.b64decode(settings))) | {name: value}
    text = "\n".join((head, base64.b64encode(gzip.compress(json.dumps(settings).encode())).decode(), tail))
    template["user_data"] = base64.b64encode(gzip.compress(text.encode())).decode()


def test_the_recorded_plan_is_what_scav_planned():
    result = compared(TERRAFORM)
    assert result.equal, result
    assert result.unchecked == ()
    assert result.compared > 50


EDITS = {
    "nodes at most": lambda plan: after(plan, GROUP).update(max_size=8),
    "nodes at least": lambda plan: after(plan, GROUP).update(min_size=4),
    "nodes at start": lambda plan: after(plan, GROUP).update(desired_capacity=8),
    "group name": lambda plan: after(plan, GROUP).update(name="other"),
    "placement group": lambda plan: after(plan, GROUP).update(placement_group="scav-checked-1"),
    "on-demand base": lambda plan: distribution(plan).update(on_demand_base_capacity=0),
    "on-demand % above base": lambda plan: distribution(plan).update(on_demand_percentage_above_base_capacity=1),
    "highest spot price": lambda plan: distribution(plan).update(spot_max_price="0.2"),
    "types in order": lambda plan: overrides(plan).reverse(),
    "types in order ": lambda plan: overrides(plan)[0].update(weighted_capacity="2"),
    "types in order  ": lambda plan: overrides(plan).append({"instance_requirements": [{}]}),
    "zone of the subnets": lambda plan: after(plan, GROUP).update(vpc_zone_identifier=["subnet-elsewhere"]),
    "type of template g4dn.xlarge": lambda plan: after(plan, TEMPLATE).update(instance_type="p5.48xlarge"),
    "machine image of g4dn.xlarge": lambda plan: after(plan, TEMPLATE).update(image_id="ami-ffffffff"),
    "volumes of g4dn.xlarge": lambda plan: after(plan, TEMPLATE)["block_device_mappings"].append(
        {"ebs": [{"volume_size": 9000, "volume_type": "io2"}]}
    ),
    "image on the nodes": lambda plan: set_setting(plan, "image", "other@sha256:0"),
    "command on the nodes": lambda plan: set_setting(plan, "command", ["mine.py"]),
    "max_runtime_seconds on the nodes": lambda plan: set_setting(plan, "max_runtime_seconds", 10**9),
    "run_id on the nodes": lambda plan: set_setting(plan, "run_id", "other"),
    "node_count of the module": lambda plan: call(plan)["expressions"].update(node_count={"constant_value": 8}),
    "container_image of the module": lambda plan: call(plan)["expressions"].update(
        container_image={"references": ["local.image"]}
    ),
    "region of the provider": lambda plan: plan["configuration"]["provider_config"]["aws"]["expressions"].update(
        region={"constant_value": "eu-west-1"}
    ),
    "variable container_image": lambda plan: plan["variables"].update(container_image={"value": "other@sha256:0"}),
    "whole plan": lambda plan: plan.update(complete=False),
    "module.gpu_cluster.aws_budgets_budget.run": lambda plan: call(plan)["module"]["resources"].remove(
        {"address": "aws_budgets_budget.run"}
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_shows_in_its_own_row_and_no_other(name):
    edited = copy.deepcopy(TERRAFORM)
    EDITS[name](edited)
    result = compared(edited)
    assert not result.equal
    assert [item.name for item in result.differences] == [name.strip()]
    assert result.unasked == ()


@pytest.mark.parametrize("name", sorted(workspace_variables(PLAN)))
def test_every_decision_is_compared_in_the_values_and_in_the_terraform_plan(name):
    values = VALUES | {name: "other"}
    assert [item.name for item in compare_values(PLAN, values).differences] == [f"variable {name}"]
    edited = copy.deepcopy(TERRAFORM)
    edited["variables"][name] = {"value": "other"}
    assert f"variable {name}" in [item.name for item in compared(edited).differences]
    without = {key: value for key, value in VALUES.items() if key != name}
    assert [item.found for item in compare_values(PLAN, without).differences] == ["-"]


def test_an_image_edited_in_the_values_themselves_is_found():
    other = "registry.example.com/other@sha256:" + "f" * 64
    edited = copy.deepcopy(TERRAFORM)
    edited["variables"]["container_image"]["value"] = other
    for item in edited["resource_changes"]:
        if item["type"] == "aws_launch_template":
            set_setting(edited, "image", other, item["address"])
    assert not compared(edited, values=VALUES | {"container_image": other}).equal


# A plan with memory nodes for checkpoints

TIER = {"instance_type": "c5.xlarge", "node_count": 2}
MEMORY_GROUP = "module.gpu_cluster.aws_autoscaling_group.memory[0]"
MEMORY_TEMPLATE = "module.gpu_cluster.aws_launch_template.memory[0]"


def tiered(plan: Plan = PLAN) -> Plan:
    tier = CheckpointTier(hourly_usd=0.34, **TIER)
    return plan.model_copy(update={"choice": plan.choice.model_copy(update={"checkpoint_tier": tier})})


def with_memory_nodes() -> Any:
    """The recorded plan, with the group and the template that the module makes of the tier."""
    terraform = copy.deepcopy(TERRAFORM)
    terraform["variables"]["checkpoint_tier"] = {"value": TIER}
    group = change(MEMORY_GROUP, "aws_autoscaling_group", "memory", "module.gpu_cluster")
    group["change"]["after"] = {
        "name": "scav-checked-1-memory",
        "min_size": 0,
        "max_size": 2,
        "desired_capacity": 2,
        "vpc_zone_identifier": after(TERRAFORM, GROUP)["vpc_zone_identifier"],
    }
    template = change(MEMORY_TEMPLATE, "aws_launch_template", "memory", "module.gpu_cluster")
    template["change"]["after"] = {**after(TERRAFORM, TEMPLATE), "instance_type": "c5.xlarge"}
    terraform["resource_changes"] += [group, template]
    return terraform


def test_memory_nodes_of_the_plan_are_asked_for():
    values = VALUES | {"checkpoint_tier": TIER}
    result = compared(with_memory_nodes(), values=values, plan=tiered())
    assert result.equal, result
    assert [item.address for item in compared(with_memory_nodes()).unasked] == [MEMORY_GROUP]
    missing = compared(TERRAFORM | {"variables": with_memory_nodes()["variables"]}, values=values, plan=tiered())
    assert [item.name for item in missing.differences] == ["groups of memory nodes", "types of memory nodes"]


MEMORY_EDITS = {
    "memory nodes at most": (MEMORY_GROUP, {"max_size": 9}),
    "memory nodes at least": (MEMORY_GROUP, {"min_size": 2}),
    "memory nodes at start": (MEMORY_GROUP, {"desired_capacity": 1}),
    "name of the memory group": (MEMORY_GROUP, {"name": "other"}),
    "zone of the memory nodes": (MEMORY_GROUP, {"vpc_zone_identifier": ["subnet-elsewhere"]}),
    "types of memory nodes": (MEMORY_TEMPLATE, {"instance_type": "r6i.32xlarge"}),
    "volumes of memory nodes": (MEMORY_TEMPLATE, {"block_device_mappings": []}),
    "machine image of memory nodes": (MEMORY_TEMPLATE, {"image_id": "ami-ffffffff"}),
}


@pytest.mark.parametrize("name", MEMORY_EDITS)
def test_an_edit_of_the_memory_nodes_shows_in_its_own_row(name):
    address, update = MEMORY_EDITS[name]
    edited = with_memory_nodes()
    after(edited, address).update(update)
    result = compared(edited, values=VALUES | {"checkpoint_tier": TIER}, plan=tiered())
    assert [item.name for item in result.differences] == [name]


ADDED = {
    "aws_instance.mine": lambda plan: plan["resource_changes"].append(
        change("aws_instance.mine", "aws_instance", "mine", None)
    ),
    "module.gpu_cluster.aws_sns_topic.mine": lambda plan: plan["resource_changes"].append(
        change("module.gpu_cluster.aws_sns_topic.mine", "aws_sns_topic", "mine", "module.gpu_cluster")
    ),
    "data.external.mine": lambda plan: plan["configuration"]["root_module"].update(
        resources=[{"address": "data.external.mine"}]
    ),
    "module.gpu_cluster.data.external.mine": lambda plan: call(plan)["module"]["resources"].append(
        {"address": "data.external.mine"}
    ),
    "module.mine": lambda plan: plan["configuration"]["root_module"]["module_calls"].update(mine={"source": "./mine"}),
    "module.gpu_cluster": lambda plan: call(plan).update(source="git::https://example.com/other"),
    "module.gpu_cluster.aws_budgets_budget.run": lambda plan: next(
        item for item in call(plan)["module"]["resources"] if item["address"] == "aws_budgets_budget.run"
    ).update(provisioners=[{"type": "local-exec"}]),
}


def change(address: str, kind: str, name: str, module: str | None) -> dict[str, Any]:
    found = {"address": address, "mode": "managed", "type": kind, "name": name}
    return {**found, **({"module_address": module} if module else {}), "change": {"actions": ["create"], "after": {}}}


@pytest.mark.parametrize("address", ADDED)
def test_what_scav_did_not_ask_for_is_listed(address):
    edited = copy.deepcopy(TERRAFORM)
    ADDED[address](edited)
    result = compared(edited)
    assert not result.equal
    assert [item.address for item in result.unasked] == [address]


def test_machines_beside_the_group_are_outside_the_plan_even_if_the_module_can_make_them():
    edited = copy.deepcopy(TERRAFORM)
    address = "module.gpu_cluster.aws_autoscaling_group.memory[0]"
    edited["resource_changes"].append(change(address, "aws_autoscaling_group", "memory", "module.gpu_cluster"))
    (unasked,) = compare_terraform_plan(
        PLAN, edited, values=VALUES, declared=DECLARED | {"aws_autoscaling_group.memory"}
    ).unasked
    assert (unasked.address, unasked.what) == (address, "create, machines outside the plan")


def test_a_finished_run_is_still_what_was_planned():
    """The run itself scales to 0, and Terraform ignores that on purpose."""
    later = copy.deepcopy(TERRAFORM)
    for item in later["resource_changes"]:
        item["change"]["actions"] = ["no-op"]
    after(later, GROUP)["desired_capacity"] = 0
    assert compared(later).equal


def test_a_destroying_plan_is_not_what_was_planned():
    gone = copy.deepcopy(TERRAFORM)
    for item in gone["resource_changes"]:
        item["change"] = {"actions": ["delete"], "after": None}
    assert "auto scaling groups" in [item.name for item in compared(gone).differences]


@pytest.mark.parametrize("wrong", ["", "%", "bm90aGluZw==", None])
def test_user_data_that_cannot_be_read_is_not_what_was_planned(wrong):
    """Also beside a template whose user data can be read."""
    edited = copy.deepcopy(TERRAFORM)
    template = next(item for item in edited["resource_changes"] if item["address"] == TEMPLATE)
    second = copy.deepcopy(template)
    second["change"]["after"]["user_data"] = wrong
    edited["resource_changes"].append(second)
    result = compared(edited)
    assert not result.equal
    assert ("user data of the nodes", "not readable") in [(item.name, item.found) for item in result.differences]


def test_settings_that_are_not_known_yet_are_said_to_be_unchecked():
    unknown = copy.deepcopy(TERRAFORM)
    for item in unknown["resource_changes"]:
        item["change"]["after"].pop("user_data", None)
    result = compared(unknown)
    assert result.equal
    assert result.unchecked == ("the nodes' settings in the user data: not known before apply",)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({}, "not a Terraform plan as JSON"), (TERRAFORM | {"errored": True}, "this Terraform plan failed")],
)
def test_what_cannot_be_compared_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        compared(wrong)


def test_resources_of_a_module_are_found_in_its_files():
    declared = declared_resources(load_module("gpu-cluster"))
    assert {"aws_autoscaling_group.nodes", "aws_launch_template.node", "data.aws_subnet.candidate"} <= declared
    assert declared_resources({"README.md": 'resource "a" "b" {'}) == frozenset()


@given(st.sampled_from(sorted(TERRAFORM)), st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5))
def test_a_broken_top_level_value_never_counts_as_equal_by_accident(key, value):
    """Whatever a hand or a tool put there: equal, different or refused, but equal only if nothing compared changed."""
    broken = TERRAFORM | {key: value}
    try:
        result = compared(broken)
    except InputError:
        return
    assert key not in ("variables", "configuration", "resource_changes", "prior_state") or not result.equal


def test_on_demand_nodes_that_the_deadline_policy_asks_for_are_no_difference():
    """And only all of them: that is what the policy can ask for."""
    values = VALUES | {"on_demand_count": PLAN.choice.node_count}
    assert PLAN.choice.spot_count > 0
    assert PLAN.constraints.deadline_hours
    assert compare_values(PLAN, values).equal
    assert not compare_values(PLAN, VALUES | {"on_demand_count": PLAN.choice.node_count - 1}).equal


def test_without_spot_all_above_the_base_is_on_demand_too():
    choice = PLAN.choice.model_copy(update={"on_demand_count": PLAN.choice.node_count, "spot_count": 0})
    found = compared(TERRAFORM, plan=PLAN.model_copy(update={"choice": choice}))
    (share,) = [difference for difference in found.differences if difference.name == "on-demand % above base"]
    assert (share.planned, share.found) == ("100", "0")
