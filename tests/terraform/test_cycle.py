"""Planned workspaces, applied, re-planned, changed and destroyed by real Terraform and the real AWS provider.

The AWS is moto, which shows that the calls are right and that nothing drifts or stays; not that AWS has capacity.
moto ignores the mixed instances policy, so the on-demand share is read from the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mock_aws import OVERRIDE, MockAws, copy_workspace, logs_of, plan_workspace, write_values

# Most of a cycle is the provider's own waiting; more at once would only wait for the processor.
AT_ONCE = 4
NO_CHANGES, CHANGES = 0, 2
SMALL = ("--nodes", "2..4", "--instance-type", "g5.12xlarge", "--budget", "$4000", "--deadline", "200h")
LARGE = ("--nodes", "2..8", "--budget", "$40000", "--region", "us-east-1")
GROUP = "module.gpu_cluster.aws_autoscaling_group.nodes"
TEMPLATE = "module.gpu_cluster.aws_launch_template.node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A job to plan, and what is changed in the plan's values before it is applied."""

    name: str
    example: str = "resnet50-imagenet"
    options: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    every_zone: bool = False
    changed: bool = True
    override: str = OVERRIDE

    @property
    def run_id(self) -> str:
        return f"cycle-{self.name}"


VARIANTS = [
    # The longest first, and without the change: the provider waits 55 seconds for lifecycle rules.
    Variant(
        name="lifecycle",
        changed=False,
        override=OVERRIDE.replace("checkpoint_lifecycle = false", "checkpoint_lifecycle = true"),
    ),
    Variant(name="plain"),
    Variant(
        name="efa-and-placement",
        example="gpt2-openwebtext",
        options=("--spot", "never", "--instance-type", "p5.48xlarge", *LARGE),
    ),
    Variant(
        name="multi-zone",
        options=("--spot", "always", *SMALL),
        changes={"availability_zone_id": "", "efa_interfaces": 0, "placement_group": False},
        every_zone=True,
    ),
    Variant(name="all-on-demand", options=("--spot", "never", *SMALL)),
    Variant(name="mixed", options=("--spot", "always", *SMALL)),
    Variant(name="existing-bucket", changes={"checkpoint_bucket": "cycle-existing-bucket-of-the-team"}),
    Variant(name="checkpoint-tier", changes={"checkpoint_tier": {"instance_type": "r6i.4xlarge", "node_count": 2}}),
]


@pytest.fixture(scope="module")
def cycles(attached_terraform, mock_server, tmp_path_factory) -> Iterator[dict[str, Future[None]]]:
    """All variants at once, in one account, as runs of one team would be."""
    mock_server.reset()
    planned = {variant.name: planned_variant(variant, mock_server, tmp_path_factory) for variant in VARIANTS}
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        yield {
            variant.name: pool.submit(run_cycle, variant, attached_terraform, mock_server, planned[variant.name])
            for variant in VARIANTS
        }


@pytest.mark.slow
@pytest.mark.parametrize("variant", [variant.name for variant in VARIANTS])
def test_applied_planned_again_changed_and_destroyed(cycles, variant):
    cycles[variant].result()


@pytest.mark.slow
def test_mock_answered_every_call(cycles, mock_server):
    for cycle in cycles.values():
        cycle.exception()  # wait
    assert mock_server.failures() == []


def planned_variant(variant: Variant, aws: MockAws, folders: pytest.TempPathFactory) -> Path:
    folder = folders.mktemp(variant.name)
    values = plan_workspace(folder / "planned", variant.example, *variant.options)
    zone_id = "" if variant.every_zone else values["availability_zone_id"]
    values |= aws.answers(instance_type=values["instance_type"], zone_id=zone_id)
    tags = {"run_id": variant.run_id, "tags": {"team": "vision"}, "budget_emails": ["team@example.com"]}
    copy_workspace(folder / "planned", folder / "workspace", values | tags | variant.changes, override=variant.override)
    return folder / "workspace"


def run_cycle(variant: Variant, terraform: Any, aws: MockAws, workspace: Path) -> None:
    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    if values["checkpoint_bucket"]:
        aws.client("s3").create_bucket(Bucket=values["checkpoint_bucket"])
    given = aws.resources(variant.run_id)
    run = Commands(terraform=terraform, folder=workspace)

    run("init", "-input=false")
    run("fmt", "-check", "-recursive", "-diff")
    run("validate")

    planned = run.plan("first.tfplan", expected=CHANGES)
    assert {action for change in changed(planned) for action in change["change"]["actions"]} == {"create"}
    assert_split(planned, values)
    run("apply", "-input=false", "first.tfplan")
    created = aws.resources(variant.run_id)
    tier = values.get("checkpoint_tier")
    assert len(created["instances"]) == values["node_count"] + (tier["node_count"] if tier else 0)
    assert_planned_kinds_exist(created, values)

    run.plan("again.tfplan", expected=NO_CHANGES)

    if variant.changed:
        add_a_node(run, values)

    run("destroy", "-input=false", "-auto-approve")
    assert aws.resources(variant.run_id) == given | logs_of(variant.run_id)


