"""The sentences of a plan, word by word: each number in them follows from the candidates beside it."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import candidate, job

from planner.columns import Quantiles
from planner.inputs.measurements import Measurement
from planner.plan.wording import evidence, job_summary, sensitivity, why, why_mix, why_not
from planner.probing.further_probe import FurtherProbe
from planner.probing.sentences import convergence_source, not_worth, worth

CHOICE = candidate(hours=10.0, usd=20.0)
ROW = Measurement(instance_type="g1.one", nodes=1, gpus_per_node=1, gpu_batch=2, precision="bf16", step_seconds=0.1)


def further(**changes: Any) -> FurtherProbe:
    usual: dict[str, Any] = {
        "instance_type": "g1.two",
        "nodes": 2,
        "gpu_batch": 64,
        "price_usd": 3.0,
        "gain_usd": 12.0,
        "gain": 0.25,
        "of_hours": False,
    }
    return FurtherProbe(**{**usual, **changes})


class TestSummary:
    def test_names_the_limits_that_there_are(self) -> None:
        assert job_summary(job()) == "small: 36 k samples at batch 4"
        both = job({"deadline": "36h", "budget": "$400"})
        assert job_summary(both) == "small: 36 k samples at batch 4 · deadline 36 h · budget $400"

    @pytest.mark.parametrize(
        ("constraints", "objective", "expected"),
        [
            ({}, "cost", "cheapest of 1,234 candidates with 95 % confidence; "),
            ({"deadline": "9h"}, "cost", "cheapest of 1,234 candidates that keep the limit with 95 % confidence; "),
            (
                {"deadline": "9h", "budget": "$9", "confidence": 0.8},
                "time",
                "fastest of 1,234 candidates that keep both limits with 80 % confidence; ",
            ),
            ({}, "knee", "best trade of hours for dollars of 1,234 candidates with 95 % confidence; "),
        ],
    )
    def test_why_this_one(self, constraints: Any, objective: str, expected: str) -> None:
        said = why(job(constraints, objective=objective), 1234, candidate(global_batch=4096), 0.9, 0.75)
        assert said == expected + "batch 4,096 keeps 90 % statistical and 75 % parallel efficiency"


class TestWhyMix:
    @pytest.mark.parametrize(
        ("base", "expected"),
        [
            (0, "no on-demand node, and 4 spot"),
            (1, "one on-demand node, which hosts the rendezvous, and 3 spot"),
            (2, "2 on-demand nodes, which lose less time, and 2 spot"),
        ],
    )
    def test_says_what_the_base_is_for(self, base: int, expected: str) -> None:
        assert why_mix(candidate(market="spot", nodes=4, on_demand_count=base), []) == expected

    def test_says_what_the_type_costs_on_demand_alone(self) -> None:
        others = [
            candidate(usd=Quantiles(10, 30, 50)),
            candidate(usd=Quantiles(10, 40, 45)),
            candidate(usd=Quantiles(1, 2, 3), instance_type="g1.two"),
            candidate(usd=Quantiles(1, 2, 3), market="spot"),
        ]
        said = why_mix(candidate(market="spot", nodes=2, on_demand_count=0), others)
        assert said == "no on-demand node, and 2 spot; on demand alone this type costs at least $40.00"


class TestWhyNot:
    @pytest.mark.parametrize(
        ("hours", "usd", "expected"),
        [
            (10.0, 40.0, "2.0x dearer"),
            (10.0, 24.0, "20 % dearer"),
            (10.0, 30.0, "1.5x dearer"),
            (5.0, 40.0, "2.0x dearer, 2.0x faster"),
            (12.0, 16.0, "25 % cheaper, 20 % slower"),
            (10.04, 20.08, "as good; ties go by name"),
            (10.0, 20.2, "1 % dearer"),
        ],
    )
    def test_compares_at_the_asked_confidence(self, hours: float, usd: float, expected: str) -> None:
        assert why_not(candidate(hours=hours, usd=usd), CHOICE, job()) == expected

    def test_a_broken_limit_comes_first(self) -> None:
        limited = job({"deadline": "12h", "budget": "$30"})
        assert why_not(candidate(hours=12.5, usd=40), CHOICE, limited) == "may miss the deadline (12.5 h)"
        assert why_not(candidate(hours=12.0, usd=40), CHOICE, limited) == "may exceed the budget ($40.00)"
        assert why_not(candidate(hours=12.0, usd=30), CHOICE, limited) == "1.5x dearer, 20 % slower"


class TestSensitivity:
    CHEAPER = candidate(hours=30.0, usd=15.0, nodes=2)
    FASTER = candidate(hours=5.0, usd=50.0, nodes=3)

    def said(self, objective: str, **constraints: Any) -> list[str]:
        return sensitivity(CHOICE, [CHOICE, self.CHEAPER, self.FASTER], job(constraints, objective=objective))

    def test_without_limits_there_is_nothing_to_move(self) -> None:
        assert self.said("cost") == []

    def test_a_later_deadline_would_save(self) -> None:
        assert self.said("cost", deadline="12h") == ["deadline 12 h: 30 h would save 25 % (2 x g1.one)"]

    def test_a_larger_budget_would_be_faster(self) -> None:
        assert self.said("time", budget="$30") == ["budget $30.00: $50.00 would be 50 % faster (3 x g1.one)"]

    def test_where_more_would_gain_nothing_the_limit_can_fall_so_far(self) -> None:
        assert self.said("time", deadline="12h", budget="$30") == [
            "deadline 12 h: the choice is the same for any above 10 h",
            "budget $30.00: $50.00 would be 50 % faster (3 x g1.one)",
        ]
        assert self.said("cost", budget="$30") == ["budget $30.00: 30 h would save 25 % (2 x g1.one)"]

    def test_a_knee_has_no_single_gain(self) -> None:
        assert self.said("knee", deadline="12h") == ["deadline 12 h: the choice is the same for any above 10 h"]


class TestEvidence:
    def test_without_probes(self) -> None:
        said = evidence(CHOICE, [], "from a wide prior", None, None)
        assert said == (
            "no probes yet: step time from data sheets only, convergence from a wide prior; "
            "no probe is expected to repay its price"
        )

    def test_counts_measurements(self) -> None:
        said = evidence(CHOICE, [ROW], "from 3 batch sizes", None, None)
        assert said == "1 measurement, convergence from 3 batch sizes; no further probe is expected to repay its price"
        assert evidence(CHOICE, [ROW, ROW], "x", None, None).startswith("2 measurements, convergence x; ")

    def test_says_what_lies_outside(self) -> None:
        far = candidate(extrapolated=True, global_batch=4096)
        assert "; no run at batch 4,096 so far; " in evidence(far, [ROW], "x", None, None)
        said = evidence(far, [ROW], "x", "16 nodes, probed up to 4", None)
        assert "the choice lies outside what was measured (16 nodes, probed up to 4), but is best even" in said
        assert "no run at batch" not in said
        assert "no run at batch" not in evidence(CHOICE, [ROW], "x", None, None)

    def test_says_what_one_more_probe_is_worth(self) -> None:
        probe = "2 x g1.two at local batch 64 for about $3.00, is expected to save $12.00"
        assert evidence(CHOICE, [ROW], "x", None, further()).endswith(f"one more probe, {probe}")
        assert evidence(CHOICE, [], "x", None, further()).endswith(f"a probe, {probe}")
        assert evidence(CHOICE, [], "x", None, further(gain_usd=2.0)).endswith(
            "no probe is expected to repay its price"
        )


class TestProbes:
    def test_a_probe_repays_when_it_saves_more_than_it_costs_and_not_next_to_nothing(self) -> None:
        assert further().repays
        assert not further(gain_usd=3.0).repays
        assert not further(gain=0.0001).repays

    def test_worth_in_hours_or_in_dollars(self) -> None:
        assert worth(further(of_hours=True), first=False).endswith("is expected to save 25 % of the hours")
        assert worth(further(gain_usd=1.0), first=True) == (
            "no probe is expected to repay its price "
            "(the best, 2 x g1.two at local batch 64, costs about $3.00 and saves $1.00)"
        )
        assert not_worth(first=False) == "no further probe is expected to repay its price"

    def test_what_samples_come_from(self) -> None:
        runs = {"convergence": {"runs": [{"batch": 8, "samples": 40000}, {"batch": 16, "samples": 50000}]}}
        assert convergence_source(job(**runs), 100.0) == "from 3 batch sizes"
        assert convergence_source(job(convergence={"noise_scale": 500}), 100.0) == "from the given noise scale"
        assert convergence_source(job(), 1234.0) == "from a measured noise scale of 1,234 samples"
        assert convergence_source(job(), None) == "from a wide prior"
