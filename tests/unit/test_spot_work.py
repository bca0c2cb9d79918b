"""Stints on spot nodes by hand: what a loss takes back, what a recording would have cost, and rates by age."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_world import floats

from planner.inputs.traces import Recording, Stretches, Trace
from planner.models.checkpoints import checkpoint_interval_seconds
from planner.spot.price import spot_price_draws, spot_price_drift
from planner.spot.rates.history import ages_lived, process_from_trace
from planner.spot.rates.interruption_classes import process_for_class
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import (
    AGES,
    SpotProcess,
    age_bucket,
    area_by_row,
    cumulative_hazard,
    hours_at_hazard,
    left_by_age,
)
from planner.spot.rates.sources import SpotHistory, SpotSource
from planner.spot.runs.monte_carlo import SpotRuns, simulate
from planner.spot.runs.replay import replay
from planner.spot.runs.stretches import duration, first_stretch
from planner.spot.runs.work import SpotWork


class TestWork:
    """Intervals of half an hour, saves of 0.1 h, restarts of 0.2 h: 0.6 h for 0.5 h of work."""

    WORK = SpotWork(work_hours=2.0, interval_hours=0.5, save_hours=0.1, restart_hours=0.2)

    def test_pace_is_work_over_work_and_saves(self) -> None:
        assert self.WORK.pace == pytest.approx(5 / 6)

    def test_an_uninterrupted_stint_is_the_restart_and_the_work_with_its_saves(self) -> None:
        assert self.WORK.needed_hours(floats(2.0, 0.0)) == pytest.approx([0.2 + 2.0 * 6 / 5, 0.2])

    def test_a_loss_keeps_whole_intervals(self) -> None:
        # After the restart 0.59, 0.6, 1.19 and 1.2 h: none, one, one and two intervals were saved.
        kept = self.WORK.kept_hours(floats(0.1, 0.2, 0.79, 0.8, 1.39, 1.4))
        assert kept == pytest.approx([0.0, 0.0, 0.0, 0.5, 0.5, 1.0])

    def test_a_save_on_notice_keeps_all_but_half_an_interval_once_in_ten(self) -> None:
        # Saves of 18 s make it within the notice: 0.005 h for each 0.5 h, so 1.01 h hold 1 h of work.
        quick = SpotWork(work_hours=2.0, interval_hours=0.5, save_hours=0.005, restart_hours=0.2, uses_notice=True)
        assert quick.saves_on_notice
        # 1.21 h: 1 h of work, less a tenth of half an interval. 0.402 h: 0.2 h of work, less a tenth of half of that.
        assert quick.kept_hours(floats(1.21, 0.402, 0.1)) == pytest.approx([1 - 0.025, 0.2 - 0.01, 0.0])


class TestReplay:
    """One hour there, one gone, then three there, one gone, ten there. Intervals of an hour, restarts of 0.5 h."""

    RUNS = Stretches(floats(0, 1, 2, 5, 6), floats(1, 2, 5, 6, 16), np.array([True, False, True, False, True]))
    WORK = SpotWork(work_hours=4.0, interval_hours=1.0, restart_hours=0.5)

    def test_losses_take_back_what_was_not_saved(self) -> None:
        # First hour: 0.5 h of work, nothing saved. Three hours: 2.5 h of work, 2 saved. Then 0.5 + 2 h: done at 8.5 h.
        # Paid: 1 + 3 + 2.5 h.
        found = replay(self.WORK, self.RUNS, floats(0.0))
        assert (found.hours.tolist(), found.paid_hours.tolist()) == ([8.5], [6.5])
        assert (found.losses.tolist(), found.finished.tolist()) == ([2], [True])

    def test_from_a_later_start_only_what_is_left_of_a_stretch(self) -> None:
        # From 1.5 h: half an hour of waiting, three hours there (2 saved), one gone, 2.5 more: done at 8.5, 7 h later.
        # From 4 h: an hour there (0 saved), one gone, then 4.5 h: at 10.5, 6.5 h later.
        found = replay(self.WORK, self.RUNS, floats(1.5, 4.0, 6.0))
        assert found.hours == pytest.approx([7.0, 6.5, 4.5])
        assert found.paid_hours == pytest.approx([5.5, 5.5, 4.5])
        assert found.losses.tolist() == [1, 1, 0]

    def test_who_outlasts_the_recording_is_not_finished(self) -> None:
        long = SpotWork(work_hours=20.0, interval_hours=1.0, restart_hours=0.5)
        found = replay(long, self.RUNS, floats(0.0))
        # All fourteen hours were paid; the end of the recording is no loss.
        assert (found.hours.tolist(), found.paid_hours.tolist()) == ([16.0], [14.0])
        assert (found.losses.tolist(), found.finished.tolist()) == ([2], [False])

    def test_dollars_are_paid_hours_of_spot_and_all_hours_of_the_rest(self) -> None:
        runs = SpotRuns(hours=floats(10.0), paid_hours=floats(6.0), losses=np.array([1]), finished=np.array([True]))
        assert runs.usd(2.0, 0.5) == pytest.approx([17.0])
        assert runs.usd(2.0) == pytest.approx([12.0])


class TestSimulated:
    def test_a_year_without_an_end_is_given_up(self) -> None:
        # A restart outlasts every stint, as these last an hour on average.
        process = SpotProcess(loss_per_hour=np.full(AGES, 1.0), return_per_hour=np.full(AGES, 1.0))
        work = SpotWork(work_hours=1.0, interval_hours=1.0, restart_hours=1e6)
        runs = simulate(work, process, 3, 1)
        assert (runs.hours == 24 * 365).all()
        assert not runs.finished.any()
        # Up about half of the year, and lost about once in two hours.
        assert runs.paid_hours == pytest.approx(4380, rel=0.1)
        assert runs.losses == pytest.approx(4380, rel=0.1)

    def test_exponential_stints_and_gaps(self) -> None:
        # Lost once in two hours and gone for one: 500 losses in 1,000 h of work, and as many hours of waiting.
        process = SpotProcess(loss_per_hour=np.full(AGES, 0.5), return_per_hour=np.full(AGES, 1.0))
        work = SpotWork(work_hours=1000.0, interval_hours=1e-3, restart_hours=0.0)
        runs = simulate(work, process, 300, 1)
        assert runs.losses.mean() == pytest.approx(500, rel=0.02)
        assert runs.hours.mean() == pytest.approx(1500, rel=0.02)
        assert runs.paid_hours.mean() == pytest.approx(1000, rel=0.01)

    def test_durations_follow_their_own_factor(self) -> None:
        generator = np.random.default_rng(0)
        rates = np.full(AGES, 2.0)
        slow, quick = (duration(rates, np.full(20_000, factor), generator).mean() for factor in (1.0, 4.0))
        assert (slow, quick) == pytest.approx((0.5, 0.125), rel=0.05)

    def test_what_is_there_at_a_random_moment_is_there_as_often_as_in_the_long_run(self) -> None:
        # Two hours there, one gone, neither ageing: two in three start at once, the rest wait an hour on average.
        process = SpotProcess(loss_per_hour=np.full(AGES, 0.5), return_per_hour=np.full(AGES, 1.0))
        ones = np.ones(30_000)
        generator = np.random.default_rng(0)
        wait, stint = first_stretch(process, ones, ones, generator.random((2, 30_000)), generator)
        assert (wait == 0).mean() == pytest.approx(2 / 3, abs=0.01)
        assert wait[wait > 0].mean() == pytest.approx(1.0, rel=0.04)
        assert stint.mean() == pytest.approx(2.0, rel=0.04)


class TestPrices:
    @pytest.mark.parametrize(
        ("days", "low", "high"), [(0, 1.0, 1.0), (1, 0.98, 1.03), (7, 0.90, 1.14), (30, 0.79, 1.46), (90, 0.64, 1.91)]
    )
    def test_the_days_that_were_looked_at(self, days: float, low: float, high: float) -> None:
        found = spot_price_drift(days)
        assert found.rows()[0] == pytest.approx((low, 1.0, high))
        assert not found.extrapolated[0]

    def test_between_two_days_by_the_root_of_time(self) -> None:
        # The root of 4 is half way from that of 1 to that of 9; of 7 it is 1.646 from 1.
        part = (2 - 1) / (math.sqrt(7) - 1)
        assert spot_price_drift(4.0).p95[0] == pytest.approx(1.03 ** (1 - part) * 1.14**part)

    def test_beyond_them_nothing_is_known(self) -> None:
        assert spot_price_drift(91.0).extrapolated[0]
        assert spot_price_drift(200.0).p95[0] == pytest.approx(1.91)
        assert spot_price_drift(-5.0).p95[0] == 1.0
        assert spot_price_drift().p95[0] == pytest.approx(1.91)

    def test_draws_have_a_middle_of_one_and_either_width(self) -> None:
        draws = spot_price_draws(40_000, seed=3)
        assert np.quantile(draws, [0.05, 0.5, 0.95]) == pytest.approx([0.64, 1.0, 1.91], rel=0.02)


class TestRates:
    """Ages begin at 0, 0.12, 0.3, 1, 4 and 16 hours."""

    def test_ages(self) -> None:
        assert age_bucket(floats(0.0, 0.119, 0.12, 0.5, 1.0, 15.9, 16.0, 99.0)).tolist() == [0, 0, 1, 2, 3, 4, 5, 5]

    def test_risk_adds_up_over_the_ages(self) -> None:
        # Until 2 h: 0.12 x 1 + 0.18 x 2 + 0.7 x 3 + 1 x 4. Until 20 h: 0.12 + 0.36 + 2.1 + 12 + 60 + 4 x 6.
        rates = floats(1, 2, 3, 4, 5, 6)
        assert cumulative_hazard(rates, floats(2.0, 20.0)) == pytest.approx([6.58, 98.58])
        assert hours_at_hazard(rates, floats(6.58, 98.58)) == pytest.approx([2.0, 20.0])

    def test_risk_that_ends_is_never_reached(self) -> None:
        rates = floats(1, 0, 0, 0, 0, 0)
        assert hours_at_hazard(rates, floats(0.06, 0.13)).tolist() == pytest.approx([0.06, math.inf])

    def test_a_duration_that_is_cut_off(self) -> None:
        # Exponential with rate 2, cut off after t: (1 - exp(-2 t)) / 2 on average.
        rates = np.full((2, AGES), 2.0)
        assert area_by_row(rates, floats(0.5, 20.0)) == pytest.approx([(1 - math.exp(-1)) / 2, 0.5])
        assert left_by_age(rates)[0] == pytest.approx(
            [math.exp(-2 * age) / 2 for age in (0, 0.12, 0.3, 1, 4, 16)], rel=1e-9
        )
        never = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
        assert np.isinf(left_by_age(never)).all()

    @pytest.mark.parametrize(("interruption_class", "calmer"), [(0, 1.0), (1, 0.75), (2, 0.5), (3, 0.25), (4, 0.0)])
    def test_a_class_shifts_by_what_zones_differ_and_is_doubted_as_much(
        self, interruption_class: int, calmer: float
    ) -> None:
        found = process_for_class(interruption_class)
        assert found.loss_per_hour == pytest.approx(POOLED.loss_per_hour * math.exp(-0.41 * calmer))
        assert found.return_per_hour == pytest.approx(POOLED.return_per_hour * math.exp(0.43 * calmer))
        assert found.loss_log_sd == pytest.approx(0.41 * math.sqrt(1 + calmer**2))
        assert found.log_sd == pytest.approx(0.43 * math.sqrt(1 + calmer**2))

    def test_a_gang_is_hardly_lost_more_often_than_a_node_that_is_as_old(self) -> None:
        one, sixteen = SpotSource(4).gang(1), SpotSource(4).gang(16)
        assert sixteen.loss_per_hour == pytest.approx(16**0.03 * one.loss_per_hour)
        assert sixteen.return_per_hour == pytest.approx(one.return_per_hour)
        assert (sixteen.log_sd, sixteen.loss_log_sd) == (one.log_sd, one.loss_log_sd) == (0.43, 0.41)


class TestHistory:
    RUNS = Stretches(floats(0, 2, 3, 8), floats(2, 3, 8, 10), np.array([True, False, True, False]))

    def test_hours_at_each_age_and_where_stretches_ended(self) -> None:
        # There for 2 h and for 5 h. Ages of 0.12, 0.18, 0.7 and up to 3 h: both lived the first three; of the fourth
        # the first had 1 h, the second 3 h, and then 1 h of the fifth. They ended in the fourth and in the fifth.
        lived, ended = ages_lived(self.RUNS, True, 0.0, 10.0)
        assert lived == pytest.approx([0.24, 0.36, 1.4, 4.0, 1.0, 0.0])
        assert ended.tolist() == [0, 0, 0, 1, 1, 0]

    def test_the_last_stretch_is_cut_off_and_did_not_end(self) -> None:
        lived, ended = ages_lived(self.RUNS, False, 0.0, 10.0)
        # Gone for exactly 1 h, which ends the third age, and for 2 h so far.
        assert lived == pytest.approx([0.24, 0.36, 1.4, 1.0, 0.0, 0.0])
        assert ended.tolist() == [0, 0, 1, 0, 0, 0]

    def test_only_what_lies_between(self) -> None:
        # From 1 h to 4 h: the first stretch from its age 1 h to 2 h, where it ended; the third until its age of 1 h.
        lived, ended = ages_lived(self.RUNS, True, 1.0, 4.0)
        assert lived == pytest.approx([0.12, 0.18, 0.7, 1.0, 0.0, 0.0])
        assert ended.tolist() == [0, 0, 0, 1, 0, 0]

    def test_what_ended_a_half_life_ago_weighs_half(self) -> None:
        # Seen from 10 h with a half-life of 8 h: the first ended 8 h ago.
        _, ended = ages_lived(self.RUNS, True, 0.0, 10.0, half_life_hours=8.0)
        assert ended == pytest.approx([0, 0, 0, 0.5, 0.5 ** (2 / 8), 0])

    def test_uncertainty_grows_towards_that_between_zones(self) -> None:
        # A drift over ten days: after 120 h 0.43 times the root of 1 - exp(-240 / 240). Its days are like all days.
        trace = Trace(name="zone", tick_seconds=3600.0, counts=np.ones(200, dtype=np.int64))
        fresh, old = (process_from_trace(trace, age_hours=age) for age in (0.0, 120.0))
        assert (fresh.log_sd, fresh.loss_log_sd, fresh.day_log_sd) == (0.0, 0.0, 0.25)
        assert old.log_sd == pytest.approx(0.43 * math.sqrt(1 - math.exp(-1)))

    def test_a_recording_speaks_for_gangs_up_to_its_size(self) -> None:
        counts = np.tile([4, 4, 2, 0], 100)
        source = SpotSource(recording=Recording(trace=Trace(name="zone", tick_seconds=3600.0, counts=counts)))
        two, four, eight = (source.gang(nodes) for nodes in (2, 4, 8))
        assert two.mean_up_hours > four.mean_up_hours
        # Twice the most that was seen: 2^0.03 times its losses.
        assert eight.loss_per_hour == pytest.approx(2**0.03 * four.loss_per_hour)
        assert source.ever_there


class TestSources:
    def test_a_recording_goes_before_the_class(self) -> None:
        recording = Recording(trace=Trace(name="zone", tick_seconds=3600.0, counts=np.ones(48, dtype=np.int64)))
        history = SpotHistory(recordings={("g1.one", "near-az1"): recording})
        assert history.source("g1.one", "near-az1", 2) == SpotSource(recording=recording)
        assert history.source("g1.one", "near-az2", 2) == SpotSource(2, rivals=(recording,))
        assert history.source("g1.two", "near-az1", None) == SpotSource()

    def test_descriptions(self) -> None:
        trace = Trace(name="zone", tick_seconds=3600.0, counts=np.array([1, 3, 2] * 16))
        fresh, old = (SpotSource(recording=Recording(trace=trace, age_hours=age)) for age in (0.0, 30.0))
        assert fresh.described(POOLED, None) == "recorded capacity zone (48 h of up to 3 nodes)"
        assert old.described(POOLED, None) == "recorded capacity zone (48 h of up to 3 nodes, 30 h old)"
        known = replace(POOLED, log_sd=0.0, own_loss_log_sd=0.0)
        assert SpotSource(0).described(known, "February 2024") == (
            "assumed from public recordings of other zones, nobody has measured this one: a loss every 2.4 h to 2.4 h, "
            "none to be had in 34 to 34 % of the time; "
            "AWS's class of February 2024 (under 5 % taken back in a month) is weak evidence"
        )
        assert SpotSource().described(POOLED, None).endswith("of the time; AWS gives no interruption class")

    def test_what_is_not_known_is_at_no_age_better_than_what_was_measured_well(self) -> None:
        good, poor = (
            Recording(trace=Trace(name="zone", tick_seconds=600.0, counts=np.tile(counts, 60)))
            for counts in ([1] * 9 + [0], [1, 1, 0, 0])
        )
        recordings = {("g1.one", "near-az1"): good, ("g1.one", "near-az2"): poor}
        unknown = SpotHistory(recordings=recordings).source("g1.one", "near-az3", 0)
        assert unknown.rivals == (good,)
        for nodes in (1, 4):
            assumed, measured = unknown.gang(nodes), SpotSource(recording=good).gang(nodes)
            assert (assumed.loss_per_hour > measured.loss_per_hour).all()
            assert (assumed.return_per_hour < measured.return_per_hour).all()


class TestIntervals:
    @pytest.mark.parametrize(
        ("save", "between", "expected"),
        [
            (40.0, 10.0, math.sqrt(2 * 40 * 36_000)),  # Young: 1,697 s
            (40.0, 0.01, 200.0),  # not more often than every five saves
            (2.0, 0.01, 60.0),  # nor every minute
            (40.0, 10_000.0, 3600.0),  # not less often than every hour
            (100.0, 10_000.0, 6000.0),  # or every sixty saves
        ],
    )
    def test_youngs_balance_within_bounds(self, save: float, between: float, expected: float) -> None:
        assert checkpoint_interval_seconds(save, between) == pytest.approx(expected)

    def test_a_notice_leaves_a_tenth_of_the_losses(self) -> None:
        assert checkpoint_interval_seconds(20.0, 1.0, uses_notice=True) == pytest.approx(math.sqrt(2 * 20 * 36_000))
        assert checkpoint_interval_seconds(20.0, 1.0) == pytest.approx(math.sqrt(2 * 20 * 3600))
        assert checkpoint_interval_seconds(40.0) == checkpoint_interval_seconds(40.0, 10.0)
