"""A cluster as interruptions see it, by hand: its prices, steps and worlds, a replayed recording, and the slow-down."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from small_world import floats

from planner.columns import Quantiles
from planner.inputs.traces import Trace
from planner.spot.rates.process import AGES, SpotProcess, moments_by_row
from planner.spot.runs.markets import sample_markets
from planner.spot.runs.stretches import first_stretch
from planner.spot.simulation.capacity import Modelled, Recorded
from planner.spot.simulation.case import Case
from planner.spot.simulation.case_runs import Market, Seeds, idle_shares, on_demand_runs, simulate_case, spot_shares
from planner.spot.slowdown import SpotBurden, SpotRates, spot_slowdown

# Five nodes, one of them on demand at $2, the others spot at $1; storage $0.5. Saves of 0.1 h every hour.
CASE = Case(
    work_hours=Quantiles(8.0, 10.0, 20.0),
    startup_hours=0.5,
    save_hours=0.1,
    restart_hours=0.3,
    interval_hours=1.0,
    uses_notice=False,
    nodes=5,
    on_demand_count=1,
    process=SpotProcess(loss_per_hour=np.full(AGES, 0.5), return_per_hour=np.full(AGES, 2.0)),
    node_on_demand_usd=2.0,
    node_spot_usd=1.0,
    storage_hourly_usd=0.5,
    price_age_days=0.0,
    deadline_hours=30.0,
)


class TestCase:
    def test_dollars_an_hour(self) -> None:
        assert CASE.on_demand_hourly_usd == pytest.approx(5 * 2 + 0.5)
        assert CASE.base_hourly_usd == pytest.approx(2 + 0.5)
        # While spot nodes are gone 9.5 % of the four are there and paid.
        assert CASE.waiting_hourly_usd == pytest.approx(2.5 + 0.095 * 4 * 1.0)
        assert replace(CASE, node_spot_usd=3.0).waiting_hourly_usd == pytest.approx(2.5 + 0.095 * 4 * 2.0)

    def test_a_single_spot_node_leaves_no_survivor(self) -> None:
        assert replace(CASE, on_demand_count=4).surviving_share == 0.0
        assert replace(CASE, on_demand_count=3).surviving_share == 0.095

    def test_hours_without_losses_are_start_up_work_and_saves(self) -> None:
        assert CASE.hours_without_losses(floats(10.0)) == pytest.approx([0.5 + 11.0])
        assert replace(CASE, on_demand_count=5, interval_hours=0.0).saving_share == 0.0

    def test_half_the_spot_nodes_are_lost_less_often(self) -> None:
        # 2 of 4: half as many, 0.5^0.03 of the losses, and returns as before.
        fewer = CASE.with_base(3).process
        assert fewer is not None
        assert fewer.loss_per_hour == pytest.approx(0.5 * 0.5**0.03)
        assert fewer.return_per_hour == pytest.approx(2.0)
        assert CASE.with_base(5).process is CASE.process
        assert CASE.with_base(1).process is not None
        assert CASE.with_base(1).process.loss_per_hour == pytest.approx(0.5)

    def test_work_is_drawn_with_either_width(self) -> None:
        draws = CASE.work_draws(40_000, seed=1)
        assert np.quantile(draws, [0.05, 0.5, 0.95]) == pytest.approx([8.0, 10.0, 20.0], rel=0.02)

    def test_the_first_stint_begins_with_the_start_up(self) -> None:
        # 0.2 h more than a restart, in work: 0.2 / 1.1.
        assert CASE.spot_work(floats(10.0)).work_hours == pytest.approx([10 + 0.2 / 1.1])
        assert CASE.spot_work(floats(10.0)).needed_hours(floats(10 + 0.2 / 1.1)) == pytest.approx([11.5])
        tiny = replace(CASE, startup_hours=0.0).spot_work(floats(0.01))
        assert 0 < float(tiny.work_hours[0]) < 1e-5  # type: ignore[index]

    @pytest.mark.parametrize(
        ("deadline", "step", "steps"), [(30.0, 0.1, 300), (3.05, 0.1, 31), (60.0, 0.2, 300), (900.0, 1.0, 900)]
    )
    def test_decisions_are_three_hundred_or_as_many_as_make_sense(
        self, deadline: float, step: float, steps: int
    ) -> None:
        case = replace(CASE, deadline_hours=deadline)
        assert (case.step_hours, case.steps) == (pytest.approx(step), steps)

    def test_a_world_has_shares_of_the_on_demand_price(self) -> None:
        world = CASE.world()
        assert float(world.work_hours) == pytest.approx(0.5 + 11.0 - 0.3)
        assert world.spot_share == pytest.approx((2.5 + 4.0) / 10.5)
        assert world.idle_share == pytest.approx((2.5 + 0.38) / 10.5)
        assert (world.interval_hours, world.restart_hours, world.step_hours) == pytest.approx((1.1, 0.3, 0.1))
        assert float(CASE.world(0.1).interval_hours) == pytest.approx(0.5 + 0.11 - 0.3)  # the whole job
        assert CASE.assumed_work_hours == pytest.approx(0.5 + 22.0 - 0.3)

    def test_where_the_notice_saves_a_tenth_of_an_interval_is_lost(self) -> None:
        quick = replace(CASE, save_hours=0.005, uses_notice=True)
        assert quick.simulated_world(floats(10.0)).interval_hours == pytest.approx(0.1 * 1.005)
        assert CASE.simulated_world(floats(10.0)).interval_hours == pytest.approx(1.1)
        assert replace(quick, uses_notice=False).simulated_world(floats(10.0)).interval_hours == pytest.approx(1.005)

    def test_replacing_spot_nodes_takes_a_restart_for_each_but_the_first(self) -> None:
        assert CASE.margin_hours == pytest.approx(4 * 0.3)
        assert replace(CASE, nodes=13).margin_hours == replace(CASE, nodes=99).margin_hours == pytest.approx(12 * 0.3)

    def test_on_demand_keeps_the_deadline_every_other_time(self) -> None:
        assert replace(CASE, deadline_hours=11.5).on_demand_keeps_deadline
        assert not replace(CASE, deadline_hours=11.49).on_demand_keeps_deadline
        assert replace(CASE, deadline_hours=None).on_demand_keeps_deadline

    def test_a_plan_keeps_six_digits(self) -> None:
        odd = replace(
            CASE,
            startup_hours=1 / 7,
            interval_hours=1 / 7,
            node_spot_usd=1 / 7,
            work_hours=Quantiles(1 / 7, 1 / 7, 1 / 7),
        )
        kept = odd.as_written()
        assert (kept.startup_hours, kept.interval_hours) == (514.286 / 3600, 514 / 3600)
        assert (kept.node_spot_usd, kept.work_hours.p50) == (0.142857, 0.142857)


class TestRuns:
    def test_on_demand_runs_are_the_closed_form(self) -> None:
        runs = on_demand_runs(replace(CASE, deadline_hours=12.0), floats(10.0, 12.0))
        assert runs.hours == pytest.approx([11.5, 13.7])
        assert runs.usd == pytest.approx([11.5 * 10.5, 13.7 * 10.5])
        assert runs.missed.tolist() == [False, True]
        assert runs.finished.all()

    def test_shares_of_each_run(self) -> None:
        market = Market(up=np.ones((2, 3), dtype=bool), age_hours=np.zeros(2), spot_usd=floats(1.0, 2.0), surviving=0.5)
        assert spot_shares(CASE, market) == pytest.approx(np.array([[6.5] * 3, [10.5] * 3]) / 10.5)
        assert idle_shares(CASE, market) == pytest.approx(np.array([[4.5] * 3, [6.5] * 3]) / 10.5)

    def test_survivors_are_paid_while_the_gang_waits(self) -> None:
        steady = replace(CASE, work_hours=Quantiles(10.0, 10.0, 10.0), deadline_hours=None)
        runs = simulate_case(steady, policy=None, runs=200, seed=1)
        paid = runs.hours - runs.waiting_hours
        # The base all the time, the gang while it is there, 9.5 % of it while it is not.
        assert runs.usd == pytest.approx(runs.hours * 2.5 + paid * 4.0 + runs.waiting_hours * 0.095 * 4.0)
        assert runs.rework_hours == pytest.approx(paid - 11.5)
        assert runs.losses.mean() > 3

    def test_seeds_differ_by_part(self) -> None:
        assert Seeds.of(1) != Seeds.of(1, 1) != Seeds.of(1, 2)
        assert len({Seeds.of(1).work, Seeds.of(1).market, Seeds.of(1).price, Seeds.of(1).rollback}) == 4


class TestRecorded:
    """Ten hours there, two gone, over and over, in ticks of an hour."""

    TRACE = Trace(name="zone", tick_seconds=3600.0, counts=np.tile([4] * 10 + [0] * 2, 20))
    STEADY = replace(CASE, work_hours=Quantiles(10.0, 10.0, 10.0), deadline_hours=None)

    def test_without_a_deadline_starts_leave_twice_the_job(self) -> None:
        # The job takes 11.5 h: starts from 0 to 240 - 23 h.
        runs = Recorded(self.TRACE, 5, 0)
        assert runs._starts(self.STEADY, 5) == pytest.approx(np.linspace(0, 217, 5))
        # With a deadline of 30 h and a step of 0.1: until 209.9 h.
        assert runs._starts(CASE, 3) == pytest.approx([0.0, 104.95, 209.9])
        short = replace(self.TRACE, counts=self.TRACE.counts[:20])
        assert Recorded(short, 2, 0)._starts(self.STEADY, 2) == pytest.approx([0.0, 2.0])

    def test_a_run_from_the_beginning(self) -> None:
        # 10 h there: after a restart of 0.3 h, 8 intervals of 1.1 h are saved. 2 h gone. Then 10 + 0.2 / 1.1 - 8 h.
        runs = Recorded(self.TRACE, 1, 0).waiting(self.STEADY)
        last = 0.3 + (2 + 0.2 / 1.1) * 1.1
        assert runs.hours == pytest.approx([12 + last])
        assert (runs.losses.tolist(), runs.waiting_hours.tolist()) == ([1], [2.0])
        # Gone nodes of a recording of four are all gone: nobody waits.
        assert runs.usd == pytest.approx([(12 + last) * 2.5 + (10 + last) * 4.0])

    def test_who_is_left_of_a_recorded_gang_is_paid(self) -> None:
        half = replace(self.TRACE, counts=np.tile([4] * 10 + [2] * 2, 20))
        runs = Recorded(half, 1, 0).waiting(self.STEADY)
        last = 0.3 + (2 + 0.2 / 1.1) * 1.1
        assert runs.usd == pytest.approx([(12 + last) * 2.5 + (10 + last) * 4.0 + 2 * 2.0])

    def test_recorded_prices_go_around_the_plan_s_and_never_above_on_demand(self) -> None:
        prices = np.tile([1.0] * 10 + [7.0] * 2, 20)
        # Their mean is 2: the plan's $1 becomes $0.5 and $3.5, which on-demand caps at $2.
        dear = Recorded(replace(self.TRACE, prices=prices), 1, 0)
        found = dear._spot_usd(CASE)
        assert found is not None
        assert found[[0, 11]] == pytest.approx([0.5, 2.0])

    def test_steps_see_the_recording_at_their_moment(self) -> None:
        market = Recorded(self.TRACE, 2, 0)._market(CASE, floats(0.0, 9.95), Seeds.of(0))
        assert market.age_hours == pytest.approx([0.0, 9.95])
        assert market.up.shape == (2, 300)
        # From 9.95 h, which is step 99: there for one step more, then gone for 20.
        assert market.up[1, :23].tolist() == [True] + [False] * 20 + [True] * 2
        assert market.up[0, [99, 100, 119, 120]].tolist() == [True, False, False, True]

    def test_notes_name_a_recording_of_fewer_nodes(self) -> None:
        one = replace(self.TRACE, counts=np.minimum(self.TRACE.counts, 1))
        assert Recorded(one, 1, 0).note(CASE) == "the trace is of one node, taken for all 4 spot nodes at once"
        assert Recorded(self.TRACE, 1, 0).note(CASE) == ""
        assert (Recorded(self.TRACE, 1, 0).span, Modelled(1, 0).span) == ("the recording", "a year")


def burden(**changes: Any) -> SpotBurden:
    """Nothing at all, but what is said."""
    names = SpotBurden.__dataclass_fields__
    return SpotBurden(**{name: floats(changes.get(name, 0.0)) for name in names})


class TestSlowdown:
    def test_often_lost_it_is_a_log_normal_with_mean_and_variance(self) -> None:
        # A hundred busy hours lost a hundred times: 50 h more on average, variance 400. The mean square over the square
        # of the mean is 1 + 400 / 2500; the median is the mean over its root.
        found = spot_slowdown(floats(100.0), burden(losses_per_hour=1.0, hours_per_hour=0.5, variance_per_hour=4.0))
        ratio = 1 + 400 / 2500
        median = 50 / math.sqrt(ratio)
        high = median * math.exp(NormalDist().inv_cdf(0.95) * math.sqrt(math.log(ratio)))
        assert found.p50 == pytest.approx([1 + median / 100])
        # And never less than all that is lost on the way together with it, in quadrature.
        assert found.p95 == pytest.approx([1 + math.hypot(high, 50) / 100])
        assert found.p05 == pytest.approx(found.p50**0.1)

    def test_where_nothing_is_lost_nothing_is_slower(self) -> None:
        found = spot_slowdown(floats(100.0), burden())
        assert (found.p05[0], found.p50[0], found.p95[0]) == (1.0, 1.0, 1.0)

    def test_what_is_not_known_of_the_rates_widens_it(self) -> None:
        known = {"losses_per_hour": 1.0, "hours_per_hour": 0.5, "variance_per_hour": 4.0}
        sure = spot_slowdown(floats(100.0), burden(**known))
        unsure = spot_slowdown(floats(100.0), burden(**known, upper_log_sd=0.5))
        sd = math.sqrt(math.log(1.16) + 0.25)
        high = 50 / math.sqrt(1.16) * math.exp(NormalDist().inv_cdf(0.95) * sd)
        assert unsure.p95 == pytest.approx([1 + math.hypot(high, 50) / 100])
        assert unsure.p50 == pytest.approx(sure.p50)

    def test_hardly_ever_lost_most_runs_are_spared(self) -> None:
        # Lost in 1 of 1,000 runs: neither the middle nor the p95 sees it, but for what is lost on the way on average.
        found = spot_slowdown(floats(10.0), burden(losses_per_hour=1e-4, hours_per_hour=1e-4, variance_per_hour=1e-4))
        assert found.p50.tolist() == [1.0]
        assert found.p95 == pytest.approx([1 + 1e-4])

    def test_a_wait_at_the_start_shows_in_the_p95(self) -> None:
        # Gone at one start in ten, for 4 h: not in the middle; the p95 has the wait in 95 of 100 runs, 3 h, added.
        waits = burden(shortage=0.1, start_hours=0.4, start_variance=1.44, start_p95_hours=3.0)
        found = spot_slowdown(floats(10.0), waits)
        # Of those that wait: mean 4, mean square (1.44 + 0.16) / 0.1 = 16, so exactly 4 h.
        assert found.p50.tolist() == [1.0]
        assert found.p95 == pytest.approx([1 + math.hypot(4.0, 3.0) / 10])


class TestAgesWithoutRisk:
    """Nothing is ever lost in its first 0.3 hours: then a rate that does not age."""

    RATES = floats(0.0, 0.0, 1.0, 1.0, 1.0, 1.0)

    def test_moments(self) -> None:
        mean, square, _ = moments_by_row(self.RATES[None])
        # 0.3 h and an exponential hour: 1.3; the square 0.09 + 2 x 0.3 + 2.
        assert (mean[0], square[0]) == pytest.approx((1.3, 2.69))

    def test_first_stretches(self) -> None:
        process = SpotProcess(loss_per_hour=self.RATES, return_per_hour=self.RATES)
        ones = np.ones(40_000)
        generator = np.random.default_rng(1)
        wait, _ = first_stretch(process, ones, ones, generator.random((2, 40_000)), generator)
        # Half of the time there. What is left of a stretch met at a random moment: mean square over twice the mean.
        assert (wait > 0).mean() == pytest.approx(0.5, abs=0.01)
        assert wait[wait > 0].mean() == pytest.approx(2.69 / 2.6, rel=0.03)

    def test_markets_step_by_step(self) -> None:
        process = SpotProcess(loss_per_hour=self.RATES, return_per_hour=np.full(AGES, 1.0))
        up, ages = sample_markets(process, 3000, 200, 0.05, seed=3)
        assert up.mean() == pytest.approx(1.3 / 2.3, abs=0.02)
        # The age of what is met: by survival, so 0.3 h as likely at each moment before 0.3 as then falling.
        there = ages[up[:, 0]]
        assert (there < 0.3).mean() == pytest.approx(0.3 / 1.3, abs=0.03)


def test_how_far_the_hours_move_when_a_rate_is_worse_than_in_95_of_100_zones() -> None:
    # Of constant rates: a stint of 1 / loss hours keeps exp(-loss h) of them, h the restart and half an interval,
    # so that every kept hour costs exp(loss h) (1 + loss down) - 1 hours more.
    loss, back, loss_sd, back_sd, lost_hours, z = 0.1, 0.5, 0.4, 0.3, 1.0 + 0.5 / 2, 1.6448536

    def more(loss: float, back: float) -> float:
        return math.exp(loss * lost_hours) * (1 + loss / back) - 1

    ages = np.ones((1, AGES))
    rates = SpotRates(
        loss_per_hour=loss * ages,
        return_per_hour=back * ages,
        loss_log_sd=floats(loss_sd),
        return_log_sd=floats(back_sd),
    )
    found = SpotBurden.of(rates, interval_hours=0.5, restart_hours=1.0)
    sooner = math.log(more(loss * math.exp(z * loss_sd), back) / more(loss, back))
    later = math.log(more(loss, back * math.exp(-z * back_sd)) / more(loss, back))
    assert found.upper_log_sd[0] == pytest.approx(math.hypot(sooner, later) / z, rel=1e-4)
