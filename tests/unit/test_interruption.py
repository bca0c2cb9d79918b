"""Laws of losing spot nodes: traces, rates by age, checkpoints, and what they cost in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.traces import Trace, parse_trace
from planner.models.checkpoints import checkpoint_interval_seconds, intervals_seconds, saved_in_notice
from planner.spot.rates.history import process_from_trace
from planner.spot.rates.interruption_classes import process_for_class
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import AGES, SpotProcess, cumulative_hazard, hours_at_hazard, mean_hours, moments_by_row
from planner.spot.rates.sources import SpotSource
from planner.spot.runs.monte_carlo import simulate
from planner.spot.runs.work import SpotWork
from planner.spot.slowdown import SpotBurden, SpotRates, expected_losses, spot_slowdown

rates = st.lists(st.floats(0.01, 5.0), min_size=AGES, max_size=AGES).map(np.array)
scales = st.floats(0.05, 4.0)


def trace_of(counts: list[int], tick_seconds: float = 600.0) -> Trace:
    return Trace(name="zone", tick_seconds=tick_seconds, counts=np.array(counts))


def document(data: object, gap: object = 60, **more: object) -> dict[str, object]:
    return {"metadata": {"gap_seconds": gap}, "data": data, **more}


def flickering(ticks: int = 4000, seed: int = 0) -> Trace:
    return trace_of(np.repeat(np.random.default_rng(seed).integers(0, 5, ticks // 8), 8).tolist())


class TestTraces:
    @pytest.mark.parametrize(
        ("given_document", "said"),
        [
            ([], "zone: no availability trace"),
            (document([]), "zone: data: the trace is empty"),
            (document([1, 0, None, 1]), "zone: data: has a gap at tick 2"),
            (document([1, float("nan")]), "zone: data: has a gap at tick 1"),
            (document([1, -1]), "zone: data: has a gap at tick 1"),
            (document([1, 0], gap=0), "zone: metadata.gap_seconds: must be"),
            (document([1, 0], prices=[0.3, -0.3]), "zone: prices: tick 1: -0.3 is no price"),
            (document([1, 0], prices=[0.3]), "zone: prices: need one price for each of the 2 ticks"),
        ],
    )
    def test_what_is_no_trace_is_named_on_one_line(self, given_document: object, said: str) -> None:
        with pytest.raises(InputError) as caught:
            parse_trace("zone", given_document)
        assert str(caught.value).startswith(said)
        assert "\n" not in str(caught.value)

    @given(st.lists(st.integers(0, 4), min_size=2, max_size=50))
    def test_runs_tile_the_recording(self, counts: list[int]) -> None:
        trace = parse_trace("zone", document(counts))
        runs = trace.stretches(1)
        assert runs.begin_hours[0] == 0
        assert runs.end_hours[-1] == pytest.approx(trace.hours)
        assert runs.end_hours[:-1] == pytest.approx(runs.begin_hours[1:])
        assert (runs.up[1:] != runs.up[:-1]).all()
        up_hours = (runs.end_hours - runs.begin_hours)[runs.up].sum()
        assert up_hours == pytest.approx(sum(count >= 1 for count in counts) / 60)


class TestProcess:
    @given(rates, st.lists(st.floats(0, 50), min_size=1, max_size=5).map(np.array))
    def test_risk_and_hours_are_each_others_inverse(self, hazard: np.ndarray, hours: np.ndarray) -> None:
        assert hours_at_hazard(hazard, cumulative_hazard(hazard, hours)) == pytest.approx(hours, abs=1e-6)

    @given(st.floats(0.01, 5.0))
    def test_a_rate_that_does_not_age_is_the_exponential_law(self, rate: float) -> None:
        assert mean_hours(np.full(AGES, rate)) == pytest.approx(1 / rate)
        moments = moments_by_row(np.full((1, AGES), rate))
        assert [moment[0] for moment in moments] == pytest.approx([1 / rate, 2 / rate**2, 6 / rate**3])

    @given(rates)
    @settings(max_examples=20)
    def test_moments_are_the_integrals_of_its_survival(self, hazard: np.ndarray) -> None:
        hours = np.geomspace(1e-6, 100 / hazard.min(), 100_000)
        survival = np.exp(-cumulative_hazard(hazard, hours))
        for power, moment in enumerate(moments_by_row(hazard[None]), start=1):
            found = np.trapezoid(power * hours ** (power - 1) * survival, hours)
            assert moment[0] == pytest.approx(found, rel=1e-3)

    def test_without_losses_it_is_always_there_and_without_returns_never(self) -> None:
        assert POOLED.scaled(loss=0.0).availability == 1.0
        assert POOLED.scaled(returns=0.0).availability == 0.0

    @given(scales, st.floats(1.05, 3.0))
    def test_more_losses_make_it_rarer(self, loss: float, more: float) -> None:
        assert POOLED.scaled(loss=loss * more).availability < POOLED.scaled(loss=loss).availability

    def test_classes_are_ordered_and_the_last_is_the_pool(self) -> None:
        means = [process_for_class(index).mean_up_hours for index in range(5)]
        assert means == sorted(means, reverse=True)
        for last in (process_for_class(4), process_for_class(None)):
            assert last.loss_per_hour.tolist() == POOLED.loss_per_hour.tolist()
            assert (last.log_sd, last.loss_log_sd) == (POOLED.log_sd, POOLED.loss_log_sd)

    def test_between_neighbouring_classes_there_is_no_cliff(self) -> None:
        for one in range(4):
            calm, next_one = process_for_class(one), process_for_class(one + 1)
            assert 1 < calm.mean_up_hours / next_one.mean_up_hours < 1.5
            assert 1 < next_one.mean_down_hours / calm.mean_down_hours < 1.5


class TestHistory:
    @given(st.floats(0, 500), st.floats(1, 500))
    def test_older_history_means_wider_intervals(self, age: float, more: float) -> None:
        trace = flickering()
        fresh, old = (process_from_trace(trace, age_hours=hours) for hours in (age, age + more))
        assert fresh.log_sd < old.log_sd <= POOLED.log_sd

    def test_very_old_history_says_no_more_than_the_pool(self) -> None:
        old = process_from_trace(flickering(), age_hours=1e6)
        assert old.loss_per_hour == pytest.approx(POOLED.loss_per_hour)
        assert old.log_sd == pytest.approx(POOLED.log_sd)

    def test_what_was_lost_often_is_expected_to_be_lost_often(self) -> None:
        steady, shaky = trace_of([1] * 1000 + [0]), trace_of([1, 1, 1, 0] * 250)
        assert process_from_trace(steady, nodes=1).mean_up_hours > 3 * process_from_trace(shaky, nodes=1).mean_up_hours

    def test_a_zone_without_capacity_still_has_a_finite_forecast(self) -> None:
        never = process_from_trace(trace_of([0] * 1000), nodes=1)
        assert 0 < never.availability < POOLED.availability


class TestCheckpoints:
    @given(st.floats(1, 600), st.floats(0.1, 1000), st.floats(1.1, 10))
    def test_fewer_losses_never_ask_for_more_saves(self, save: float, between: float, more: float) -> None:
        assert checkpoint_interval_seconds(save, between) <= checkpoint_interval_seconds(save, between * more)

    @given(st.floats(1, 600), st.floats(0.1, 1000))
    def test_a_notice_in_which_the_save_fits_allows_longer_intervals(self, save: float, between: float) -> None:
        alone, with_notice = (checkpoint_interval_seconds(save, between, uses_notice=use) for use in (False, True))
        assert with_notice >= alone
        if not saved_in_notice(save):
            assert with_notice == alone


class TestSlowdown:
    @given(st.floats(1, 200), scales, st.integers(2, 64), st.integers(1, 63), st.floats(1.01, 10))
    def test_more_on_demand_never_raises_the_chance_of_being_late(
        self, busy: float, loss: float, nodes: int, base: int, factor: float
    ) -> None:
        spot_nodes = np.array([nodes, max(nodes - base, 0)])
        gangs = SpotRates.of(POOLED.scaled(loss=loss)).for_gang(spot_nodes)
        slowdown = spot_slowdown(np.full(2, busy), SpotBurden.of(gangs, interval_hours=0.25))
        more_spot, less_spot = slowdown.probability_at_most(factor)
        assert less_spot >= more_spot - 1e-9

    @given(st.floats(1, 200), scales, st.floats(1.05, 4.0))
    def test_a_higher_loss_rate_never_lowers_hours_or_losses(self, busy: float, loss: float, more: float) -> None:
        both = SpotRates.of(POOLED.scaled(loss=loss), POOLED.scaled(loss=loss * more))
        burden = SpotBurden.of(both, interval_hours=0.25)
        slowdown = spot_slowdown(np.full(2, busy), burden)
        assert slowdown.p50[1] >= slowdown.p50[0] >= 1
        assert np.diff(expected_losses(np.full(2, busy), burden))[0] > 0

    @given(st.floats(0.1, 1000))
    def test_on_demand_only_takes_as_long_as_it_takes(self, busy: float) -> None:
        burden = SpotBurden.of(SpotRates.of(POOLED).for_gang(np.array([0])), interval_hours=0.25)
        slowdown = spot_slowdown(np.array([busy]), burden)
        assert (slowdown.p05[0], slowdown.p50[0], slowdown.p95[0]) == (1.0, 1.0, 1.0)
        assert expected_losses(np.array([busy]), burden)[0] == 0.0

    @given(rates, rates)
    @settings(max_examples=30)
    def test_columns_and_single_processes_agree(self, loss: np.ndarray, returns: np.ndarray) -> None:
        process = SpotProcess(loss_per_hour=loss, return_per_hour=returns)
        assert SpotRates.of(process).mean_up_hours[0] == pytest.approx(process.mean_up_hours, rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 8])
@pytest.mark.parametrize("interruption_class", [None, 1, 3])
@pytest.mark.parametrize("hours", [12.0, 24.0, 100.0])
@pytest.mark.parametrize(("save_seconds", "shorter"), [(5.0, 0.25), (300.0, 0.3)])
def test_what_the_search_compares_is_near_what_the_plan_simulates(
    interruption_class: int | None, nodes: int, hours: float, save_seconds: float, shorter: float
) -> None:
    """With what is not known of the rates: that is most of the p95. Only short saves make it within the notice."""
    gang = SpotSource(interruption_class).gang(nodes)
    interval = checkpoint_interval_seconds(save_seconds, gang.mean_up_hours, uses_notice=True) / 3600
    save, busy = save_seconds / 3600, hours * (1 + save_seconds / 3600 / interval)
    work = SpotWork(
        work_hours=hours, interval_hours=interval, save_hours=save, restart_hours=0.1 + save, uses_notice=True
    )
    found = simulate(work, gang, 8_000, seed=1).hours / (busy + 0.1 + save)
    burden = SpotBurden.of(
        SpotRates.of(gang),
        interval_hours=interval + save,
        restart_hours=0.1 + save,
        saves_on_notice=work.saves_on_notice,
    )
    closed = spot_slowdown(np.array([busy]), burden)
    assert closed.p50[0] == pytest.approx(np.quantile(found, 0.5), rel=0.25)
    assert 1 - shorter < closed.p95[0] / np.quantile(found, 0.95) < 1.25


def test_one_node_more_never_moves_the_p95_by_far() -> None:
    gangs = SpotSource(3).rates(np.arange(1, 129))
    for busy in (1.0, 12.0, 100.0):
        p95 = spot_slowdown(np.full(128, busy), SpotBurden.of(gangs, interval_hours=0.3)).p95
        assert (np.diff(p95) >= -1e-9).all()
        assert (np.diff(np.log(p95)) < 0.25).all()


@given(st.lists(st.sampled_from([0.0, 1e-9, 1e-4, 0.1, 3.0]), min_size=AGES, max_size=AGES).map(np.array))
def test_rates_of_nothing_at_some_ages_leave_the_moments_right(hazard: np.ndarray) -> None:
    hazard[-1] = 1.0
    mean, square, cube = (float(moment[0]) for moment in moments_by_row(hazard[None]))
    hours = np.append(np.linspace(0, 16, 160_001), 16 + np.geomspace(1e-6, 80, 20_000))
    survival = np.exp(-cumulative_hazard(hazard, hours))
    found = [np.trapezoid(power * hours ** (power - 1) * survival, hours) for power in (1, 2, 3)]
    assert [mean, square, cube] == pytest.approx(found, rel=1e-3)


def test_before_a_deadline_long_saves_leave_time_for_what_a_loss_takes_back() -> None:
    hardly_ever = np.array([1000.0])
    intervals = [float(intervals_seconds(300.0, hardly_ever, deadline_hours=hours)[0]) for hours in (None, 24.0, 5.0)]
    assert intervals == [18_000.0, pytest.approx(2.4 * 3600), 3600.0]
