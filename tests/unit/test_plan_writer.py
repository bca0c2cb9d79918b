"""A choice written down, each figure worked out by hand: learning rate, longest runtime, most dollars, stand-ins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from small_world import CATALOG, ONE, candidate, catalog, column, instance_type, job, offer, predictors

from planner.columns import Quantiles
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.schema import Job
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import Provenance
from planner.inputs.traces import Recording, Trace
from planner.models.fitted import fit_models
from planner.plan.schema import Plan
from planner.plan.writer import PlanWriter
from planner.search.decision import Chosen
from planner.search.every_candidate import SearchResult
from planner.search.pricing import Candidate
from planner.search.ranking import Settled
from planner.search.shortlist import shown_beside
from planner.search.simulated import Simulated, SpotOutcome, simulated
from planner.spot.mix import SpotMarkets
from planner.spot.rates.sources import SpotHistory

PROVENANCE = Provenance(
    job_sha256="0" * 64, measurements_sha256=None, catalog_sha256="0" * 64, catalog="test", catalog_date=CATALOG.date
)


def write(
    chosen: Candidate,
    asked: Job | None = None,
    *,
    sold: Catalog = CATALOG,
    others: tuple[Candidate, ...] = (),
    outcome: SpotOutcome | None = None,
    **changes: Any,
) -> Plan:
    asked = asked or job()
    measured = Simulated.exactly(chosen)
    if outcome is not None:
        measured = Simulated(chosen, outcome, outcome.runs.hours, outcome.runs.usd)
    usual: dict[str, Any] = {
        "job": asked,
        "catalog": sold,
        "instance_types": sold.instance_types,
        "models": fit_models(asked, sold, ()),
        "measurements": (),
        "measured_noise": None,
        "found": SearchResult(finalists=(chosen, *others), candidate_count=7, left_out=Counter()),
        "chosen": Chosen(measured, expected=chosen, rivals=shown_beside(others, Settled(chosen, None), asked)),
        "cross_validated_error": None,
        "further": None,
    }
    return PlanWriter(**{**usual, **changes}).plan(PROVENANCE)


def on_spot(
    row: Candidate, asked: Job | None = None, *, sold: Catalog = CATALOG, recordings: Any = None
) -> tuple[Candidate, SpotOutcome]:
    markets = SpotMarkets(history=SpotHistory(recordings=recordings or {}), save_seconds=20.0, restart_seconds=300.0)
    given = predictors(
        step_seconds=lambda rows: column(*([side] * len(rows) for side in (2.9, 3.2, 3.5))), startup_seconds=360.0
    )
    found = simulated(row, asked or job(), sold, given, markets)
    assert found.outcome is not None
    return found.candidate, found.outcome


class TestLearningRate:
    @pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
    def test_grows_with_the_batch_for_plain_gradients(self, optimizer: str) -> None:
        # The rate was tuned for a batch of 4; this one is nine times as large.
        choice = write(candidate(nodes=9, global_batch=36), job(optimizer=optimizer)).choice
        assert (choice.learning_rate_scale, choice.learning_rate_rule) == (9.0, "linear")

    @pytest.mark.parametrize("optimizer", ["adam", "adamw", "lion"])
    def test_grows_with_its_root_where_gradients_are_normalised(self, optimizer: str) -> None:
        choice = write(candidate(nodes=9, global_batch=36), job(optimizer=optimizer)).choice
        assert (choice.learning_rate_scale, choice.learning_rate_rule) == (3.0, "square root")

    def test_falls_for_a_smaller_batch(self) -> None:
        assert write(candidate(gpu_batch=1, global_batch=1), job(optimizer="sgd")).choice.learning_rate_scale == 0.25
        assert write(candidate(gpu_batch=1, global_batch=1), job(optimizer="adam")).choice.learning_rate_scale == 0.5


class TestLongestRuntime:
    @pytest.mark.parametrize(
        ("p95", "longest"),
        [(10.0, 12.5), (10.1, 12.75), (0.01, 0.25), (4.0, 5.0), (4.1, 5.25)],  # 1.25 times, up to a quarter of an hour
    )
    def test_is_a_quarter_more_than_the_p95(self, p95: float, longest: float) -> None:
        plan = write(candidate(hours=Quantiles(p95 / 2, p95 / 2, p95)))
        assert plan.choice.max_runtime_hours == longest

    def test_is_what_the_job_asks_for(self) -> None:
        assert write(candidate(), job({"max_runtime": "40h"})).choice.max_runtime_hours == 40


class TestMostDollars:
    def test_are_all_nodes_on_demand_from_their_start_to_half_an_hour_after_the_stop(self) -> None:
        # 10 h at most 12.5 h, 1.5 h to start and 0.5 h to stop: 14.5 h of two nodes at $1 and $0.0224 of storage.
        plan = write(candidate(nodes=2, hours=10.0))
        assert plan.estimate.usd.max == pytest.approx(14.5 * 2.0224)

    def test_no_quantile_is_above_them(self) -> None:
        plan = write(candidate(hours=10.0, usd=Quantiles(5.0, 20.0, 100.0)))
        most = 14.5 * 1.0224
        assert (plan.estimate.usd.p05, plan.estimate.usd.p50, plan.estimate.usd.p95) == pytest.approx((5.0, most, most))

    def test_the_dearest_stand_in_counts_for_all_nodes(self) -> None:
        # A better network and the same GPU, at $3 on demand but $0.60 spot: it may stand in.
        better = instance_type("g1.big", 1, 8, network_baseline_gbps=20, network_peak_gbps=20)
        sold = catalog(
            offer("g1.one", "near", 1.0, {"near-az1": 0.5}),
            offer("g1.big", "near", 3.0, {"near-az1": 0.6}),
            types=(ONE, better),
        )
        now, outcome = on_spot(candidate(market="spot"), sold=sold)
        plan = write(now, sold=sold, outcome=outcome)
        assert plan.choice.overrides == ("g1.big",)
        assert plan.estimate.usd.max == pytest.approx((1.5 + plan.choice.max_runtime_hours + 0.5) * 3.0224, rel=1e-5)


class TestStandIns:
    """For a spot g1.one: the same GPUs and cards, nothing weaker, and spot below its on-demand price of $1."""

    def overrides(self, *, market: Any = "spot", spot_usd: float | None = 0.6, **changes: Any) -> tuple[str, ...]:
        other = instance_type("g1.other", **{"gpus": 1, "vcpu": 4, **changes})
        third = instance_type("g1.third", 1, 4)
        sold = catalog(
            offer("g1.one", "near", 1.0, {"near-az1": 0.5, "near-az2": 0.5}),
            offer("g1.other", "near", 2.0, {"near-az1": spot_usd, "near-az2": 0.1}),
            offer("g1.third", "near", 2.0, {"near-az1": 0.3, "near-az2": None}),
            types=(ONE, other, third),
        )
        row = candidate(market=market)
        now, outcome = on_spot(row, sold=sold) if market == "spot" else (row, None)
        return write(now, sold=sold, outcome=outcome).choice.overrides

    def test_the_cheapest_first(self) -> None:
        assert self.overrides() == ("g1.third", "g1.other")
        assert self.overrides(spot_usd=0.2) == ("g1.other", "g1.third")

    def test_none_for_on_demand_nodes(self) -> None:
        assert self.overrides(market="on_demand") == ()

    @pytest.mark.parametrize("spot_usd", [None, 1.0, 1.1])
    def test_not_where_its_spot_price_is_not_below_the_choice_s_on_demand_price(self, spot_usd: float | None) -> None:
        assert self.overrides(spot_usd=spot_usd) == ("g1.third",)

    @pytest.mark.parametrize(
        "changes",
        [
            {"gpus": 2},
            {"vcpu": 3},
            {"ram_gib": 63},
            {"network_baseline_gbps": 9},
            {"network_cards": 2},
            {"efa_interfaces": 1},
        ],
    )
    def test_not_with_other_gpus_or_cards_or_anything_weaker(self, changes: dict[str, Any]) -> None:
        assert self.overrides(**changes) == ("g1.third",)

    @pytest.mark.parametrize("changes", [{"vcpu": 5}, {"ram_gib": 65}, {"network_baseline_gbps": 10}])
    def test_stronger_is_welcome(self, changes: dict[str, Any]) -> None:
        assert self.overrides(**changes) == ("g1.third", "g1.other")


class TestOtherZones:
    """A single spot node may stand in any zone of about its price: up to a tenth dearer."""

    SOLD = catalog(
        offer(
            "g1.one",
            "near",
            2.0,
            {"near-az1": 0.5, "near-az2": 0.55, "near-az3": 0.551, "near-az4": None, "near-az5": 0.4},
        )
    )

    def zones(self, recordings: Any = None, **changes: Any) -> tuple[str, ...]:
        now, outcome = on_spot(candidate(market="spot", **changes), sold=self.SOLD, recordings=recordings)
        return write(now, sold=self.SOLD, outcome=outcome).choice.other_zones

    def test_cheapest_first_without_its_own(self) -> None:
        assert self.zones() == ("near-az5", "near-az2")

    def test_several_nodes_stay_in_one_zone(self) -> None:
        assert self.zones(nodes=2) == ()

    def test_not_where_a_recording_shows_that_there_is_none(self) -> None:
        never = Recording(trace=Trace(name="zone", tick_seconds=600.0, counts=np.zeros(9, dtype=np.int64)))
        assert self.zones({("g1.one", "near-az5"): never}) == ("near-az2",)

    def test_on_demand_nodes_stay_where_they_are_planned(self) -> None:
        assert write(candidate(), sold=self.SOLD).choice.other_zones == ()


class TestNetworkOfTheNodes:
    FAST = catalog(
        offer("g1.one", "near", 1.0, {"near-az1": 0.5}),
        types=(ONE.model_copy(update={"efa_interfaces": 2, "network_cards": 2}),),
    )

    def test_several_nodes_with_efa_stand_close_together(self) -> None:
        choice = write(candidate(nodes=2, global_batch=8), sold=self.FAST).choice
        assert (choice.efa_interfaces, choice.network_cards, choice.placement_group) == (2, 2, True)

    def test_a_single_node_needs_neither(self) -> None:
        choice = write(candidate(), sold=self.FAST).choice
        assert (choice.efa_interfaces, choice.placement_group) == (0, False)

    def test_without_efa_nodes_stand_where_there_is_room(self) -> None:
        assert not write(candidate(nodes=2, global_batch=8)).choice.placement_group


class TestAccount:
    def test_the_p50_is_split_into_machines_storage_and_what_losses_add(self) -> None:
        # 10 hours of storage at $0.0224; the rest of $20 is the machine.
        parts = write(candidate()).estimate.breakdown
        assert (parts.storage, parts.compute) == pytest.approx((0.224, 19.776))
        assert (parts.rework, parts.network) == (0.0, 0.0)

    def test_with_spot_nodes_a_share_of_the_machines_is_what_losses_add(self) -> None:
        now, outcome = on_spot(candidate(market="spot", zone="near-az2"))
        parts = write(now, outcome=outcome).estimate.breakdown
        machines = now.usd.p50 - now.hours.p50 * 0.0224
        assert parts.rework == pytest.approx(outcome.extra_usd_share * machines, rel=1e-4)
        assert 0 < parts.rework < parts.compute
        assert parts.compute + parts.rework == pytest.approx(machines, rel=1e-4)

    def test_limits_are_kept_with_the_probability_of_the_interval(self) -> None:
        wide = candidate(hours=Quantiles(5.0, 10.0, 20.0), usd=Quantiles(10.0, 20.0, 40.0))
        kept = write(wide, job({"deadline": "20h", "budget": "$20"})).constraints
        assert (kept.deadline_hours, kept.budget_usd) != (None, None)
        assert kept.deadline_hours
        assert kept.deadline_hours.probability == pytest.approx(0.95)
        assert kept.budget_usd
        assert kept.budget_usd.probability == pytest.approx(0.5)
        assert write(wide).constraints.deadline_hours is None

    def test_of_simulated_runs_they_are_counted(self) -> None:
        now, outcome = on_spot(candidate(market="spot", zone="near-az2"))
        middle = float(np.quantile(outcome.runs.hours, 0.3))
        kept = write(now, job({"deadline": f"{middle}h"}), outcome=outcome).constraints
        assert kept.deadline_hours
        assert kept.deadline_hours.probability == pytest.approx(0.3, abs=0.001)

    def test_probes_are_counted_and_added_up(self) -> None:
        rows = [
            Measurement(
                instance_type="g1.one",
                nodes=1,
                gpus_per_node=1,
                gpu_batch=2,
                precision="bf16",
                step_seconds=0.1,
                probe_usd=usd,
            )
            for usd in (1.5, None, 2.0)
        ]
        evidence = write(candidate(), measurements=rows, cross_validated_error=0.07).evidence
        assert (evidence.probe_count, evidence.probe_usd, evidence.cross_validated_error) == (3, 3.5, 0.07)


class TestAlternatives:
    def test_the_best_of_every_other_type_and_of_the_other_market(self) -> None:
        chosen = candidate(usd=20.0)
        others = (
            candidate(market="spot", usd=30.0),
            candidate(market="spot", usd=25.0),
            candidate(usd=21.0, nodes=2, global_batch=8),
            candidate(instance_type="g1.two", usd=40.0),
            candidate(instance_type="g1.two", market="spot", usd=39.0),
            candidate(instance_type="p1.two", usd=50.0),
        )
        rows = write(chosen, others=others).alternatives
        found = [(row.instance_type, row.market, row.usd.p50) for row in rows]
        assert found == [("g1.one", "spot", 25.0), ("g1.two", "spot", 39.0), ("p1.two", "on_demand", 50.0)]

    @pytest.mark.parametrize("late_hours", [50.0, 13.0])
    def test_those_that_keep_the_limits_come_first(self, late_hours: float) -> None:
        # g1.two is cheaper but late, p1.two in time.
        others = (
            candidate(instance_type="g1.two", usd=10.0, hours=late_hours),
            candidate(instance_type="p1.two", usd=60.0, hours=8.0),
        )
        rows = write(candidate(), job({"deadline": "12h"}), others=others).alternatives
        assert [row.instance_type for row in rows] == ["p1.two", "g1.two"]
        assert rows[1].why_not == f"may miss the deadline ({late_hours:.0f} h)"

    def test_a_long_front_is_thinned_to_forty_rows_with_both_ends(self) -> None:
        rows = tuple(candidate(hours=float(100 + place), usd=float(1000 - place)) for place in range(101))
        shown = write(rows[0], others=rows[1:]).pareto
        assert len(shown) == 40
        assert (shown[0].hours.p50, shown[-1].hours.p50) == (100.0, 200.0)
        # 100 steps over 39 gaps: the second row is number 100 / 39 = 2.6, so 3; the third 5.1, so 5.
        assert [row.hours.p50 for row in shown[1:3]] == [103.0, 105.0]
        assert len(write(rows[0], others=rows[1:40]).pareto) == 40
        assert [row.hours.p50 for row in write(rows[0], others=rows[1:3]).pareto] == [100.0, 101.0, 102.0]

    def test_what_is_said_of_them_is_said_of_the_digits_that_are_shown(self) -> None:
        # $104.49 is shown as $104 and $100.51 as $101: 3 %, though it is 4 %.
        near = candidate(instance_type="g1.two", hours=100.0, usd=104.49)
        assert write(candidate(hours=100.0, usd=100.51), others=(near,)).alternatives[0].why_not == "3 % dearer"

    def test_a_choice_that_is_capped_is_compared_as_it_is_shown(self) -> None:
        # 10 h at most 12.5 h, and two hours to start and to stop, at $1.0224: $14.82, whatever was predicted.
        twice = candidate(instance_type="g1.two", hours=10.0, usd=2 * 14.5 * 1.0224)
        assert write(candidate(hours=10.0, usd=20.0), others=(twice,)).alternatives[0].why_not == "2.0x dearer"


class TestOtherConfidence:
    def test_what_is_compared_is_written_where_it_is_not_the_p95(self) -> None:
        row = candidate(hours=Quantiles(5.0, 10.0, 20.0), hours_limit=15.0, usd=Quantiles(5.0, 6.0, 9.0), usd_limit=8.0)
        plan = write(row, job({"confidence": 0.9}), others=(row._replace(instance_type="g1.two"),))
        assert plan.estimate.at_confidence is not None
        assert (plan.estimate.at_confidence.hours, plan.estimate.at_confidence.usd) == (15.0, 8.0)
        assert plan.alternatives[0].at_confidence == plan.estimate.at_confidence
        assert write(row).estimate.at_confidence is None


class TestQuota:
    def test_counts_vcpus_of_each_market(self) -> None:
        now, outcome = on_spot(candidate(market="spot", nodes=4, on_demand_count=1, global_batch=16))
        quota = write(now, outcome=outcome).choice.vcpu_quota
        assert quota is not None
        assert (quota.family, quota.on_demand, quota.spot) == ("G", 4, 12)

    def test_falling_back_takes_all_nodes_on_demand(self) -> None:
        asked = job({"deadline": "12h", "on_demand_fallback": True})
        row = candidate(market="spot", nodes=4, on_demand_count=1, global_batch=16, falls_back=True)
        now, outcome = on_spot(row, asked)
        quota = write(now, asked, outcome=outcome).choice.vcpu_quota
        assert quota is not None
        assert (quota.on_demand, quota.spot) == (16, 12)


class TestLeftOut:
    def test_is_counted_most_first(self) -> None:
        found = SearchResult(finalists=(), candidate_count=7, left_out=Counter({"are small": 1, "have none": 2}))
        left_out = write(candidate(), found=found).left_out
        assert left_out is not None
        assert (left_out.considered, list(left_out.reasons.items())) == (3, [("have none", 2), ("are small", 1)])
        assert write(candidate()).left_out is None


def test_a_choice_says_what_terraform_and_the_script_need() -> None:
    row = candidate(
        nodes=3, gpu_batch=2, accumulation_steps=5, global_batch=30, checkpoint_interval_seconds=600.4, hourly_usd=3.1
    )
    choice = write(row).choice
    assert (choice.instance_type, choice.region, choice.availability_zone) == ("g1.one", "near", "near-az1")
    assert (choice.node_count, choice.on_demand_count, choice.spot_count) == (3, 3, 0)
    assert (choice.gpu, choice.gpus_per_node) == ("unit", 1)
    assert (choice.gpu_batch, choice.accumulation_steps, choice.global_batch) == (2, 5, 30)
    assert (choice.checkpoint_interval_seconds, choice.hourly_usd) == (600, 3.1)
    assert choice.root_volume_gib == 220  # 200, and two checkpoints of 10 GiB
    mixed, outcome = on_spot(candidate(market="spot", nodes=4, on_demand_count=1, global_batch=16))
    choice = write(mixed, outcome=outcome).choice
    assert (choice.node_count, choice.on_demand_count, choice.spot_count) == (4, 1, 3)
