"""Forecasts of loss curves: laws, and curves whose arrival is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.columns import Quantiles
from planner.models.loss_curve import Curve, CurveBeliefs, first_reached, forecast_curve

TRUSTING = CurveBeliefs(elsewhere=0.01, stretch_log=0.0)


def power(until: float, *, plateau: float = 1.0, exponent: float = 0.5, count: int = 60) -> Curve:
    samples = np.linspace(until / count, until, count)
    return Curve(samples, plateau + 3.0 * (samples / 1e3) ** -exponent)


def test_a_power_law_arrives_where_it_does() -> None:
    """1 + 3 * (n / 1000)^-0.5 is 1.2 at n = 225,000; two thirds of that were seen."""
    found = forecast_curve(power(150_000), 1.2, beliefs=TRUSTING)
    assert found.p50 == pytest.approx(225_000, rel=0.1)
    assert found.p05 <= 225_000 <= (found.p95 or np.inf)


def test_a_plateau_above_the_target_is_not_reached() -> None:
    samples = np.linspace(1e3, 1e5, 100)
    flat = Curve(samples, 2.0 + np.exp(-samples / 5e3))
    found = forecast_curve(flat, 1.5, beliefs=TRUSTING)
    assert (found.p50, found.p95) == (None, None)
    assert found.alone_probability < 0.2
    assert found.reached_probability < 0.3


def test_a_plan_counts_where_the_curve_is_not_believed() -> None:
    plan = Quantiles(180_000.0, 200_000.0, 220_000.0)
    found = forecast_curve(power(150_000), 1.2, plan, CurveBeliefs(elsewhere=1.0))
    assert found.p50 == pytest.approx(200_000, rel=0.05)


def test_a_rising_loss_forecasts_no_early_arrival() -> None:
    samples = np.linspace(1e3, 1e5, 50)
    assert forecast_curve(Curve(samples, 1 + samples / 1e5), 0.5, beliefs=TRUSTING).p50 is None


def test_one_lucky_evaluation_is_no_arrival() -> None:
    samples = np.arange(1.0, 8.0)
    assert first_reached(Curve(samples, np.array([5, 4, 1, 4, 3, 2, 2.0])), 2.0) == 6.0
    assert first_reached(Curve(samples, np.array([5, 4, 1, 4, 3, 3, 3.0])), 2.0) is None


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=30),
    st.floats(0.01, 1e3),
    st.booleans(),
)
def test_whatever_was_logged_the_ends_are_in_order(loss: list[float], below: float, has_plan: bool) -> None:
    curve = Curve(np.arange(1.0, len(loss) + 1) * 100, np.array(loss))
    plan = Quantiles(500.0, 1000.0, 2000.0) if has_plan else None
    found = forecast_curve(curve, min(loss) - below, plan)
    ends = [found.p05, *(end for end in (found.p50, found.p95) if end is not None)]
    assert ends == sorted(ends)
    assert ends[0] >= curve.samples[-1]
    assert found.p95 is None or found.p50 is not None
    assert 0 <= found.reached_probability <= 1 + 1e-9


@settings(deadline=None, max_examples=20)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_of_samples_and_loss_do_not_matter(samples: float, loss: float) -> None:
    curve = power(150_000)
    one = forecast_curve(curve, 1.2)
    other = forecast_curve(Curve(curve.samples * samples, curve.loss * loss), 1.2 * loss)
    assert one.p50 is not None
    assert other.p50 == pytest.approx(one.p50 * samples, rel=1e-3)
