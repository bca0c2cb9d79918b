"""The sentences of a plan, word by word: each number in them follows from the candidates beside it."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import candidate, job

from planner.inputs.measured_noise import MeasuredNoise
from planner.inputs.measurements import Measurement
from planner.plan.wording import evidence, job_summary, probe, sensitivity, why, why_mix, why_not
from planner.probing.further_probe import FurtherProbe
from planner.probing.sentences import convergence_source, not_worth, worth
from planner.search.decision import Chosen
from planner.search.pricing import Candidate
from planner.search.simulated import Simulated

CHOICE = candidate(hours=10.0, usd=20.0)
ROW = Measurement(instance_type="g1.one", nodes=1, gpus_per_node=1, gpu_batch=2, precision="bf16", step_seconds=0.1)


def chosen(row: Candidate = CHOICE, **beside: Any) -> Chosen:
    return Chosen(Simulated.exactly(row), expected=row, **beside)


def further(**changes: Any) -> FurtherProbe:
    usual: dict[str, Any] = {
        "instance_type": "g1.two",
        "nodes": 2,
        "gpu_batch": 64,
        "price_usd": 3.0,
        "gain_usd": 12.0,
        "gain": 0.25,
        "choice_gain": 0.1,
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
        row = chosen(candidate(global_batch=4096))
        said = why(job(constraints, objective=objective), 1234, row, 0.9, 0.75)
        assert said == expected + "batch 4,096 keeps 90 % statistical and 75 % parallel efficiency"

    @pytest.mark.parametrize(
        ("objective", "beaten", "expected"),
        [
            ("cost", {"usd": 19.6}, "is 2 % cheaper (p95 $19.60, not $20.00), a near tie"),
            ("cost", {"usd": 20.0}, "is no dearer (p95 $20.00, not $20.00), a near tie"),
            ("time", {"hours": 9.8}, "is 2 % faster (p95 9.8 h, not 10.0 h), a near tie"),
        ],
    )
    def test_a_near_tie_is_said(self, objective: str, beaten: Any, expected: str) -> None:
        better = candidate(nodes=9, **beaten)
        said = why(job(objective=objective), 7, chosen(beaten=better), 1.0, 1.0)
        assert said.startswith(f"as good as the {'fastest' if objective == 'time' else 'cheapest'} of 7 candidates")
        assert f"; 9 x g1.one {expected}" in said
        other = "cheaper" if objective == "time" else "faster"
        assert f"(5 % or chance), which goes to the {other} and smaller cluster; batch" in said

    def test_a_batch_that_people_would_run_is_said_to_be_one(self) -> None:
        said = why(job(), 7, chosen(beaten=candidate(usd=19.5, usual_batch=False)), 1.0, 1.0)
        assert "which goes to the batch that people would run; " in said


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
        assert why_mix(candidate(market="spot", nodes=4, on_demand_count=base)) == expected


class TestWhyNot:
    @pytest.mark.parametrize(
        ("hours", "usd", "expected"),
        [
            (10.0, 40.0, "2.0x dearer"),
            (10.0, 24.0, "20 % dearer"),
            (10.0, 30.0, "1.5x dearer"),
            (5.0, 40.0, "2.0x dearer, 2.0x faster"),
            (12.0, 16.0, "20 % cheaper, 20 % slower"),
            (10.04, 20.08, "as good"),
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

    def said(self, objective: str, beside: dict[str, Any], **constraints: Any) -> list[str]:
        return sensitivity(chosen(**beside), job(constraints, objective=objective))

    def test_without_limits_there_is_nothing_to_move(self) -> None:
        assert self.said("cost", {}) == []

    def test_a_later_deadline_would_save(self) -> None:
        assert self.said("cost", {"without_deadline": self.CHEAPER}, deadline="12h") == [
            "deadline 12 h: with 30 h, 2 x g1.one at p95 $15.00 instead of $20.00, 25 % cheaper"
        ]

    def test_a_larger_budget_would_be_faster(self) -> None:
        assert self.said("time", {"without_budget": self.FASTER}, deadline="12h", budget="$30", confidence=0.9) == [
            "deadline 12 h: the same for any above 10 h",
            "budget $30.00: with $50.00, 3 x g1.one at p90 5.0 h instead of 10.0 h, 2.0x faster",
        ]

    def test_where_more_would_gain_nothing_the_limit_can_fall_so_far(self) -> None:
        assert self.said("cost", {}, budget="$30") == ["budget $30.00: the same for any above $20.00"]


class TestEvidence:
    def test_without_probes(self) -> None:
        said = evidence(CHOICE, [], "from a wide prior", None)
        assert said == "no probes yet: step time from data sheets only, convergence from a wide prior"

    def test_counts_measurements(self) -> None:
        assert evidence(CHOICE, [ROW], "from 3 batch sizes", None) == "1 measurement, convergence from 3 batch sizes"
        assert evidence(CHOICE, [ROW, ROW], "x", None) == "2 measurements, convergence x"

    def test_says_what_lies_outside(self) -> None:
        far = candidate(extrapolated=True, global_batch=4096)
        assert evidence(far, [ROW], "x", None).endswith("; no run at batch 4,096 so far")
        said = evidence(far, [ROW], "x", "16 nodes, probed up to 4")
        assert "the choice lies outside what was measured (16 nodes, probed up to 4), but is best even" in said
        assert "no run at batch" not in said
        assert "no run at batch" not in evidence(CHOICE, [ROW], "x", None)


class TestProbes:
    def test_a_probe_repays_when_it_saves_more_than_it_costs_and_not_next_to_nothing(self) -> None:
        assert further().repays
        assert not further(gain_usd=3.0).repays
        assert not further(gain=0.0001).repays

    def test_one_of_the_choice_is_only_named(self) -> None:
        expected = "2 x g1.two at local batch 64 for about $3.00, is expected to save $12.00"
        two = candidate(instance_type="g1.two")
        assert probe(two, further(), first=True) == f"a probe, {expected}"
        assert probe(two, further(), first=False) == f"one more probe, {expected}"

    def test_another_says_why_it_is_not_of_the_choice(self) -> None:
        # A quarter of the dollars are $12, so a tenth $4.80.
        assert probe(CHOICE, further(), first=True).endswith(
            " (not of the choice: measuring that would save $4.80, this may turn out better)"
        )
        assert probe(CHOICE, further(of_hours=True), first=True).endswith(
            " (not of the choice: measuring that would save 10 % of the hours, this may turn out better)"
        )
        assert probe(CHOICE, further(choice_gain=None), first=True).endswith(" (not of the choice, which was measured)")

    def test_one_that_does_not_repay_is_not_proposed(self) -> None:
        for none in (None, further(gain_usd=2.0)):
            assert probe(CHOICE, none, first=True) == "no probe is expected to repay its price"

    def test_worth_in_hours_or_in_dollars(self) -> None:
        assert worth(further(of_hours=True), first=False).endswith("is expected to save 25 % of the hours")
        assert worth(further(gain_usd=1.0), first=True) == (
            "no probe is expected to repay its price "
            "(the best, 2 x g1.two at local batch 64, costs about $3.00 and saves $1.00)"
        )
        assert not_worth(first=False) == "no further probe is expected to repay its price"

    def test_what_samples_come_from(self) -> None:
        runs = {"convergence": {"runs": [{"batch": 8, "samples": 40000}, {"batch": 16, "samples": 50000}]}}
        noise = MeasuredNoise(scale=1234.0, log_sd=0.1, stage="after 300 steps of training")
        assert convergence_source(job(**runs), noise) == "from 3 batch sizes"
        assert convergence_source(job(convergence={"noise_scale": 500}), noise) == "from the given noise scale"
        assert (
            convergence_source(job(), noise)
            == "from a measured noise scale of 1,234 (1,047 to 1,455) samples, after 300 steps of training"
        )
        assert convergence_source(job(), None) == "from a wide prior"
