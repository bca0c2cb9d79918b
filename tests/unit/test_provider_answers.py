"""The provider's part of Terraform's protocol: what Terraform sends, as it sends it, and what it must get."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs import parse_job
from planner.outside import assets, store
from planner.outside.input_files import load_inputs_of
from planner.outside.module_variables import variables_of
from planner.plan import make_plan, workspace_variables
from planner.provider import kept
from planner.provider.schema import (
    COMPUTED,
    DATA_OFFERS,
    INPUTS,
    OVERRIDES,
    RESOURCE,
    STATE_VERSION,
    TYPE_NAME,
    VARIABLES,
)
from planner.provider.servicer import answer
from planner.provider.values import UNKNOWN, decoded, encoded
from planner.provider.wire import ERROR, MESSAGES, METHODS, WARNING

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "provider"
NAMES = [row.name for row in RESOURCE]
LONGEST_IN_A_DIFF = 300  # characters: four lines of a terminal


@pytest.fixture
def said(job_text, tmp_path, monkeypatch) -> dict[str, Any]:
    """A resource that says the job and nothing else, as Terraform sends it: every attribute, computed ones as null."""
    monkeypatch.chdir(tmp_path)
    return dict.fromkeys(NAMES) | {"job": job_text}


def config(said: dict[str, Any]) -> Any:
    return MESSAGES["Config"](type_name=TYPE_NAME, config=encoded(said))


def change(said: dict[str, Any] | None, before: dict[str, Any] | None = None, private: bytes = b"") -> Any:
    """As Terraform asks: what was computed before is proposed again."""
    proposed = said and (said | {row.name: before[row.name] for row in COMPUTED} if before else said)
    values = {"prior_state": encoded(before), "proposed_new_state": encoded(proposed), "config": encoded(said)}
    return MESSAGES["Change"](type_name=TYPE_NAME, prior_private=private, **values)


def planned(*asked: Any) -> tuple[dict[str, Any], bytes]:
    reply = answer("PlanResourceChange", change(*asked))
    assert [each.detail for each in reply.diagnostics if each.severity == ERROR] == []
    return decoded(reply.planned_state), reply.planned_private


def complaint(reply: Any) -> tuple[str, str]:
    """The one error: at which attribute, and what it says."""
    (found,) = [each for each in reply.diagnostics if each.severity == ERROR]
    return "".join(step.attribute_name for step in found.attribute.steps), found.detail


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.just(UNKNOWN),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES)
def test_a_value_comes_back_as_it_went(value):
    assert decoded(encoded(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_fraction_travels_as_the_decimal_that_a_state_file_keeps(value):
    """Sent as a binary number, 210.44 would differ from the 210.44 of the state, in every plan."""
    sent = msgpack.unpackb(encoded(value).msgpack)
    assert float(sent) == value
    assert isinstance(sent, str | int)


def test_what_terraform_knows_only_in_part_is_unknown():
    refined = msgpack.packb(msgpack.ExtType(12, msgpack.packb({1: False})))
    assert decoded(MESSAGES["Value"](msgpack=refined)) is UNKNOWN


def test_every_method_has_an_answer():
    for method, (takes, _) in METHODS.items():
        if takes == "Empty":
            assert not list(getattr(answer(method, MESSAGES["Empty"]()), "diagnostics", ()))


def test_the_schema_names_types_as_terraform_does():
    (found,) = answer("GetProviderSchema", MESSAGES["Empty"]()).resource_schemas
    rows = {row.name: row for row in found.value.block.attributes}
    assert sorted(NAMES) == [row.name for row in found.value.block.attributes] == sorted(rows)
    assert json.loads(rows["instance_type_order"].type) == ["list", "string"]
    assert [name for name, row in rows.items() if row.required] == ["job"]
    assert {name for name, row in rows.items() if row.computed} == {row.name for row in COMPUTED}


def test_fields_that_a_newer_terraform_sends_are_skipped(said):
    """Field 15 of a message, length 3: of no version that is known here."""
    request = MESSAGES["Config"].FromString(config(said).SerializeToString() + b"\x7a\x03new")
    assert not answer("ValidateResourceConfig", request).diagnostics


def test_everything_is_known_when_terraform_plans(said):
    state, _ = planned(said)
    assert UNKNOWN not in [*state.values(), *state["variables"].values()]
    assert {name: state[name] for name in said if name not in {row.name for row in COMPUTED}} == {
        row.name: said[row.name] for row in INPUTS
    }


def test_no_value_is_too_long_for_the_diff_that_people_review(said):
    """What they wrote themselves aside. Terraform shows a changed object by its changed attributes."""
    state, _ = planned({**said, "instance_types": ["*"]})
    shown = {name: value for name, value in state.items() if name not in ("job", "variables")}
    lengths = {name: len(json.dumps(value)) for name, value in (shown | state["variables"]).items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_IN_A_DIFF} == {}


def test_it_is_the_plan_that_scav_plan_makes_and_the_variables_are_the_workspace_s(said):
    inputs = load_inputs_of(parse_job(said["job"], file="scav.yaml"), None)
    plan = make_plan(inputs)
    state, _ = planned(said)
    rendered = json.loads(json.dumps(workspace_variables(plan)))
    given = {name: value for name, value in state["variables"].items() if value is not None}
    assert set(rendered) <= set(VARIABLES)
    assert {name: _number(value) for name, value in given.items()} == {
        name: value for name, value in rendered.items() if value is not None
    }
    assert (float(state["usd_p95"]), float(state["hours_p50"])) == (plan.estimate.usd.p95, plan.estimate.hours.p50)


def _number(value: Any) -> Any:
    """A fraction is sent as text, and no text of a plan's variables looks like one."""
    try:
        return float(value) if isinstance(value, str) and "." in value else value
    except ValueError:
        return value


