"""Hours and dollars of candidates, each number worked out by hand beside the test."""

from __future__ import annotations

import math
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_world import CATALOG, GIB, ONE, TWO, GivenMarkets, column, floats, predictors, sure

from planner.columns import Prediction
from planner.inputs.catalog.tables import InstanceType
from planner.inputs.traces import Recording, Trace
from planner.models.configurations import Configurations
from planner.search.candidates import Offers, offers_by_market
from planner.search.pricing import (
    Priced,
    SpotPlace,
    on_demand,
    pareto_rows,
    spot_places,
    with_spot,
    work_hours,
)
from planner.spot.rates.sources import SpotHistory, SpotSource


def configurations(
    nodes: list[int], instance_type: InstanceType = ONE, batch: int = 1, steps: int = 1
) -> Configurations:
    return Configurations.of(CATALOG, instance_type, nodes=nodes, gpu_batch=batch, accumulation_steps=steps)


def offers(market: Any = "on_demand", *regions: str) -> Offers:
    return offers_by_market(CATALOG, ONE, regions or ("near", "far"), 10.0 * GIB)[market]


class TestWork:
    def test_steps_are_samples_over_the_batch_and_take_their_seconds(self) -> None:
        # Batch: 3 nodes x 2 GPUs x 2 samples x 5 micro-steps = 60. 36,000 / 60 = 600 steps x 2 s = 1,200 s = 1/3 h.
        work = work_hours(configurations([3], TWO, 2, 5), sure(36_000.0), predictors())
        assert work.rows()[0] == pytest.approx((1 / 3, 1 / 3, 1 / 3))

    def test_errors_of_samples_and_of_seconds_add_in_quadrature(self) -> None:
        # 3,600 steps of 1 s are an hour. Logs above the middle: 3 and 4 make 5; below: 5 and 12 make 13.
        seconds = column(math.exp(-5), 1.0, math.exp(3))
        samples = column(3600 * math.exp(-12), 3600.0, 3600 * math.exp(4))
        work = work_hours(configurations([1]), samples, predictors(step_seconds=lambda _: seconds))
        assert work.rows()[0] == pytest.approx((math.exp(-13), 1.0, math.exp(5)))


class TestOnDemand:
    def test_hours_are_work_saves_and_start_up_and_dollars_the_cheapest_zone_s(self) -> None:
        # 10 h of work, a tenth more for saves, half an hour to start: 11.5 h.
        # Two nodes far: 2 x 0.9 + 2 x 0.044 + 0.0008 = $1.8888; near: 2 x 1 + 2 x 0.022 + 0.0004 = $2.0444.
        bought = on_demand(configurations([2]), sure(10.0), offers(), predictors())
        assert bought.hours.p50 == pytest.approx([11.5])
        assert bought.hourly_usd == pytest.approx([1.8888])
        assert bought.storage_hourly_usd == pytest.approx([0.0888])
        assert bought.usd.p50 == pytest.approx([11.5 * 1.8888])
        assert (bought.offers.zones[bought.offer[0]], bought.falls_back) == ("far-az1", False)
        assert (bought.on_demand_count.tolist(), bought.losses.tolist()) == ([2], [0.0])
        assert bought.interval_seconds.tolist() == [600.0]

    def test_each_row_has_the_price_of_its_own_nodes(self) -> None:
        # In the order of the rows, with repeats: n nodes far cost 0.944 n + 0.0008.
        bought = on_demand(configurations([3, 1, 3, 2]), sure(1.0, 1.0, 2.0, 1.0), offers(), predictors())
        assert bought.hourly_usd == pytest.approx([2.8328, 0.9448, 2.8328, 1.8888])
        assert bought.usd.p50 == pytest.approx([1.6 * 2.8328, 1.6 * 0.9448, 2.7 * 2.8328, 1.6 * 1.8888])

    def test_the_interval_keeps_its_ends(self) -> None:
        bought = on_demand(configurations([1]), column(5.0, 10.0, 20.0), offers(), predictors())
        # 1.1 x 5 + 0.5 = 6, 1.1 x 20 + 0.5 = 22.5.
        assert bought.hours.rows()[0] == pytest.approx((6.0, 11.5, 22.5))
        assert bought.usd.rows()[0] == pytest.approx((6.0 * 0.9448, 11.5 * 0.9448, 22.5 * 0.9448))


def spot(
    nodes: list[int], base: list[int], work: Prediction, *, deadline: float | None = None, **changes: Any
) -> tuple[Priced, GivenMarkets]:
    """Near-az2: $1 on demand, $0.40 spot; a node's volume $0.022, checkpoints $0.0004."""
    markets = GivenMarkets(**{name: changes.pop(name) for name in ("wall", "paid", "save_share") if name in changes})
    place = SpotPlace(SpotSource(1), offers("spot", "near").at([0]), 1)
    bought = with_spot(
        configurations(nodes),
        work,
        place,
        np.array(base),
        markets=markets,  # type: ignore[arg-type]
        predictors=predictors(**changes),
        deadline_hours=deadline,
    )
    return bought, markets


