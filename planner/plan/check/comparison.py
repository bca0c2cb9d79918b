"""What a check finds: decisions that are not as scav took them, and things that scav did not ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from planner.contract import Contract
from planner.plan.schema import Plan
from planner.plan.variables import workspace_variables

ABSENT = "-"

Json = Mapping[str, Any]


class Difference(Contract):
    name: str
    planned: str
    found: str


class Unasked(Contract):
    """Something in the Terraform plan, or a file that Terraform reads, that scav did not write."""

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


def compare_values(plan: Plan, values: Json) -> Comparison:
    """A workspace's `terraform.tfvars.json` with the plan beside it."""
    plan = as_its_policy_may_ask(plan, values.get("on_demand_count"))
    decided = workspace_variables(plan)
    return Comparison(
        run_id=plan.run_id, compared=len(decided), differences=tuple(different(decided, values, "variable "))
    )


def as_its_policy_may_ask(plan: Plan, on_demand_count: object) -> Plan:
    """With spot nodes and a deadline, scav.policy.json may replace all of them by on-demand ones (`scav policy`)."""
    choice = plan.choice
    if plan.spot is None or plan.constraints.deadline_hours is None or on_demand_count != choice.node_count:
        return plan
    changed = choice.model_copy(update={"on_demand_count": choice.node_count, "spot_count": 0})
    return plan.model_copy(update={"choice": changed})


def difference(name: str, planned: object, found: object) -> Difference:
    """Names and values come from files that anybody may have written."""
    return Difference(name=_text(name), planned=shown(planned), found=shown(found))


def unasked(address: str, what: str) -> Unasked:
    return Unasked(address=_text(address), what=_text(what))


def different(expected: Json, found: Json, kind: str) -> Iterator[Difference]:
    for name, want in expected.items():
        have = found.get(name, ABSENT)
        if have != want:
            yield difference(f"{kind}{name}", want, have)


def shown(value: object) -> str:
    try:
        return _text(_shown(value))
    except RecursionError:
        return "something nested too deeply to show"


def _text(text: str) -> str:
    """Half of a character, which JSON can hold, is no text that could be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value) or "none"
    return json.dumps(value, ensure_ascii=False)