# Of modules/gpu-cluster, what neither a plan decides through the provider nor a platform team demands.
LEFT_AT_THEIR_DEFAULTS = {
    *("bucket_force_destroy", "deep_learning_container", "heartbeat_seconds", "policy_file", "replace_lost_nodes"),
    *("max_capacity_wait_seconds", "max_failures", "max_restarts", "max_silence_seconds", "max_wait_seconds"),
    "runtime_includes_waiting",
}


def test_the_planned_cluster_hands_on_every_variable_with_the_module_s_type():
    """Region is of the root's provider. A new variable of the module has to be somewhere."""
    declared = {name: one_line(text) for name, text in variables_of(assets.load_module("gpu-cluster")).items()}
    wrapper = assets.load_module("planned-cluster")
    handed_on = dict(re.findall(r"(?m)^  (\w+) += var\.(variables|options)\.\1$", wrapper["main.tf"]))
    assert {name for name, where in handed_on.items() if where == "variables"} == set(VARIABLES) - {"region"}
    assert set(handed_on) | LEFT_AT_THEIR_DEFAULTS == set(declared)
    given = one_line(wrapper["variables.tf"])
    for name, kind in VARIABLES.items():
        assert f" {name} = {hcl(kind)} " in given
        assert name == "region" or f" type = {hcl(kind)} " in declared[name], name
    for name in (name for name, where in handed_on.items() if where == "options"):
        kind = re.findall(rf" {name} = optional\((\S+)\) ", given)
        assert f" type = {kind[0]} " in declared[name], name


def one_line(text: str) -> str:
    return " ".join(text.replace(",", "").split())