class TestSpot:
    def test_wall_hours_pay_the_base_and_only_paid_hours_the_spot_nodes(self) -> None:
        # 10 h of work double to 20 h, and half an hour to start: 20.5 h. Spot nodes are paid 15 + 0.5 = 15.5 h.
        # Three nodes, one on demand: 1 + 3 x 0.022 + 0.0004 = $1.0664 all the time, 2 x 0.4 = $0.8 while spot is there.
        bought, markets = spot([3], [1], sure(10.0))
        assert bought.hours.p50 == pytest.approx([20.5])
        assert bought.usd.p50 == pytest.approx([20.5 * 1.0664 + 15.5 * 0.8])
        assert bought.hourly_usd == pytest.approx([1.8664])
        assert bought.storage_hourly_usd == pytest.approx([0.0664])
        assert (markets.asked, bought.falls_back) == ([2], False)

    def test_saves_take_their_share_before_losses_do(self) -> None:
        # 10 h and a fifth of saves are 12 h busy, 24.5 h in all; a quarter of a loss in each busy hour makes 3.
        bought, _ = spot([1], [0], sure(10.0), save_share=0.2)
        assert bought.hours.p50 == pytest.approx([24.5])
        assert bought.losses == pytest.approx([3.0])
        assert bought.interval_seconds.tolist() == [900.0]

    def test_rows_with_as_many_nodes_and_another_base_have_their_own_price(self) -> None:
        # n nodes: 0.022 n + 0.0004 of storage; b on demand at $1, n - b at $0.40.
        bought, markets = spot([4, 4, 2, 4], [1, 3, 1, 1], sure(1.0, 1.0, 1.0, 1.0))
        assert bought.hourly_usd == pytest.approx([2.2884, 3.4884, 1.4444, 2.2884])
        assert markets.asked == [3, 1, 1, 3]
        assert bought.on_demand_count.tolist() == [1, 3, 1, 1]

    def test_a_spot_price_that_may_rise_widens_the_spot_part_only(self) -> None:
        # One spot node alone: $0.0224 fixed for 20.5 h, and for 15.5 h $0.40 that may become 0.4 x 1.25.
        bought, _ = spot([1], [0], sure(10.0), spot_price=column(0.8, 1.0, 1.25))
        fixed = 20.5 * 0.0224
        assert bought.usd.rows()[0] == pytest.approx((fixed + 15.5 * 0.32, fixed + 15.5 * 0.4, fixed + 15.5 * 0.5))

    def test_a_spot_node_never_costs_more_than_an_on_demand_one(self) -> None:
        # At ten times the price, spot would cost 15.5 x $4; on demand the node costs $1.0224 for 20.5 h.
        bought, _ = spot([1], [0], sure(10.0), spot_price=column(1.0, 1.0, 10.0))
        assert bought.usd.p95 == pytest.approx([20.5 * 1.0224])
        assert bought.usd.p50 == pytest.approx([20.5 * 0.0224 + 15.5 * 0.4])

    def test_before_a_deadline_on_demand_nodes_take_over(self) -> None:
        # Kept free: half an hour to start, a quarter for the interval that a loss takes back, 0.2 h to restart: 0.95 h.
        # Of a deadline of 15.95 h that leaves 15 h. 10 h of work at half the pace: on spot until 15 - s = 10 - s p,
        # with the pace p = 10 / 20.5, so s = 5 / (1 - p), then 10 - s p hours on demand, where the node costs $1.0224.
        pace = 10 / 20.5
        on_spot = 5 / (1 - pace)
        alone = 20.5 * 0.0224 + 15.5 * 0.4
        bought, _ = spot([1], [0], sure(10.0), deadline=15.95)
        assert bought.falls_back
        assert bought.hours.p50 == pytest.approx([15.0])
        assert bought.usd.p50 == pytest.approx([alone * on_spot / 20.5 + (10 - pace * on_spot) * 1.0224])

    def test_a_deadline_far_away_changes_nothing(self) -> None:
        near, far = spot([2], [1], sure(10.0))[0], spot([2], [1], sure(10.0), deadline=100.0)[0]
        assert far.usd.p50 == pytest.approx(near.usd.p50)
        assert far.hours.p95 == pytest.approx(near.hours.p95)

    def test_a_loss_never_takes_back_more_than_the_whole_job(self) -> None:
        # 0.1 h of work in intervals of 0.25 h: kept free are 0.5 + 0.1 + 0.2 = 0.8 h, of a deadline of 0.95 h.
        bought, _ = spot([1], [0], sure(0.1), deadline=0.95)
        assert bought.hours.p50 == pytest.approx([0.15])


