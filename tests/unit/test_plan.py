"""A plan adds up, says why, survives its file, and the review repeats it faithfully."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from planner.errors import InputError, NoFeasiblePlan
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.outside.store import load_catalog, load_job
from planner.plan.build import make_plan
from planner.plan.review.cost import Cost, exceeded, review_cost
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, plan_page, review_page
from planner.plan.schema import Plan, format_plan, parse_plan
from planner.search.pricing import NEAR_TIE

EXAMPLES = Path(__file__).parents[2] / "examples"


def plan_example(name: str = "resnet50-imagenet", measurements: tuple[Measurement, ...] = (), **overrides: Any) -> Plan:
    job_file = load_job(EXAMPLES / name, overrides)
    catalog, catalog_name, digest = load_catalog(None, beside=EXAMPLES)
    provenance = Provenance(
        job_sha256=digest,
        measurements_sha256=None,
        catalog_sha256=digest,
        catalog=catalog_name,
        catalog_date=catalog.date,
    )
    return make_plan(PlanInputs(job_file=job_file, catalog=catalog, measurements=measurements, provenance=provenance))


PLAN = plan_example(nodes="1", spot="never")
MIXED = plan_example(
    instance_types=["g5.xlarge", "g4dn.xlarge"], nodes="2..16", spot="always", deadline="96h", budget="$4000"
)


OTHER = plan_example("gpt2-openwebtext")


@pytest.mark.parametrize("plan", [PLAN, MIXED], ids=["one node", "mixed"])
class TestArithmetic:
    def test_the_batch_is_what_the_gpus_do_together(self, plan: Plan) -> None:
        choice = plan.choice
        gpus = choice.node_count * choice.gpus_per_node
        assert choice.global_batch == gpus * choice.gpu_batch * choice.accumulation_steps
        assert choice.node_count == choice.on_demand_count + choice.spot_count

    def test_dollars_are_hours_times_the_cluster_s_price(self, plan: Plan) -> None:
        estimate = plan.estimate
        whole = estimate.hours.p50 * plan.choice.hourly_usd
        if plan.choice.spot_count:  # spot nodes are not paid while the others wait for them
            assert 0.5 * whole < estimate.usd.p50 < 1.05 * whole
        else:
            assert estimate.usd.p50 == pytest.approx(whole, rel=1e-4)
            assert estimate.usd.p95 / estimate.usd.p50 == pytest.approx(
                estimate.hours.p95 / estimate.hours.p50, rel=1e-4
            )

    def test_the_breakdown_adds_up_to_the_p50(self, plan: Plan) -> None:
        assert sum(plan.estimate.breakdown.model_dump().values()) == pytest.approx(plan.estimate.usd.p50, rel=1e-4)

    def test_nothing_can_cost_more_than_the_maximum(self, plan: Plan) -> None:
        estimate, choice = plan.estimate, plan.choice
        assert estimate.usd.p95 < estimate.usd.max
        assert choice.max_runtime_hours > estimate.hours.p95
        catalog = load_catalog(None, beside=EXAMPLES)[0]
        dearest = max(
            offer.on_demand_usd or 0
            for name in (choice.instance_type, *choice.overrides)
            for offer in catalog.offers_by_type[name]
            if offer.region == choice.region
        )
        assert estimate.usd.max >= choice.max_runtime_hours * choice.node_count * dearest

    def test_steps_times_step_time_explain_the_hours(self, plan: Plan) -> None:
        steps = plan.estimate.samples.p50 / plan.choice.global_batch
        hours = steps * plan.estimate.step_seconds.p50 / 3600
        assert hours < plan.estimate.hours.p50 < (2.0 if plan.choice.spot_count else 1.3) * hours + 0.2

    def test_every_alternative_is_another_cluster_with_a_reason(self, plan: Plan) -> None:
        clusters = [(row.instance_type, row.market) for row in plan.alternatives]
        chosen = (plan.choice.instance_type, "spot" if plan.choice.spot_count else "on_demand")
        assert (chosen in clusters) == ("a near tie" in plan.reason and chosen == clusters[0])
        assert len(set(clusters)) == len(clusters)
        assert all(row.why_not for row in plan.alternatives)


def test_stand_ins_have_the_same_gpus_and_network() -> None:
    catalog = load_catalog(None, beside=EXAMPLES)[0]
    plan = plan_example(
        instance_types=["g5.12xlarge", "g5.24xlarge"], spot="always", nodes="2..4", deadline="400h", budget="$4000"
    )
    alone = plan_example(instance_types=["g5.12xlarge"], spot="always", nodes="2..4", deadline="400h", budget="$4000")
    assert alone.choice.overrides == ()  # the job allows no other type
    kind = catalog.instance_type_by_name[plan.choice.instance_type]
    assert plan.choice.overrides == ("g5.24xlarge",)
    for name in plan.choice.overrides:
        other = catalog.instance_type_by_name[name]
        assert (other.gpu, other.gpu_count, other.efa_interfaces) == (kind.gpu, kind.gpu_count, kind.efa_interfaces)


def test_several_spot_nodes_have_one_on_demand_node_for_the_rendezvous() -> None:
    assert (MIXED.choice.on_demand_count, MIXED.choice.spot_count) == (1, MIXED.choice.node_count - 1)


def test_a_budget_alone_asks_for_the_fastest(tmp_path: Path) -> None:
    text = (EXAMPLES / "resnet50-imagenet" / "scav.yaml").read_text().replace("  deadline: 24h\n", "")
    (tmp_path / "scav.yaml").write_text(text.replace("objective: cost\n", ""))
    assert load_job(tmp_path, {}).job.objective_or_default == "time"


def test_a_tighter_deadline_never_costs_less() -> None:
    dollars = [plan_example(deadline=f"{hours}h", budget="$100000").estimate.usd.p95 for hours in (24, 5, 2)]
    for looser, tighter in itertools.pairwise(dollars):
        assert tighter >= looser / (1 + NEAR_TIE)  # within a near tie the faster one is taken, whatever the deadline


def test_the_knee_lies_between_cheapest_and_fastest() -> None:
    cheapest, knee, fastest = (plan_example(objective=objective) for objective in ("cost", "knee", "time"))
    assert cheapest.estimate.usd.p95 <= knee.estimate.usd.p95 <= fastest.estimate.usd.p95
    assert fastest.estimate.hours.p95 <= knee.estimate.hours.p95 <= cheapest.estimate.hours.p95


def test_without_checkpoints_there_is_no_spot(tmp_path: Path) -> None:
    text = (EXAMPLES / "resnet50-imagenet" / "scav.yaml").read_text()
    (tmp_path / "scav.yaml").write_text(text.replace("checkpoint_bytes: 205MB", "checkpoint_bytes: 0"))
    job_file = load_job(tmp_path, {})
    plan = make_plan(
        PlanInputs(
            job_file=job_file,
            catalog=load_catalog(None, beside=EXAMPLES)[0],
            measurements=(),
            provenance=PLAN.inputs,
        )
    )
    assert plan.choice.spot_count == 0
    assert plan.choice.checkpoint_interval_seconds == 0


def test_no_feasible_plan_names_the_two_nearest_misses_and_what_to_relax() -> None:
    with pytest.raises(NoFeasiblePlan) as caught:
        plan_example(deadline="10min", budget="$20")
    first, *misses = str(caught.value).splitlines()
    assert first == "no feasible plan at 95 % confidence; the nearest misses:"
    assert len(misses) == 2
    assert all("instead of" in miss for miss in misses)


def test_a_model_that_fits_no_gpu_says_so() -> None:
    with pytest.raises(NoFeasiblePlan, match="too little GPU memory"):
        _plan_huge_model()


def _plan_huge_model() -> Plan:
    job_file = load_job(EXAMPLES / "gpt2-openwebtext", {})
    workload = job_file.job.workload.model_copy(update={"parameters": 10**12})
    huge = type(job_file)(
        job=job_file.job.model_copy(update={"workload": workload}), file=job_file.file, lines=job_file.lines
    )
    catalog = load_catalog(None, beside=EXAMPLES)[0]
    return make_plan(PlanInputs(job_file=huge, catalog=catalog, measurements=(), provenance=PLAN.inputs))


def test_measurements_narrow_the_interval_and_count_as_evidence() -> None:
    rows = tuple(
        Measurement(
            instance_type=PLAN.choice.instance_type,
            nodes=1,
            gpus_per_node=8,
            gpu_batch=batch,
            precision="fp16",
            step_seconds=0.001 * batch + 0.01,
            probe_usd=1.5,
        )
        for batch in (64, 192, 256)
    )
    plan = plan_example(measurements=rows, instance_types=[PLAN.choice.instance_type], nodes="1", spot="never")
    assert plan.estimate.hours.p95 / plan.estimate.hours.p50 < PLAN.estimate.hours.p95 / PLAN.estimate.hours.p50
    assert (plan.evidence.probe_count, plan.evidence.probe_usd) == (3, 4.5)
    assert PLAN.evidence.extrapolated


class TestPlanFile:
    def test_reads_back_what_was_written(self) -> None:
        assert parse_plan(format_plan(PLAN), file="scav.plan.json") == PLAN

    def test_validates_against_its_schema(self) -> None:
        jsonschema.validate(json.loads(format_plan(PLAN)), Plan.model_json_schema())

    def test_a_foreign_file_is_refused_with_the_key_at_fault(self) -> None:
        broken = json.loads(format_plan(PLAN)) | {"choice": {}}
        with pytest.raises(InputError, match=r"^scav.plan.json: choice"):
            parse_plan(json.dumps(broken), file="scav.plan.json")


class TestReview:
    @pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
    def test_text_fits_a_terminal_of_any_width(self, width: int) -> None:
        for plan in (PLAN, MIXED, OTHER):
            page = review_page(plan, review_cost(plan, max_usd=1e6, against=PLAN), verbose=True)
            text = page_text(page, Console(width=width, color_system=None))
            assert max(map(len, text.splitlines())) <= width

    def test_the_decision_comes_first(self) -> None:
        lines = page_text(plan_page(PLAN)).splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["Cluster", "Time", "Cost"]
        for label in ("Why ", "What if ", "1  ", "2  ", "Job ", "Batch ", "Quota "):
            assert any(line.startswith(label) for line in lines)
        assert "at most $" in lines[2]

    def test_guardrails_compare_the_p95(self) -> None:
        usd, hours = PLAN.estimate.usd.p95, PLAN.estimate.hours.p95
        assert exceeded(review_cost(PLAN, max_usd=usd, max_hours=hours)) == []
        assert len(exceeded(review_cost(PLAN, max_usd=usd * 0.99, max_hours=hours * 0.99))) == 2

    def test_the_most_it_can_cost_has_a_guardrail_of_its_own(self) -> None:
        most = PLAN.estimate.usd.max
        assert exceeded(review_cost(PLAN, max_usd=most, max_possible_usd=most)) == []
        assert exceeded(review_cost(PLAN, max_usd=most, max_possible_usd=most - 1))

    def test_a_change_lists_what_differs_and_only_that(self) -> None:
        change = review_cost(MIXED, against=PLAN).change
        assert change is not None
        assert change.usd_p50 == pytest.approx(MIXED.estimate.usd.p50 - PLAN.estimate.usd.p50)
        assert {item.name for item in change.differences} >= {"cluster", "dollars p50"}
        same = review_cost(PLAN, against=PLAN).change
        assert same is not None
        assert same.differences == ()

    def test_json_validates_against_its_schema(self) -> None:
        cost = review_cost(MIXED, max_usd=1.0, against=PLAN)
        jsonschema.validate(json.loads(cost.model_dump_json()), Cost.model_json_schema())

    def test_markdown_tables_have_as_many_cells_in_every_row(self) -> None:
        text = cost_markdown(MIXED, review_cost(MIXED, max_usd=1.0, max_hours=1.0, against=PLAN))
        for block in text.split("\n\n"):
            rows = [line for line in block.splitlines() if line.startswith("|")]
            assert len({line.count("|") for line in rows}) <= 1


def test_the_longest_runtime_can_be_asked_for() -> None:
    plan = plan_example(nodes="1", spot="never", max_runtime="40h")
    assert plan.choice.max_runtime_hours == 40
    assert plan.estimate.usd.max > PLAN.estimate.usd.max
