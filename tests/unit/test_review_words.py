"""What a plan, a forecast and a fit read like, line by line: every figure in the text is one of the plan's own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from small_world import candidate, job
from test_plan_writer import on_spot, write

from planner.columns import Quantiles
from planner.contract import Interval
from planner.plan.forecast import Forecast
from planner.plan.ratios import change_text, hours_cell
from planner.plan.review.cost import change_between, exceeded, review_cost
from planner.plan.review.decision import interrupted_text, left_out_text, spot_text
from planner.plan.review.fit_text import fit_text
from planner.plan.review.forecast_text import forecast_text, seconds_text, sweep_text
from planner.plan.review.lines import columns, entry, mix_text, table
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, plan_page, review_page
from planner.plan.schema import LeftOut, Plan
from planner.probing.fit_report import ErrorEntry, FitReport

OTHERS = (
    candidate(instance_type="g1.two", nodes=2, on_demand_count=2, hours=5.0, usd=40.0, global_batch=8),
    candidate(market="spot", hours=12.0, usd=24.0),
)
CHOSEN = candidate(hours=Quantiles(8.0, 10.0, 12.0), usd=Quantiles(16.0, 20.0, 24.0))
LIMITED = job({"deadline": "12h", "budget": "$30"})
PLAN = write(CHOSEN, LIMITED, others=OTHERS)
BARE = write(candidate(hours=0.5, usd=20.0))


def plan_text(plan: Plan, **options: bool) -> str:
    return page_text(plan_page(plan, **options))


def in_one_line(text: str) -> str:
    return " ".join(text.split())


class TestPlan:
    def test_the_decision_first_then_why_then_what_stands_beside_it(self) -> None:
        # 12 h at most 15 h, and two hours more to start and to stop, at $1.0224: $17.38.
        assert plan_text(PLAN).splitlines() == [
            "Cluster  1 x g1.one (1 x unit), 1 on-demand, near near-az1",
            "Time     10 h (8 to 12 h in 9 of 10 runs); deadline 12 h kept in 95 %",
            "Cost     $17.38 ($16.00 to $17.38); budget $30.00 kept in >99 %; at most $17.38",
            "",
            "Why      cheapest of 7 candidates that keep both limits with 95 % confidence;",
            "         batch 4 keeps 100 % statistical and 100 % parallel efficiency",
            "What if  deadline 12 h: the same for any above 12 h",
            "         budget $30.00: the same for any above $17.38",
            "         no probe is expected to repay its price",
            "",
            "   cluster     spot  batch  hours   p95  dollars     p95  why not",
            "1  1 x g1.one     0      4   10.0  12.0   $17.38  $17.38  the choice",
            "2  1 x g1.one     1      4   12.0  12.0   $24.00  $24.00  38 % dearer",
            "3  2 x g1.two     0      8    5.0   5.0   $40.00  $40.00  may exceed the budget",
            "                                                          ($40.00)",
            "All rows: the same simulated runs.",
            "",
            "Job      small: 36 k samples at batch 4 · deadline 12 h · budget $30.00",
            "Batch    4 = 1 GPU x 4 samples; learning rate x 1 (square root)",
            "Quota    4 vCPUs on demand, of G types",
        ]

    def test_without_limits_and_alternatives(self) -> None:
        text = plan_text(BARE)
        assert "Time     30 min (30 to 30 min in 9 of 10 runs)\n" in text
        assert "kept in" not in text
        assert "why not" not in text
        assert "All rows" not in text

    def test_more_than_the_budget_is_said_when(self) -> None:
        text = in_one_line(plan_text(write(CHOSEN, job({"budget": "$15"}))))
        assert "; only if it ran until stopped at 15 h, all on demand, would it cost $17.38" in text
        assert "at most" not in text

    def test_a_mix_and_micro_steps(self) -> None:
        row = candidate(market="spot", nodes=4, on_demand_count=1, accumulation_steps=3, global_batch=48)
        now, outcome = on_spot(row)
        plan = write(now, outcome=outcome)
        text = in_one_line(plan_text(plan))
        assert "4 x g1.one (4 x unit), 1 on-demand + 3 spot, near near-az1" in text
        assert "Batch 48 = 4 GPUs x 4 samples x 3 micro-steps; learning rate x 3.46 (square root)" in text
        assert "Quota 4 vCPUs on demand and 12 vCPUs spot, of G types" in text
        assert "nobody has measured this zone" in text
        assert "interruption class" not in text
        details = in_one_line(plan_text(plan, verbose=True))
        assert "(assumed from public recordings of other zones, nobody has measured this one: a loss every" in details
        assert "AWS's class of January 2026 (5 to 10 % taken back in a month) is weak evidence)" in details
        assert "; checkpoint every 10 min;" in details
        assert "one on-demand node, which hosts the rendezvous, and 3 spot" in details
        assert "Evidence no probes yet: step time from data sheets only" in details
        assert "Unpriced a NAT gateway, data transfer" in details
        assert "does not fit the notice" not in details
        assert "counts on scav.policy.json" not in details

    def test_other_zones_are_named(self) -> None:
        now, outcome = on_spot(candidate(market="spot", zone="near-az1"))
        assert "near near-az1 or near-az2\n" in plan_text(write(now, outcome=outcome))

    def test_mixes(self) -> None:
        assert (mix_text(3, 3), mix_text(0, 2), mix_text(1, 4)) == ("3 on-demand", "2 spot", "1 on-demand + 3 spot")

    @pytest.mark.parametrize(
        ("share", "text"),
        [
            (0.0, "hardly any run is interrupted"),
            (0.006, "about 1 in 167 runs is interrupted"),
            (0.1, "about 1 in 10 runs is interrupted"),
            (0.33, "about 1 in 3 runs is interrupted"),
            (0.42, "about 4 in 10 runs are interrupted"),
            (1.0, "nearly every run is interrupted"),
        ],
    )
    def test_interruptions_for_whoever_never_used_spot_nodes(self, share: float, text: str) -> None:
        assert interrupted_text(share) == text

    def test_what_spot_saves_is_the_difference_of_what_is_shown(self) -> None:
        now, outcome = on_spot(candidate(market="spot", zone="near-az2"))
        text = spot_text(write(now, outcome=outcome))
        found = re.search(r"spot saves \$([\d.]+): \$([\d.]+) instead of \$([\d.]+) on demand", text)
        assert found is not None
        saved, usd, on_demand = map(float, found.groups())
        assert saved == pytest.approx(on_demand - usd)
        # 9,000 steps of 3.2 s, a save of 20 s in every 10 min, six minutes to start.
        assert on_demand == pytest.approx((8 * (1 + 20 / 600) + 0.1) * 1.0224, rel=0.02)

    def test_who_took_no_part(self) -> None:
        reasons = {"have too little GPU memory": 30, "are not sold here": 1}
        plan = PLAN.model_copy(update={"left_out": LeftOut(considered=51, reasons=reasons)})
        assert left_out_text(plan) == "31 of 51 types: 30 have too little GPU memory; 1 is not sold here"
        assert left_out_text(PLAN) == ""


class TestReview:
    def test_guardrails_hold_at_exactly_their_limit(self) -> None:
        usd, hours = PLAN.estimate.usd, PLAN.estimate.hours
        kept = review_cost(PLAN, max_usd=usd.p95, max_hours=hours.p95, max_possible_usd=usd.max)
        assert [rail.kept for rail in kept.guardrails] == [True, True, True]
        assert exceeded(kept) == []
        broken = review_cost(PLAN, max_usd=10.0, max_hours=11.5, max_possible_usd=15.0)
        assert exceeded(broken) == [
            "p95 cost $17.38 exceeds --max-usd $10.00",
            "p95 time 12 h exceeds --max-hours 11.5 h",
            "the most it can cost, $17.38 exceeds --max-possible-usd $15.00",
        ]
        text = page_text(review_page(PLAN, broken))
        assert text.startswith("Limit    max usd $10.00: $17.38, EXCEEDED\nLimit    max hours 11.5 h: 12 h, EXCEEDED\n")
        kept_text = page_text(review_page(PLAN, review_cost(PLAN, max_usd=20.0)))
        assert kept_text.startswith("Limit    max usd $20.00: $17.38, kept\n\nCluster  ")

    def test_where_the_dollars_go(self) -> None:
        # 10 hours of storage at $0.0224; the rest of $20.
        text = page_text(review_page(PLAN, review_cost(PLAN)))
        assert "Dollars  machines $19.78, rework $0.00, storage $0.22, network $0.00\n" in text
        assert "Unpriced a NAT gateway, data transfer out of the zone or region" in text
        assert "Change" not in text

    def test_changes_between_two_plans(self) -> None:
        change = change_between(BARE, PLAN)
        assert change.hours_p50 == pytest.approx(9.5)
        assert change.usd_p50 == pytest.approx(PLAN.estimate.usd.p50 - BARE.estimate.usd.p50)
        assert change.usd_max == pytest.approx(PLAN.estimate.usd.max - BARE.estimate.usd.max)
        found = {item.name: (item.before, item.after, item.delta) for item in change.differences}
        assert found["hours p50"] == ("30 min", "10 h", "20.0x")
        assert found["hours p95"] == ("30 min", "12 h", "24.0x")
        assert {"cluster", "zone", "memory nodes", "catalogue"} & set(found) == set()
        lines = page_text(review_page(PLAN, review_cost(PLAN, against=BARE))).splitlines()
        # $1.0224 for 45 minutes and half an hour more: $1.28.
        assert lines[0] == "Change   p95 $2.81 -> $17.38 (6.2x), p95 30 min -> 12 h (24.0x)"
        assert "hours p50        30 min  10 h     20.0x" in lines
        same = page_text(review_page(PLAN, review_cost(PLAN, against=PLAN)))
        assert same.startswith("Change   none\n")

    def test_a_cluster_that_differs(self) -> None:
        more = write(candidate(nodes=3, global_batch=12, zone="near-az2", checkpoint_interval_seconds=1200.0))
        change = change_between(write(candidate()), more)
        found = {item.name: (item.before, item.after) for item in change.differences}
        assert found["cluster"] == ("1 x g1.one", "3 x g1.one")
        assert found["zone"] == ("near near-az1", "near near-az2")
        assert found["on-demand + spot"] == ("1 + 0", "3 + 0")
        assert found["checkpoint every"] == ("10 min", "20 min")
        assert found["global batch"] == ("4", "12")
        # One node at $1.0224 and three at $3.0224, for 13 hours at most, which $20 exceeds on one of them.
        assert change.summary == "p95 $14.82 -> $20.00 (+35 %), 1 x g1.one -> 3 x g1.one"

    def test_without_a_change_of_dollars_or_cluster_the_rest_is_named(self) -> None:
        other = write(candidate(zone="near-az2"))
        assert change_between(write(candidate()), other).summary == "zone near near-az1 -> near near-az2"

    @pytest.mark.parametrize(
        ("before", "after", "text"),
        [(76, 88, "+16 %"), (88, 76, "-14 %"), (10, 20, "2.0x"), (100, 100.2, "<1 %"), (5, 5, ""), (0, 5, "")],
    )
    def test_how_much_more(self, before: float, after: float, text: str) -> None:
        assert change_text(before, after) == text


class TestMarkdown:
    def test_the_decision_first(self) -> None:
        text = cost_markdown(PLAN)
        assert text.startswith(
            "# What `small-1` will cost\n\n"
            "**1 x g1.one (1 x unit), 1 on-demand, near near-az1: $17.38 (p95 $17.38) in 10 h (p95 12 h)**\n\n|"
        )
        changed = cost_markdown(PLAN, review_cost(PLAN, max_usd=10.0, against=BARE)).split("\n\n")
        assert changed[2] == "Change: p95 $2.81 -> $17.38 (6.2x), p95 30 min -> 12 h (24.0x)"
        assert changed[3] == "**Exceeded: max usd $10.00**"

    def test_figures_and_limits(self) -> None:
        text = cost_markdown(PLAN)
        assert "| hours | 10 h | 12 h | 15 h | 12 h | 95 % |\n" in text
        assert "| dollars | $17.38 | $17.38 | $17.38 | $30.00 | >99 % |" in text
        assert "| machines | $19.78 |\n| rework after losing spot nodes | $0.00 |\n" in text
        assert "the cluster costs $2.00 an hour. Its nodes stop it 15 h after all of them are there," in text
        assert "Not in these figures: a NAT gateway, data transfer" in text
        assert "- deadline 12 h: the same for any above 12 h\n- budget" in text
        assert "| 1 x g1.one | 0 | 4 | 10.0 | 12.0 | $17.38 | $17.38 | the choice |\n| 1 x g1.one | 1 |" in text
        assert "| quota | 4 vCPUs on demand, of G types |" in text
        assert "7 candidates were compared" in text
        assert "## Guardrails" not in text
        assert "## Change" not in text

    def test_without_limits(self) -> None:
        text = cost_markdown(BARE)
        assert "| hours | 30 min | 30 min | 45 min | none |  |" in text
        assert "## Alternatives" not in text

    def test_guardrails_and_changes(self) -> None:
        text = cost_markdown(PLAN, review_cost(PLAN, max_usd=10.0, max_hours=12.0, against=BARE))
        assert "| max usd | $10.00 | $17.38 | **exceeded** |\n| max hours | 12 h | 12 h | kept |" in text
        assert "| hours p50 | 30 min | 10 h | 20.0x |" in text
        assert "## Change\n\nNone." in cost_markdown(PLAN, review_cost(PLAN, against=PLAN))


class TestTables:
    def test_cells_are_two_spaces_apart(self) -> None:
        assert table([("a", "bbb"), ("cc", "d")], "<>") == ["a   bbb", "cc    d"]
        assert table([], "<>") == []

    def test_long_text_is_wrapped_under_its_label(self) -> None:
        text = entry("Label", "word " * 30)
        assert all(len(line) <= 100 for line in text.splitlines())
        assert text.splitlines()[1].startswith("          word")
        assert entry("Label", "a  b " * 30).count("\n") == 0
        assert entry("Label", "") == "Label"
        assert columns(["a", "", "b"]) == "a" + " " * 33 + "b"

    @pytest.mark.parametrize(
        ("hours", "text"), [(0.5, "0.50"), (0.999, "1.00"), (1, "1.0"), (99.9, "99.9"), (100, "100"), (12345, "12,345")]
    )
    def test_hours_without_a_unit(self, hours: float, text: str) -> None:
        assert hours_cell(hours) == text

    @pytest.mark.parametrize(
        ("seconds", "text"), [(0.25, "250 ms"), (0.9994, "999 ms"), (1, "1.00 s"), (9.99, "9.99 s"), (10, "10.0 s")]
    )
    def test_seconds(self, seconds: float, text: str) -> None:
        assert seconds_text(seconds) == text


def forecast(**changes: Any) -> Forecast:
    around = {
        name: Interval(p05=value / 2, p50=value, p95=value * 2) for name, value in (("hours", 10.0), ("usd", 20.0))
    }
    usual: dict[str, Any] = {
        "instance_type": "g1.two",
        "node_count": 3,
        "gpu": "unit",
        "gpus_per_node": 2,
        "region": "near",
        "availability_zone": "near-az1",
        "market": "on_demand",
        "on_demand_count": 3,
        "global_batch": 1536,
        "gpu_batch": 128,
        "accumulation_steps": 2,
        **around,
        "step_seconds": Interval(p05=0.1, p50=0.2, p95=0.4),
        "samples": Interval(p05=1e6, p50=2e6, p95=4e6),
        "parallel_efficiency": 0.8,
        "statistical_efficiency": 0.9,
        "extrapolated": False,
        "why_extrapolated": None,
    }
    return Forecast(**{**usual, **changes})


class TestForecast:
    def test_one_configuration(self) -> None:
        assert forecast_text(forecast()).splitlines() == [
            "Cluster   3 x g1.two (6 x unit) · near near-az1 · 3 on-demand",
            "Batch     1,536, 128 x 2 on each GPU",
            "Time      10 h             p05 5 h          p95 20 h",
            "Cost      $20.00           p05 $10.00       p95 $40.00",
            "Step      200 ms           p05 100 ms       p95 400 ms",
            "Samples   2 M              p05 1 M          p95 4 M",
            "Scaling   parallel efficiency 80 %, statistical efficiency 90 %",
            "Evidence  within what was measured",
        ]
        far = forecast(extrapolated=True, why_extrapolated="3 nodes, probed up to 2", accumulation_steps=1)
        assert "Evidence  extrapolated: 3 nodes, probed up to 2\n" in forecast_text(far)
        assert "Batch     1,536, 128 on each GPU\n" in forecast_text(far)

    def test_a_sweep_marks_what_lies_beyond(self) -> None:
        rows = [
            forecast(node_count=2),
            forecast(node_count=5, why_extrapolated="5 nodes, probed up to 4", extrapolated=True),
            forecast(
                node_count=6,
                why_extrapolated="6 nodes, probed up to 4; 512 samples per GPU, probed up to 64",
                extrapolated=True,
                usd=Interval(p05=1.5, p50=9.99, p95=12_345.0),
                hours=Interval(p05=0.5, p50=99.94, p95=20_000.0),
            ),
        ]
        lines = sweep_text(rows).splitlines()
        assert lines[0] == "g1.two (2 x unit), near, on demand"
        assert " ".join(lines[2].split()) == "nodes batch local step samples par. stat. hours (90 %) dollars (90 %)"
        assert lines[3].split("  ")[-1].strip() == "20 (10..40)"
        assert lines[4].endswith("20 (10..40)  a")
        assert lines[5].endswith("99.9 (0.50..20k)  9.99 (1.50..12.3k)  ab")
        assert lines[6:] == [
            "",
            "Extrapolated beyond:",
            "  a  nodes: probed up to 4",
            "  b  samples per GPU: probed up to 64",
        ]

    def test_a_sweep_without_marks(self) -> None:
        text = sweep_text([forecast(market="spot", on_demand_count=0)])
        assert text.startswith("g1.two (2 x unit), near, spot\n")
        assert "Extrapolated" not in text


class TestFit:
    def report(self, **changes: Any) -> FitReport:
        usual: dict[str, Any] = {
            "job": "small",
            "measurements": 4,
            "probes": {"g1.one": 2, "g1.two": 1},
            "errors": (
                ErrorEntry(model="scav", beyond="interpolation", probes=2, error=0.012, inside=2),
                ErrorEntry(model="forest", beyond="interpolation", probes=2, error=0.1, inside=1),
                ErrorEntry(model="scav", beyond="extrapolation", probes=1, error=0.5, inside=0),
            ),
            "missing": None,
            "cross_validated_error": 0.1,
            "convergence": "from a wide prior",
            "law_weights": {},
            "limits": ("one", "two"),
            "warnings": (),
            "next_probe": None,
            "advice": "no more",
        }
        return FitReport(**{**usual, **changes})

    def test_errors_between_and_beyond_the_others(self) -> None:
        assert fit_text(self.report()).splitlines() == [
            "Job       small",
            "Evidence  3 probes (2 of g1.one + 1 of g1.two) in 4 measurements; samples to the target from a wide",
            "          prior",
            "",
            "step time of probes left out  model   probes  error  inside their 90 % interval",
            "between the others            scav         2  1.2 %                      2 of 2",
            "                              forest       2   10 %                      1 of 2",
            "beyond the others             scav         1   50 %                      0 of 1",
            "",
            "Limits    one",
            "          two",
            "Next      no more",
        ]

    def test_with_too_few_probes(self) -> None:
        text = fit_text(self.report(errors=(), missing="1 probe so far", probes={"g1.one": 1}, measurements=1))
        assert text.startswith(
            "Job       small\nEvidence  1 probe (1 of g1.one); samples to the target from a wide prior\n"
        )
        assert "Error     1 probe so far\n" in text
        assert fit_text(self.report(probes={}, measurements=0)).splitlines()[1].startswith("Evidence  no probes; ")
