"""With `input: jpeg`, a type whose vCPUs cannot feed its GPUs is only chosen if no other keeps the limits."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from small_world import candidate
from test_plan import plan_example

from planner.errors import NoFeasiblePlan
from planner.outside.input_files import load_plan_inputs
from planner.plan.build import make_plan
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, plan_page
from planner.plan.schema import Plan, format_plan
from planner.search.ranking import choose
from planner.search.survey import take_survey

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
IMAGES_PER_VCPU = 97.3  # a second, the table's median
FAMILIES = [["*"], ["g5.*"], ["g4dn.*", "g6.*"], ["g6e.*"], ["p*"], ["V100", "A100"], ["*.xlarge", "*.2xlarge"]]
LIMITS: list[dict[str, Any]] = [
    {"deadline": "24h", "budget": "$400"},
    {"deadline": "3h"},
    {"deadline": "100h", "budget": "$90"},
    {"budget": "$400", "objective": "time"},
    {"budget": "$2000", "objective": "time"},
    {"objective": "knee"},
]
REGIONS = [["us-east-1"], ["eu-west-1", "us-west-2"]]
QUICK = [(LIMITS[0], REGIONS[0], ["*"]), (LIMITS[3], REGIONS[1], ["*"]), (LIMITS[5], REGIONS[0], ["g5.*"])]
EVERY = [case for case in itertools.product(LIMITS, REGIONS, FAMILIES) if case not in QUICK]


def chosen(limits: dict[str, Any], regions: list[str], types: list[str]) -> Plan | None:
    overrides = {"deadline": None, "budget": None, **limits, "regions": regions, "instance_types": types}
    inputs = load_plan_inputs(EXAMPLE, overrides, None)
    try:
        return make_plan(inputs, take_survey(inputs))
    except NoFeasiblePlan:
        return None


def vcpus_per_gpu(plan: Plan) -> float:
    inputs = load_plan_inputs(EXAMPLE, {}, None)
    instance_type = inputs.catalog.instance_type_by_name[plan.choice.instance_type]
    return instance_type.vcpu / instance_type.gpu_count


def check(plan: Plan) -> None:
    """By the plan's own step: a GPU that computes takes at least what the whole step, feeding included, lets it."""
    choice = plan.choice
    taken = choice.gpu_batch * choice.accumulation_steps / plan.estimate.step_seconds.p50
    assert plan.feeding is not None
    assert not plan.feeding.limits, choice
    assert vcpus_per_gpu(plan) * IMAGES_PER_VCPU >= taken, choice


@pytest.mark.parametrize("case", QUICK)
def test_the_example_is_fed(case: tuple[dict[str, Any], list[str], list[str]]) -> None:
    plan = chosen(*case)
    assert plan is not None
    check(plan)


@pytest.mark.slow
def test_it_is_fed_whatever_limits_regions_and_types_are_allowed() -> None:
    plans = [plan for case in EVERY if (plan := chosen(*case)) is not None]
    assert len(plans) > 60
    for plan in plans:
        check(plan)
        assert not any(option.limited_by_feeding for option in plan.pareto)


def test_where_nothing_feeds_the_hours_are_those_of_feeding() -> None:
    plan = plan_example(instance_types=["g5.xlarge"], deadline=None, budget=None, nodes="4", spot="never")
    assert plan.feeding is not None
    assert (plan.feeding.limits, plan.feeding.by) == (True, "processors")
    fed = plan.feeding.samples_per_second
    assert fed is not None
    assert fed.p50 == pytest.approx(4 * IMAGES_PER_VCPU, rel=1e-4)
    fastest = plan.estimate.samples.p50 / (4 * fed.p50) / 3600
    assert fastest < plan.estimate.hours.p50 < 1.35 * fastest
    text = " ".join(page_text(plan_page(plan)).split())
    assert "Feeding limits: 4 vCPUs per GPU prepare 389 samples/s (134 to 1,134), a GPU could take" in text
    assert "limited by feeding**" in cost_markdown(plan)
    assert "Feeding the GPUs: limits: 4 vCPUs per GPU" in cost_markdown(plan)


def test_rows_say_what_waits_for_data() -> None:
    plan = plan_example(instance_types=["g5.xlarge", "g5.4xlarge"], spot="never")
    assert plan.choice.instance_type == "g5.4xlarge"
    (other,) = [row for row in plan.alternatives if row.instance_type == "g5.xlarge"]
    assert other.limited_by_feeding
    assert "its GPUs wait for data (389 of" in other.why_not
    shown = json.loads(format_plan(plan))["alternatives"]
    assert {row["instance_type"]: row.get("limited_by_feeding") for row in shown} == {
        **{row.instance_type: None for row in plan.alternatives},
        "g5.xlarge": True,
    }


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("other", "what preparing a sample takes is not known, so it is not in hours and dollars; probes with"),
        ("tokens", "tokens are only read; without their source and bytes_per_sample that is not in hours and dollars"),
    ],
)
def test_a_plan_says_what_is_not_in_its_price(tmp_path: Path, said: str, statement: str) -> None:
    text = (EXAMPLE / "scav.yaml").read_text()
    plans = []
    for name, pipeline in (("with", f"  input: {said}"), ("without", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scav.yaml").write_text(
            "\n".join(pipeline if line.startswith("  input:") else line for line in text.splitlines())
        )
        plans.append(make_plan(load_plan_inputs(tmp_path / name, {"instance_types": ["g5.*"]}, None)))
    with_input, without = (json.loads(format_plan(plan)) for plan in plans)
    assert with_input.pop("feeding")["statement"].startswith(statement)
    assert "feeding" not in without
    assert "limited_by_feeding" not in json.dumps(without)
    assert with_input["inputs"].pop("job_sha256") != without["inputs"].pop("job_sha256")
    assert with_input == without


def test_one_that_is_fed_goes_before_a_cheaper_one_that_is_not() -> None:
    dear, cheap = candidate(usd=20.0), candidate(instance_type="g1.two", usd=10.0, fed=False)
    assert choose([cheap, dear], "cost") is dear
    assert choose([cheap, dear], "knee") is dear
    assert choose([cheap], "cost") is cheap


def test_types_without_units_for_the_precision_are_not_asked_whether_they_feed(tmp_path):
    text = (EXAMPLE / "scav.yaml").read_text(encoding="utf-8").replace("precision: fp16", "precision: bf16")
    (tmp_path / "scav.yaml").write_text(text, encoding="utf-8")
    inputs = load_plan_inputs(tmp_path, {}, None)
    plan = make_plan(inputs, take_survey(inputs))
    assert plan.choice.instance_type != "g4dn.2xlarge"  # its T4 has no bf16