class TestCandidates:
    def test_a_row_becomes_a_candidate_with_all_it_has(self) -> None:
        bought, _ = spot([4, 3], [1, 2], column([1, 10], [1, 10], [1, 20]))
        (found,) = bought.candidates(np.array([1]), 0.95)
        assert (found.instance_type, found.market, found.region, found.zone) == ("g1.one", "spot", "near", "near-az2")
        assert (found.nodes, found.on_demand_count, found.gpu_batch, found.accumulation_steps) == (3, 2, 1, 1)
        assert (found.global_batch, found.checkpoint_interval_seconds, found.falls_back) == (3, 900.0, False)
        assert (found.hours.p50, found.hours_limit) == pytest.approx((20.5, 40.5))
        assert found.usd.p50 == pytest.approx(20.5 * 2.0664 + 15.5 * 0.4)
        assert found.usd_limit == pytest.approx(40.5 * 2.0664 + 30.5 * 0.4)
        assert found.losses == pytest.approx(2.5)
        assert (found.hourly_usd, found.storage_hourly_usd) == pytest.approx((2.4664, 0.0664))
        assert found.extrapolated is False

    def test_the_limit_is_the_quantile_at_the_asked_confidence(self) -> None:
        bought = on_demand(configurations([1]), column(2.0, 10.0, 50.0), offers(), predictors(checkpoint_share=0.0))
        (found,) = bought.candidates(np.array([0]), 0.8)
        # Half an hour to start makes 10.5 and 50.5 h; between them log-normal.
        part = NormalDist().inv_cdf(0.8) / NormalDist().inv_cdf(0.95)
        assert found.hours_limit == pytest.approx(10.5 * (50.5 / 10.5) ** part)
        assert found.usd_limit == pytest.approx(found.hours_limit * 0.9448)

    def test_a_front_is_of_what_is_allowed(self) -> None:
        # With saves and start-up 1.6, 3.8, 2.7 and 6 h; at $0.944 n + 0.0008 an hour $6.04, $10.76, $5.10 and $5.67.
        bought = on_demand(configurations([4, 3, 2, 1]), sure(1.0, 3.0, 2.0, 5.0), offers(), predictors())
        assert [row.nodes for row in bought.front(np.array([True, True, True, False]), 0.95)] == [4, 2]
        assert [row.nodes for row in bought.front(np.array([True, True, False, True]), 0.95)] == [4, 1]


class TestPlaces:
    def places(self, found: Offers, recordings: dict[tuple[str, str], Any] | None = None) -> list[tuple[str, int]]:
        markets: Any = SimpleNamespace(history=SpotHistory(recordings=recordings or {}))
        return [(place.offers.zones[0], place.stands_for) for place in spot_places(found, ONE, markets)]

    def test_of_zones_that_lose_nodes_alike_the_cheapest_stands_for_all(self) -> None:
        # near-az2 at $0.40 beats near-az1 at $0.50; far-az1 has another interruption class.
        assert self.places(offers("spot")) == [("far-az1", 1), ("near-az2", 2)]

    def test_a_dearer_zone_with_a_lower_cap_stays(self) -> None:
        dearer = offers("spot", "near").at([0, 1, 1])
        lower_cap = Offers(
            **{name: getattr(dearer, name) for name in Offers.__slots__ if name != "on_demand_usd"},
            on_demand_usd=floats(1.0, 0.7, 0.8),
        )
        # The second has the lower cap; the third is beaten by the second, so the first stands for itself and it.
        assert self.places(lower_cap) == [("near-az2", 2), ("near-az1", 1)]

    def test_where_a_recording_shows_no_node_none_is_to_be_had(self) -> None:
        never, seen = (
            Recording(trace=Trace(name="zone", tick_seconds=600.0, counts=np.array([count] * 9))) for count in (0, 3)
        )
        assert self.places(offers("spot", "near"), {("g1.one", "near-az2"): never}) == [("near-az1", 1)]
        # A zone with a recording of its own is another source.
        assert self.places(offers("spot", "near"), {("g1.one", "near-az2"): seen}) == [("near-az2", 1), ("near-az1", 1)]


class TestFront:
    def test_fastest_first_and_each_next_one_cheaper(self) -> None:
        assert pareto_rows(floats(3, 1, 2, 4), floats(10, 50, 20, 10)).tolist() == [1, 2, 0]

    def test_of_equal_rows_the_first(self) -> None:
        assert pareto_rows(floats(2, 1, 1, 2), floats(5, 9, 9, 5)).tolist() == [1, 0]

    def test_as_fast_but_dearer_is_beaten_and_so_is_as_dear_but_slower(self) -> None:
        assert pareto_rows(floats(1, 1, 2), floats(9, 8, 8)).tolist() == [1]

    def test_what_is_not_known_is_not_on_it(self) -> None:
        assert pareto_rows(floats(math.nan, 2, 1), floats(1, 3, math.nan)).tolist() == [1]
        assert pareto_rows(floats(), floats()).tolist() == []