def hcl(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind[0] == "object":
        return "object({ " + " ".join(f"{name} = {hcl(inner)}" for name, inner in kind[1].items()) + " })"
    return f"{kind[0]}({hcl(kind[1])})"


def test_a_decision_is_kept_until_something_that_it_was_told_changes(said):
    state, private = planned(said)
    assert planned(said, state, private) == (state, private)
    moved = planned({**said, "deadline": "12h"}, state, private)[0]
    assert moved["max_runtime_hours"] != state["max_runtime_hours"] or moved["plan_sha256"] != state["plan_sha256"]


def test_a_comment_in_the_job_changes_no_decision(said):
    state, private = planned(said)
    state["plan_sha256"] = "kept"
    again, _ = planned({**said, "job": f"# Mine.\n{said['job']}"}, state, private)
    assert again["plan_sha256"] == "kept"


@pytest.mark.parametrize("attribute", ["keepers", "measurements", "catalog"])
def test_what_is_named_is_an_input_and_what_is_not_named_is_none(said, attribute, tmp_path):
    state, private = planned(said)
    state["plan_sha256"] = "kept"
    (tmp_path / "catalog-2026-08-01.json").write_text(assets.embedded_catalog().read_text())
    (tmp_path / "measurements.jsonl").write_text("")
    assert planned(said, state, private)[0]["plan_sha256"] == "kept"
    values = {"keepers": {"month": "2"}, "measurements": "measurements.jsonl", "catalog": "catalog-2026-08-01.json"}
    again = planned({**said, attribute: values[attribute]}, state, private)[0]
    # The same prices under another name are the same prices.
    assert (again["plan_sha256"] == "kept") is (attribute == "catalog")


def test_a_file_that_is_named_is_read_again_at_every_plan(said, tmp_path):
    prices = tmp_path / "prices.json"
    text = assets.embedded_catalog().read_text()
    prices.write_text(text)
    named = {**said, "catalog": "prices.json"}
    state, private = planned(named)
    state["plan_sha256"] = "kept"
    assert planned(named, state, private)[0]["plan_sha256"] == "kept"
    prices.write_text(text + "\n")
    assert planned(named, state, private)[0]["plan_sha256"] != "kept"


def test_nothing_is_decided_before_the_inputs_are_known(said):
    state, private = planned({**said, "deadline": UNKNOWN})
    assert {state[row.name] for row in COMPUTED} == {UNKNOWN}
    request = MESSAGES["Apply"](
        type_name=TYPE_NAME,
        planned_state=encoded(state),
        config=encoded({**said, "deadline": "20h"}),
        planned_private=private,
    )
    reply = answer("ApplyResourceChange", request)
    applied = decoded(reply.new_state)
    assert applied["deadline"] == "20h"
    assert applied["node_count"] >= 1
    assert json.loads(reply.private)["job"]


def test_apply_keeps_what_was_planned_and_delete_forgets_it(said):
    state, private = planned(said)
    request = MESSAGES["Apply"](type_name=TYPE_NAME, planned_state=encoded(state), planned_private=private)
    assert decoded(answer("ApplyResourceChange", request).new_state) == state
    assert decoded(answer("PlanResourceChange", change(None, state)).planned_state) is None
    gone = MESSAGES["Apply"](type_name=TYPE_NAME, planned_state=encoded(None))
    assert decoded(answer("ApplyResourceChange", gone).new_state) is None


@pytest.mark.parametrize(
    ("attribute", "limit"), [("max_usd_p95", 0.5), ("max_hours_p95", 0.1), ("max_usd", 1)], ids=lambda value: str(value)
)
def test_a_limit_fails_the_plan_with_the_reason_also_where_the_decision_is_kept(said, attribute, limit):
    state, private = planned(said)
    for asked in (change({**said, attribute: limit}), change({**said, attribute: limit}, state, private)):
        where, reason = complaint(answer("PlanResourceChange", asked))
        assert where == attribute
        assert " is " in reason
        assert "above" in reason


@pytest.mark.parametrize(
    ("changes", "where", "reason"),
    [
        ({"job": "name: [1"}, "job", "not valid YAML"),
        ({"job": "name: small\nworkloads: {}\n"}, "job", "line 2: workloads: unknown key; did you mean workload?"),
        ({"deadline": "8x"}, "deadline", "'8x' is not a duration"),
        ({"budget": "-3"}, "budget", ""),
        ({"objective": "fast"}, "objective", "'fast' is not one of"),
        ({"nodes": "0..2"}, "nodes", ""),
        ({"confidence": 7}, "confidence", ""),
        ({"regions": ["us-east-l"]}, "regions", "did you mean us-east-1"),
        ({"instance_types": ["g55.*"]}, "instance_types", ""),
        ({"measurements": "gone.jsonl"}, "measurements", "gone.jsonl: no such file"),
        ({"catalog": "gone.json"}, "catalog", "gone.json: no such file"),
        ({"deadline": "1s"}, "job", "no feasible plan"),
    ],
)
def test_what_is_wrong_is_said_beside_the_attribute(said, changes, where, reason):
    found = complaint(answer("PlanResourceChange", change(said | changes)))
    assert found[0] == where
    assert reason in found[1]


def test_a_policy_that_nodes_carry_out_needs_the_folder(said):
    job = said["job"].replace("  nodes:", "  spot: always\n  on_demand_fallback: true\n  nodes:")
    where, reason = complaint(answer("PlanResourceChange", change(said | {"job": job})))
    assert (where, "constraints.on_demand_fallback" in reason, "scav plan" in reason) == ("job", True, True)


def test_validation_finds_what_needs_no_files_and_waits_for_what_is_not_known(said):
    assert complaint(answer("ValidateResourceConfig", config({**said, "deadline": "8x"})))[0] == "deadline"
    assert not answer("ValidateResourceConfig", config({**said, "deadline": UNKNOWN})).diagnostics
    assert not answer("ValidateResourceConfig", config({**said, "catalog": "later.json"})).diagnostics


def test_a_bug_is_a_diagnostic_and_no_broken_connection(said, monkeypatch, capfd):
    monkeypatch.setattr(kept, "is_kept", lambda *_: 1 / 0)
    state, private = planned(said)
    where, reason = complaint(answer("PlanResourceChange", change(said, state, private)))
    assert (where, "ZeroDivisionError" in reason) == ("", True)
    assert "Traceback" in capfd.readouterr().err


def test_warnings_of_a_plan_are_diagnostics(said):
    reply = answer("PlanResourceChange", change(said))
    assert {each.severity for each in reply.diagnostics} == {WARNING}
    assert "before apply, the job must say" in reply.diagnostics[0].detail


def read_data(name: str, said: dict[str, Any]) -> Any:
    return answer("ReadDataSource", MESSAGES["Config"](type_name=name, config=encoded(said)))


def test_data_is_the_same_plan_as_the_resource_s(said):
    state, _ = planned(said)
    asked = {name: value for name, value in said.items() if name != "keepers"}
    found = decoded(read_data(TYPE_NAME, asked).state)
    assert found == {name: value for name, value in state.items() if name != "keepers"}
    assert complaint(read_data(TYPE_NAME, asked | {"max_usd": 1}))[0] == "max_usd"


def test_offers_are_those_of_the_catalogue(run_scav, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = dict.fromkeys(row.name for row in DATA_OFFERS) | {"queries": ["g5.*"], "regions": ["us-east-1"]}
    rows = decoded(read_data("scav_offers", asked).state)["offers"]
    listed = json.loads(run_scav("catalog", "list", "g5.*", "--json").stdout)["machines"]
    assert [row["instance_type"] for row in rows] == [row["instance_type"] for row in listed]
    assert [float(row["on_demand_usd"]) for row in rows] == [row["on_demand_usd"] for row in listed]
    everything = decoded(read_data("scav_offers", dict.fromkeys(asked)).state)["offers"]
    assert len(everything) > len(rows)
    assert complaint(read_data("scav_offers", asked | {"regions": ["us-east-l"]}))[0] == "regions"
    assert complaint(read_data("scav_offers", asked | {"queries": ["g55.*"]}))[0] == "queries"
    assert complaint(read_data("scav_offers", asked | {"catalog": "gone.json"}))[0] == "catalog"


def upgraded(state: dict[str, Any], version: int) -> Any:
    raw = MESSAGES["RawState"](json=json.dumps(state).encode())
    return answer("UpgradeResourceState", MESSAGES["OldState"](type_name=TYPE_NAME, version=version, raw_state=raw))


def test_a_state_of_another_version_is_taken_over(said):
    """From version 0 on: what that had is kept, what it lacked is null, and what is no more is left out."""
    state, private = planned(said)
    old = {name: value for name, value in state.items() if name != "evidence"} | {"retired": [1]}
    taken = decoded(upgraded(old, 0).upgraded_state)
    assert taken == state | {"evidence": None}
    assert planned(said, taken, private)[0] == taken


def test_a_state_that_terraform_sent_for_version_0_is_still_understood(said):
    """The request as Terraform 1.11 sent it, of a state that scav 0.1.0 wrote for this job: it stays what it is."""
    recorded = (GOLDEN / "upgrade-state-0.bin").read_bytes()
    state = decoded(answer("UpgradeResourceState", MESSAGES["OldState"].FromString(recorded)).upgraded_state)
    assert (state["instance_type"], state["usd_p95"], state["scav_version"]) == ("g5.12xlarge", "240.077", "0.1.0")
    assert state["job"] == said["job"]
    assert planned(said, state, b"{}")[0] == state


def test_a_state_of_a_newer_version_is_refused():
    assert "newer scav" in complaint(upgraded({}, STATE_VERSION + 1))[1]


def test_the_decision_of_a_workspace_is_taken_over_and_kept(said, run_scav, tmp_path):
    (tmp_path / "scav.yaml").write_text(said["job"])
    assert run_scav("plan", str(tmp_path), "--out", "cluster").exit_code == 0
    (found,) = answer("ImportResourceState", MESSAGES["Import"](type_name=TYPE_NAME, id="cluster")).imported_resources
    state = decoded(found.state)
    assert state["plan_sha256"] == store.sha256(Path("cluster/scav.plan.json").read_text())
    state["evidence"] = "kept"
    assert planned(said, state, found.private)[0] == state | {"job": said["job"]}


def test_importing_what_is_no_workspace_says_what_would_be():
    reply = answer("ImportResourceState", MESSAGES["Import"](type_name=TYPE_NAME, id="/nowhere"))
    assert "/nowhere" in complaint(reply)[1]


def test_options_of_scav_plan_and_attributes_have_the_same_names(run_scav):
    helped = run_scav("plan", "--help").output
    for row in OVERRIDES:
        option = row.name.removesuffix("s") if row.name in {"regions", "instance_types"} else row.name
        assert f"--{option.replace('_', '-')}" in helped