def add_a_node(run: Commands, values: dict[str, Any]) -> None:
    more = values | {"node_count": values["node_count"] + 1}
    if values["on_demand_count"] == values["node_count"]:
        more["on_demand_count"] = more["node_count"]
    write_values(run.folder, more)
    update = run.plan("more.tfplan", expected=CHANGES)
    assert_only_the_node_count_changes(update, more)
    run("apply", "-input=false", "more.tfplan")
    if values["instance_type_overrides"]:  # once is enough: every variant has the same resources in this respect
        run.plan("after.tfplan", expected=NO_CHANGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    terraform: Any
    folder: Path

    def __call__(self, *words: str, expected: int = 0) -> str:
        result = self.terraform.run(*words, *([] if words[0] == "fmt" else ["-no-color"]), cwd=self.folder)
        assert result.returncode == expected, f"terraform {' '.join(words)}\n{result.stdout}\n{result.stderr}"
        assert "Warning:" not in result.stdout, result.stdout
        return result.stdout

    def plan(self, file: str, *words: str, expected: int) -> dict[str, Any]:
        self("plan", "-input=false", "-detailed-exitcode", f"-out={file}", *words, expected=expected)
        if expected == NO_CHANGES:
            return {}
        shown: dict[str, Any] = json.loads(self("show", "-json", file))
        return shown


def changed(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [change for change in plan["resource_changes"] if change["change"]["actions"] != ["no-op"]]


def assert_split(plan: dict[str, Any], values: dict[str, Any]) -> None:
    (group,) = [change["change"]["after"] for change in changed(plan) if change["address"] == GROUP]
    (policy,) = group["mixed_instances_policy"]
    (distribution,) = policy["instances_distribution"]
    all_on_demand = values["on_demand_count"] == values["node_count"]
    assert (group["min_size"], group["max_size"], group["desired_capacity"]) == (0, *[values["node_count"]] * 2)
    assert distribution["on_demand_base_capacity"] == values["on_demand_count"]
    assert distribution["on_demand_percentage_above_base_capacity"] == (100 if all_on_demand else 0)
    assert distribution["spot_allocation_strategy"] == "price-capacity-optimized"
    assert not distribution.get("spot_max_price")
    types = [override["instance_type"] for override in policy["launch_template"][0]["override"]]
    assert types == [values["instance_type"], *values["instance_type_overrides"]]
    assert sorted(group["vpc_zone_identifier"]) == values["subnet_ids"]
    assert group["suspended_processes"] == ["AZRebalance"]


def assert_planned_kinds_exist(created: dict[str, list[str]], values: dict[str, Any]) -> None:
    assert {"auto scaling groups", "budgets", "buckets", "launch templates", "log groups", "roles"} <= set(created)
    assert len(created["buckets"]) == 1
    assert ("placement groups" in created) is values["placement_group"]
    tier = values.get("checkpoint_tier") is not None
    assert len(created["auto scaling groups"]) == 1 + tier
    assert len(created["launch templates"]) == 1 + len(values["instance_type_overrides"]) + tier


def assert_only_the_node_count_changes(plan: dict[str, Any], values: dict[str, Any]) -> None:
    """The group's size and the templates' user data, which tells nodes how many they are. In place, all of it."""
    templates = [f'{TEMPLATE}["{type_}"]' for type_ in (values["instance_type"], *values["instance_type_overrides"])]
    found = {change["address"]: change["change"] for change in changed(plan)}
    assert sorted(found) == sorted([GROUP, *templates])
    assert all(change["actions"] == ["update"] for change in found.values())
    # The third is not set by the module and unknown in every update.
    assert different(found[GROUP]) <= {"max_size", "mixed_instances_policy", "capacity_reservation_specification"}
    assert found[GROUP]["after"]["max_size"] == values["node_count"]
    for template in templates:
        assert different(found[template]) <= {"user_data", "latest_version", "default_version"}


def different(change: dict[str, Any]) -> set[str]:
    before, after = change["before"], change["after"]
    unknown = {name for name, value in change["after_unknown"].items() if value and name not in after}
    return unknown | {name for name in after if before.get(name) != after[name]}


def test_variants_have_names_of_their_own():
    """A run's resources are told apart by its name, which therefore must not be part of another's."""
    names = [variant.run_id for variant in VARIANTS]
    assert not [(one, other) for one in names for other in names if one != other and one in other]
