"""Does a Terraform plan still say what scav planned? For pipelines, where people edit files by hand.

Three looks at the same decisions, because each misses an edit that another sees: the root module's variables, how they
are wired to the module, and what the module makes of them (`facts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from planner.errors import InputError
from planner.plan.check.comparison import (
    ABSENT,
    Comparison,
    Difference,
    Json,
    Unasked,
    as_its_policy_may_ask,
    compare_values,
    difference,
    different,
    shown,
    unasked,
)
from planner.plan.check.facts import FALLBACK_GROUP, GROUP, MEMORY_GROUP, MODULE_ADDRESS, STOP, Resources, plan_facts
from planner.plan.schema import Plan
from planner.plan.variables import workspace_variables

MODULE_CALL = MODULE_ADDRESS.removeprefix("module.")
# What starts machines. The module may declare more of them than a plan has (its optional checkpoint tier).
CAPACITY_TYPES = {
    *("aws_autoscaling_group", "aws_autoscaling_schedule", "aws_ec2_capacity_reservation", "aws_ec2_fleet"),
    *("aws_instance", "aws_spot_fleet_request", "aws_spot_instance_request"),
}
# Neither pattern starts again in what it has read: a megabyte of blanks or brackets takes no longer than one of text.
_BLOCK = re.compile(r'^[ \t]*(resource|data)[ \t]+"(\w+)"[ \t]+"(\w+)"', re.MULTILINE)
_INDEX = re.compile(r"\[[^][]*\]")


def declared_resources(module: Mapping[str, str]) -> frozenset[str]:
    """`aws_launch_template.node`, `data.aws_ami.node`, … of a module's files."""
    found = (match for name, text in module.items() if name.endswith(".tf") for match in _BLOCK.finditer(text))
    return frozenset(
        f"{'data.' if kind == 'data' else ''}{type_}.{name}" for kind, type_, name in (m.groups() for m in found)
    )


def compare_terraform_plan(plan: Plan, terraform_plan: Json, *, values: Json, declared: frozenset[str]) -> Comparison:
    """`terraform show -json` with the plan; `values` (terraform.tfvars.json) say what the plan does not hold.

    `declared` are the blocks of the module that scav wrote, from `declared_resources`.
    """
    if terraform_plan.get("errored"):
        raise InputError("this Terraform plan failed, so there is nothing to compare; plan again")
    try:
        return _comparison(plan, terraform_plan, values, declared)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:  # the file may hold anything
        raise InputError("not a Terraform plan as JSON; make it with `terraform show -json PLAN_FILE`") from error


def _comparison(plan: Plan, terraform_plan: Json, values: Json, declared: frozenset[str]) -> Comparison:
    found = {name: item.get("value") for name, item in terraform_plan["variables"].items()}
    written, plan = plan, as_its_policy_may_ask(plan, found.get("on_demand_count"))
    expected = {**values, **workspace_variables(plan)}
    resources = Resources(terraform_plan)
    settings = list(resources.node_settings())
    facts = plan_facts(plan, expected, resources, settings)
    differences = [
        *compare_values(written, values).differences,
        *different(expected, found, "variable "),
        *_wiring(terraform_plan, sorted(expected)),
        *(difference(name, want, have) for name, want, have in facts if want != have),
        *_missing(terraform_plan, declared),
    ]
    if terraform_plan.get("complete") is False:
        differences.append(difference("whole plan", "yes", "no (-target, or deferred changes)"))
    return Comparison(
        run_id=plan.run_id,
        compared=len(expected) * 2 + len(facts),
        differences=tuple(dict.fromkeys(differences)),
        unasked=tuple(_unasked(plan, terraform_plan, declared)),
        unchecked=() if settings else ("the nodes' settings in the user data: not known before apply",),
    )


def _wiring(terraform_plan: Json, names: Iterable[str]) -> Iterator[Difference]:
    """The module takes each variable as it is; the provider takes the region."""
    configuration = terraform_plan["configuration"]
    call = configuration["root_module"].get("module_calls", {}).get(MODULE_CALL, {})
    provider = configuration.get("provider_config", {}).get("aws", {}).get("expressions", {})
    inputs = {**call.get("expressions", {}), "region": provider.get("region")}
    for name in names:
        if name in inputs and inputs[name] != {"references": [f"var.{name}"]}:
            owner = "provider" if name == "region" else "module"
            yield difference(f"{name} of the {owner}", f"var.{name}", _expression(inputs[name]))


def _missing(terraform_plan: Json, declared: frozenset[str]) -> Iterator[Difference]:
    """Blocks that the module had when scav wrote it."""
    module = terraform_plan["configuration"]["root_module"].get("module_calls", {}).get(MODULE_CALL, {})
    present = {resource["address"] for resource in module.get("module", {}).get("resources", ())}
    for address in sorted(declared - present):
        yield difference(f"{MODULE_ADDRESS}.{address}", "declared", "removed")


def _unasked(plan: Plan, terraform_plan: Json, declared: frozenset[str]) -> Iterator[Unasked]:
    found: dict[str, str] = {}
    planned = {GROUP, STOP, *([MEMORY_GROUP] if plan.choice.checkpoint_tier else [])}
    planned |= {FALLBACK_GROUP} if plan.spot and plan.spot.counts_on_fallback else set()
    for change in terraform_plan["resource_changes"]:
        address = f"{'data.' if change.get('mode') == 'data' else ''}{change['type']}.{change['name']}"
        asked = change.get("module_address") == MODULE_ADDRESS and address in declared
        machines = change["type"] in CAPACITY_TYPES and address not in planned
        if not asked or machines:
            actions = "/".join(change["change"]["actions"])
            found[change["address"]] = f"{actions}, machines outside the plan" if machines else actions
    listed = {_INDEX.sub("", address) for address in found}
    for address, what in _configured(terraform_plan["configuration"]["root_module"], "", declared):
        if address not in listed:
            found.setdefault(address, what)
    yield from (unasked(address, what) for address, what in sorted(found.items()))


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


def _expression(expression: object) -> str:
    if isinstance(expression, Mapping) and "constant_value" in expression:
        return shown(expression["constant_value"])
    references = expression.get("references", ()) if isinstance(expression, Mapping) else ()
    return " and ".join(references) or ABSENT
