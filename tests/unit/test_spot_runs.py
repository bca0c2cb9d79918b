"""Laws of simulated and replayed runs on spot nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.traces import Trace
from planner.models.checkpoints import checkpoint_interval_seconds
from planner.spot.price import spot_price_draws, spot_price_drift
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import AGES, SpotProcess
from planner.spot.runs.markets import sample_markets
from planner.spot.runs.monte_carlo import SpotRuns, simulate
from planner.spot.runs.replay import replay, replayed_usd
from planner.spot.runs.work import SpotWork
from planner.spot.slowdown import SpotBurden, SpotRates, spot_slowdown

KNOWN = SpotProcess(loss_per_hour=POOLED.loss_per_hour, return_per_hour=POOLED.return_per_hour)
RUNS = 4000
work_hours = st.floats(0.5, 60.0)
seeds = st.integers(0, 2**31)


def day(**changes: float | bool) -> SpotWork:
    return SpotWork(**{"work_hours": 24.0, "interval_hours": 0.25, **changes})


@given(work_hours, st.floats(0.01, 50), seeds)
@settings(max_examples=20)
def test_without_losses_spot_costs_its_hours_at_the_spot_price(hours: float, price: float, seed: int) -> None:
    runs = simulate(day(work_hours=hours), KNOWN.scaled(loss=0.0), 10, seed)
    assert runs.hours == pytest.approx(hours + 0.1)
    assert runs.usd(price) == pytest.approx((hours + 0.1) * price)
    assert not runs.losses.any()


@given(st.floats(0.1, 2.0), st.floats(1.5, 3.0), st.floats(0, 1), seeds)
@settings(max_examples=15, deadline=None)
def test_a_higher_loss_rate_never_lowers_the_median_cost_of_the_same_mix(
    loss: float, more: float, on_demand_usd: float, seed: int
) -> None:
    few, many = (
        np.median(simulate(day(), KNOWN.scaled(loss=rate), RUNS, seed).usd(0.4, on_demand_usd))
        for rate in (loss, loss * more)
    )
    assert many >= few * 0.99


@given(st.floats(0.3, 2.0), st.integers(2, 32), st.floats(1.2, 3.0), seeds)
@settings(max_examples=15, deadline=None)
def test_more_on_demand_nodes_never_raise_the_share_of_late_runs(
    loss: float, nodes: int, factor: float, seed: int
) -> None:
    late = []
    for spot_nodes in (nodes, nodes // 2):
        gang = SpotRates.of(KNOWN.scaled(loss=loss)).for_gang(np.array([spot_nodes]))
        process = SpotProcess(loss_per_hour=gang.loss_per_hour[0], return_per_hour=gang.return_per_hour[0])
        late.append((simulate(day(), process, RUNS, seed).hours > factor * 24).mean())
    assert late[1] <= late[0] + 4 * (0.25 / RUNS) ** 0.5


# Rates at which no save reaches the longest interval of an hour.
@given(st.sampled_from([5.0, 30.0, 300.0]), st.floats(0.8, 1.5), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_chosen_interval_beats_half_and_double_of_it(save: float, loss: float, seed: int) -> None:
    process = KNOWN.scaled(loss=loss)
    chosen = checkpoint_interval_seconds(save, process.mean_up_hours)
    half, best, double = (
        simulate(
            day(interval_hours=chosen * factor / 3600, save_hours=save / 3600), process, 3 * RUNS, seed
        ).paid_hours.mean()
        for factor in (0.5, 1.0, 2.0)
    )
    assert best <= min(half, double) * 1.002


@pytest.mark.parametrize("loss", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("hours", [24.0, 100.0])
def test_the_closed_form_is_near_the_simulation(loss: float, hours: float) -> None:
    process = KNOWN.scaled(loss=loss)
    runs = simulate(day(work_hours=hours), process, 20_000, seed=1)
    burden = SpotBurden.of(SpotRates.of(process), interval_hours=0.25)
    slowdown = spot_slowdown(np.array([hours]), burden)
    assert slowdown.p50[0] * hours == pytest.approx(np.quantile(runs.hours, 0.5), rel=0.15)
    assert slowdown.p95[0] * hours == pytest.approx(np.quantile(runs.hours, 0.95), rel=0.25)


def test_uncertain_rates_widen_the_interval_and_keep_the_median() -> None:
    (low, middle, high), (lower, near, higher) = (
        np.quantile(simulate(day(), replace(KNOWN, log_sd=log_sd), 20_000, seed=1).hours, [0.05, 0.5, 0.95])
        for log_sd in (0.0, 0.4)
    )
    assert higher / lower > 1.5 * high / low
    assert near == pytest.approx(middle, rel=0.1)


def test_the_same_seed_gives_the_same_runs() -> None:
    first, second = (simulate(day(), POOLED, 1000, seed=5).hours for _ in range(2))
    assert (first == second).all()


@given(st.lists(st.booleans(), min_size=2, max_size=300), work_hours)
def test_a_replay_pays_no_more_than_was_there(up: list[bool], hours: float) -> None:
    trace = Trace(name="zone", tick_seconds=600.0, counts=np.array(up, dtype=np.int64))
    starts = np.array([0.0, trace.hours / 2])
    runs = replay(day(work_hours=hours), trace.stretches(1), starts)
    assert (runs.paid_hours <= runs.hours + 1e-9).all()
    assert (runs.hours <= trace.hours - starts + 1e-9).all()
    assert (runs.hours[runs.finished] >= hours).all()
    assert (runs.paid_hours <= sum(up) / 6 + 1e-9).all()


def test_a_replay_without_losses_is_the_work_and_one_without_capacity_never_ends() -> None:
    always, never = (Trace(name="zone", tick_seconds=600.0, counts=np.full(300, count)) for count in (1, 0))
    assert replay(day(), always.stretches(1), np.array([0.0, 3.0])).hours == pytest.approx([24.1, 24.1])
    assert not replay(day(), never.stretches(1), np.array([0.0])).finished.any()


def test_a_simulated_process_replays_as_it_was_simulated() -> None:
    generator = np.random.default_rng(0)
    up = np.concatenate([np.full(generator.geometric(0.1), index % 2) for index in range(4000)])
    trace = Trace(name="zone", tick_seconds=360.0, counts=up)
    exponential = SpotProcess(loss_per_hour=np.full(AGES, 1.0), return_per_hour=np.full(AGES, 1.0))
    replayed = replay(day(work_hours=10.0), trace.stretches(1), np.arange(0.0, trace.hours - 200, 3.0))
    assert np.median(replayed.hours) == pytest.approx(
        np.median(simulate(day(work_hours=10.0), exponential, RUNS, 1).hours), rel=0.1
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"interval_hours": 0.0}, "without them a loss costs everything"),
        ({"work_hours": float("inf")}, "work of inf hours cannot be simulated"),
        ({"work_hours": np.array([5.0, 0.0])}, "work of 0.0 hours cannot be simulated"),
        ({"work_hours": np.array([5.0, np.inf])}, "work of inf hours cannot be simulated"),
        ({"save_hours": -1.0}, "less than no time"),
    ],
)
def test_a_job_that_cannot_be_is_refused_on_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        day(**change)


def test_a_save_longer_than_the_notice_is_not_counted_on() -> None:
    assert day(save_hours=20 / 3600, uses_notice=True).saves_on_notice
    assert not day(save_hours=300 / 3600, uses_notice=True).saves_on_notice


def test_availability_zero_and_negative_prices_are_refused() -> None:
    with pytest.raises(InputError, match="availability is zero"):
        simulate(day(), KNOWN.scaled(returns=0.0), 10, seed=0)
    runs = SpotRuns(hours=np.ones(1), paid_hours=np.ones(1), losses=np.zeros(1, int), finished=np.ones(1, bool))
    with pytest.raises(InputError, match="cannot be"):
        runs.usd(-0.1)


def test_a_replay_pays_the_recorded_prices() -> None:
    up = np.array([1, 0, 1] * 100)
    dear = Trace(name="zone", tick_seconds=3600.0, counts=up, prices=np.full(300, 3.0))
    starts = np.array([0.0, 7.0])
    runs = replay(day(work_hours=20.0), dear.stretches(1), starts)
    assert replayed_usd(dear, runs, starts) == pytest.approx(3.0 * runs.paid_hours)
    with pytest.raises(InputError, match="zone: the trace has no prices"):
        replayed_usd(Trace(name="zone", tick_seconds=3600.0, counts=up), runs, starts)


def test_a_replay_pays_the_nodes_that_wait_for_the_others() -> None:
    several = Trace(name="zone", tick_seconds=3600.0, counts=np.array([4, 3, 0, 4]), prices=np.full(4, 3.0))
    four_hours = SpotRuns(
        hours=np.full(1, 4.0), paid_hours=np.full(1, 2.0), losses=np.ones(1, int), finished=np.ones(1, bool)
    )
    assert replayed_usd(several, four_hours, np.zeros(1)) == pytest.approx(3 * (1 + 3 / 4 + 0 + 1))
    assert replayed_usd(several, four_hours, np.zeros(1), nodes=2) == pytest.approx(3 * 3)
    assert replayed_usd(several, four_hours, np.zeros(1), nodes=1, unseen_share=0.5) == pytest.approx(3 * 3.5)


def test_sampled_markets_have_the_availability_of_their_process() -> None:
    up, ages = sample_markets(KNOWN, 400, 1000, 0.1, seed=2)
    assert up.mean() == pytest.approx(KNOWN.availability, abs=0.04)
    assert (ages >= 0).all()


def test_drawn_prices_have_the_interval_of_the_snapshot_s_age() -> None:
    draws = spot_price_draws(50_000, seed=0, age_days=30.0)
    drift = spot_price_drift(30.0)
    assert np.quantile(draws, [0.05, 0.95]) == pytest.approx([drift.p05[0], drift.p95[0]], rel=0.02)
    assert spot_price_drift(0.0).p95[0] == 1.0
    assert spot_price_drift(1.0).p95[0] < drift.p95[0] < spot_price_drift(90.0).p95[0]
