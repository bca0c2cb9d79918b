"""Predictions by hand: quantiles, products, sums and limits of a few numbers."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from small_world import column, floats

from planner.columns import Z95, Prediction, Quantiles

Z = NormalDist().inv_cdf(0.95)  # 1.645
SKEWED = column(2.0, 10.0, 40.0)  # a factor of 5 below, of 4 above


def flagged(*flags: bool) -> Prediction:
    ones = np.ones(len(flags))
    return Prediction(p05=ones, p50=ones, p95=ones, extrapolated=np.array(flags))


def test_z95_is_what_a_normal_variable_exceeds_once_in_twenty() -> None:
    assert pytest.approx(1.6448536269514722) == Z95 == pytest.approx(Z)


def test_log_normal_is_the_median_times_and_over_the_same_factor() -> None:
    found = Prediction.log_normal(floats(10.0), 0.5, np.array([True]))
    assert found.rows()[0] == pytest.approx((10 * math.exp(-0.5 * Z), 10.0, 10 * math.exp(0.5 * Z)))
    assert found.extrapolated.tolist() == [True]


@pytest.mark.parametrize(
    ("probability", "expected"),
    [
        (0.05, 2.0),
        (0.5, 10.0),
        (0.95, 40.0),
        (NormalDist().cdf(Z / 2), 20.0),  # half way up in logarithms: the root of the factor 4
        (NormalDist().cdf(-Z / 2), 10 / 5**0.5),
        (NormalDist().cdf(2 * Z), 160.0),  # beyond the interval it goes on alike
    ],
)
def test_each_side_has_its_own_width(probability: float, expected: float) -> None:
    assert SKEWED.quantile(probability) == pytest.approx([expected])
    assert SKEWED.probability_at_most(expected) == pytest.approx([probability])
    assert Quantiles(2.0, 10.0, 40.0).probability_at_most(expected) == pytest.approx(probability)


def test_without_a_width_it_is_below_the_limit_or_it_is_not() -> None:
    sure = Quantiles(3.0, 3.0, 3.0)
    assert [sure.probability_at_most(limit) for limit in (2.9, 3.0, 3.1)] == [0.0, 1.0, 1.0]


def test_relative_errors_of_a_product_add_in_quadrature() -> None:
    # In logarithms, above: 3 and 4 make 5; below: 8 and 15 make 17.
    one = column(math.exp(-8), 1.0, math.exp(3))
    other = column(2 * math.exp(-15), 2.0, 2 * math.exp(4))
    assert one.times(other).rows()[0] == pytest.approx((2 * math.exp(-17), 2.0, 2 * math.exp(5)))


def test_parts_of_one_bill_add_plainly() -> None:
    assert SKEWED.plus(column(1.0, 2.0, 3.0)).rows() == [Quantiles(3.0, 12.0, 43.0)]


def test_the_smaller_counts_quantile_by_quantile() -> None:
    assert SKEWED.at_most(column(3.0, 9.0, 41.0)).rows() == [Quantiles(2.0, 9.0, 40.0)]


def test_scaling_and_shifting() -> None:
    assert SKEWED.scaled(3.0, shift=1.0).rows() == [Quantiles(7.0, 31.0, 121.0)]
    assert SKEWED.scaled(0.5).rows() == [Quantiles(1.0, 5.0, 20.0)]
    assert SKEWED.shifted(0.5).rows() == [Quantiles(2.5, 10.5, 40.5)]


def test_rows_are_picked_by_number_and_by_flag() -> None:
    three = column([1, 2, 3], [4, 5, 6], [7, 8, 9])
    assert three.at(np.array([2, 0])).rows() == [Quantiles(3, 6, 9), Quantiles(1, 4, 7)]
    assert three.at(np.array([False, True, False])).rows() == [Quantiles(2, 5, 8)]


def test_what_is_made_of_a_guess_is_a_guess() -> None:
    one, other = flagged(False, True, False), flagged(False, False, True)
    assert one.times(other).extrapolated.tolist() == [False, True, True]
    assert one.plus(other).extrapolated.tolist() == [False, True, True]
    assert one.scaled(2.0).extrapolated.tolist() == one.shifted(2.0).extrapolated.tolist() == [False, True, False]
    assert one.at(np.array([1])).extrapolated.tolist() == [True]
