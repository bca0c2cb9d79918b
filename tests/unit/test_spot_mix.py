"""Spot nodes beside on-demand ones, by hand: bases, who is paid while the gang waits, and falling back in time.

Rates that do not age are the exponential law, for which every mean has a short formula.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from small_world import column, floats, job, sure

from planner.columns import Ints
from planner.spot.mix import SpotMarkets, SpotTerms, fallen_back, on_demand_bases
from planner.spot.rates.process import AGES
from planner.spot.rates.sources import SpotHistory
from planner.spot.slowdown import SpotBurden, SpotRates, expected_losses

LOSS, BACK = 0.5, 2.0  # per hour: two hours there, half an hour gone
PAID_WAITING = 0.095  # of a gang's spot nodes, as measured


class ExponentialSource:
    """The same rates for every size of a gang."""

    def rates(self, nodes: Ints) -> SpotRates:
        ones = np.ones((len(nodes), AGES))
        zeros = np.zeros(len(nodes))
        return SpotRates(loss_per_hour=LOSS * ones, return_per_hour=BACK * ones, loss_log_sd=zeros, return_log_sd=zeros)


def markets(save_seconds: float = 100.0, restart_seconds: float = 360.0, **more: Any) -> SpotMarkets:
    return SpotMarkets(history=SpotHistory(), save_seconds=save_seconds, restart_seconds=restart_seconds, **more)


def bases(nodes: list[int], **constraints: Any) -> list[list[int]]:
    return [base.tolist() for base in on_demand_bases(np.array(nodes), job(constraints).constraints)]


class TestBases:
    def test_one_first_then_a_quarter_half_and_three_quarters_rounded_up(self) -> None:
        # Of 5: 1, then 1.25 -> 2, 2.5 -> 3, 3.75 -> 4. Of 8: 1, 2, 4, 6. Of 4 a quarter is the one again.
        assert bases([4, 5, 8]) == [[1, 1, 1], [-1, 2, 2], [2, 3, 4], [3, 4, 6]]

    def test_a_single_node_has_none_and_no_base_leaves_no_spot_node(self) -> None:
        # Of 2, three quarters are 2; of 3, half is 2 and three quarters are 3.
        assert bases([1, 2, 3]) == [[0, 1, 1], [-1, -1, -1], [-1, -1, 2], [-1, -1, -1]]

    def test_a_base_that_is_asked_for_is_the_only_one(self) -> None:
        assert bases([1, 2, 3, 4], on_demand_base=2) == [[-1, -1, 2, 2]]
        assert bases([1, 2], on_demand_base=0) == [[0, 0]]


class TestBurden:
    """Interval of 0.6 h, restart of 0.2 h: a loss takes back the first 0.5 h of a stint, or all of a shorter one."""

    UP, DOWN = 1 / LOSS, 1 / BACK
    KEPT = UP * math.exp(-LOSS * 0.5)  # the mean of what a stint of exponential length has beyond its first half hour

    def burden(self, **changes: Any) -> SpotBurden:
        rates = ExponentialSource().rates(np.array([1]))
        return SpotBurden.of(rates, **{"interval_hours": 0.6, "restart_hours": 0.2, **changes})

    def test_means_of_the_exponential_law(self) -> None:
        found = self.burden()
        assert found.losses_per_hour == pytest.approx([1 / self.KEPT])
        assert found.hours_per_hour == pytest.approx([(self.UP - self.KEPT + self.DOWN) / self.KEPT])
        assert found.waiting_share == pytest.approx([self.DOWN / (self.UP - self.KEPT + self.DOWN)])

    def test_a_save_on_notice_loses_half_an_interval_once_in_ten(self) -> None:
        # Lost are the restart, and a tenth of half of what was done of the interval after it.
        restarting = self.UP * (1 - math.exp(-LOSS * 0.2))
        in_danger = self.UP * (math.exp(-LOSS * 0.2) - math.exp(-LOSS * 0.8))
        kept = self.UP - restarting - 0.1 / 2 * in_danger
        assert self.burden(saves_on_notice=True).losses_per_hour == pytest.approx([1 / kept])

    def test_at_the_start_capacity_is_gone_as_often_as_in_the_long_run(self) -> None:
        # Gone 0.5 of 2.5 h; what is left of an exponential shortage is as long as a whole one.
        found = self.burden()
        assert found.shortage == pytest.approx([0.2])
        assert found.start_hours == pytest.approx([0.2 * 0.5])
        # Its mean square is 2 x 0.5^2, so the variance 0.2 x 0.5 - (0.2 x 0.5)^2.
        assert found.start_variance == pytest.approx([0.2 * 0.5 - 0.1**2])
        # Longer than t with 0.2 x exp(-2 t): once in twenty when exp(-2 t) is a quarter. Read between ages.
        assert found.start_p95_hours == pytest.approx([math.log(4) / 2], rel=0.1)

    def test_variance_is_that_of_the_waits_and_of_how_many_there_are(self) -> None:
        # Each loss: the variance of a wait, 0.5^2, and of the stint, 2^2, in units of what it keeps.
        expected = (0.25 + (self.DOWN / self.KEPT) ** 2 * 4.0) / self.KEPT
        assert self.burden().variance_per_hour == pytest.approx([expected])

    def test_losses_go_by_busy_hours(self) -> None:
        assert expected_losses(floats(10.0), self.burden()) == pytest.approx([10 / self.KEPT])

    def test_a_restart_longer_than_any_stint_keeps_hardly_anything(self) -> None:
        found = self.burden(restart_hours=1000.0)
        assert found.hours_per_hour[0] > 1e5

    def test_a_gang_that_is_never_lost_adds_nothing(self) -> None:
        rates = ExponentialSource().rates(np.array([1, 1]))
        never = SpotBurden.of(rates.scaled(loss=floats(0.0, 1.0)), interval_hours=0.6)
        assert (never.losses_per_hour[0], never.hours_per_hour[0], never.shortage[0], never.start_hours[0]) == (0,) * 4
        assert (never.losses_per_hour[1] > 0, never.start_hours[1] > 0) == (True, True)


class TestWaiting:
    """Nodes of a gang that were not lost are paid while they wait for the others; a single node cannot wait so."""

    def test_survivors_are_paid_while_they_wait(self) -> None:
        found = markets().terms(ExponentialSource(), np.array([1, 2, 7]))  # type: ignore[arg-type]
        waiting = found.burden.waiting_share
        assert found.unpaid_share == pytest.approx(waiting * floats(1.0, 1 - PAID_WAITING, 1 - PAID_WAITING))
        assert waiting[0] == waiting[1] > 0.3

    def test_paid_hours_are_all_but_the_unpaid_share_of_what_losses_add(self) -> None:
        # Losses add half as much again: 1.5 wall hours for each busy one, of the extra half hour 0.4 are not paid.
        terms = SpotTerms(
            interval_seconds=floats(60.0), save_share=floats(0.0), unpaid_share=floats(0.8), burden=self.fixed_burden()
        )
        wall, paid = terms.slowdown(floats(10.0))
        for one, other in zip(wall.rows()[0], paid.rows()[0], strict=True):
            assert other - 1 == pytest.approx(0.2 * (one - 1))
        assert wall.p50[0] > 1.2

    def fixed_burden(self) -> SpotBurden:
        return SpotBurden.of(ExponentialSource().rates(np.array([1])), interval_hours=0.6)

    def test_a_gang_of_several_pays_for_more_hours_than_a_single_node_does(self) -> None:
        both = markets().terms(ExponentialSource(), np.array([1, 4]))  # type: ignore[arg-type]
        wall, paid = both.slowdown(floats(20.0, 20.0))
        assert wall.p50[0] == wall.p50[1]
        assert paid.p50[1] > paid.p50[0]


class TestTerms:
    def test_the_interval_balances_saves_and_losses(self) -> None:
        # Young: the root of 2 x 100 s x 7,200 s = 1,200 s. A save of 100 s is too long for the notice.
        found = markets().terms(ExponentialSource(), np.array([1]))  # type: ignore[arg-type]
        assert found.interval_seconds == pytest.approx([1200.0])
        assert found.save_share == pytest.approx([100 / 1200])
        # A loss takes back half of interval and save, and the restart: (0.6 + 0.06...) h in all.
        kept = 2 * math.exp(-LOSS * (360 + 650) / 3600)
        assert found.burden.losses_per_hour == pytest.approx([1 / kept])

    def test_a_save_within_the_notice_counts_a_tenth_of_the_losses(self) -> None:
        # The root of 2 x 20 s x 72,000 s = 1,697 s, which is more than sixty saves but not more than an hour.
        assert markets(save_seconds=20.0).saves_on_notice
        assert not markets(save_seconds=31.0).saves_on_notice
        found = markets(save_seconds=20.0).terms(ExponentialSource(), np.array([1]))  # type: ignore[arg-type]
        assert found.interval_seconds == pytest.approx([math.sqrt(2 * 20 * 72_000)])

    def test_a_deadline_shortens_intervals(self) -> None:
        # Hardly ever lost: sixty saves of 300 s, or a tenth of 24 h.
        class Rare(ExponentialSource):
            def rates(self, nodes: Ints) -> SpotRates:
                return super().rates(nodes).scaled(loss=1e-6)

        for deadline, seconds in ((None, 18_000.0), (24.0, 8640.0)):
            found = markets(save_seconds=300.0, deadline_hours=deadline).terms(Rare(), np.array([1]))  # type: ignore[arg-type]
            assert found.interval_seconds == pytest.approx([seconds])

    def test_rows_are_those_asked_for_however_often_and_in_any_order(self) -> None:
        class Counted(ExponentialSource):
            asked: ClassVar[list[int]] = []

            def rates(self, nodes: Ints) -> SpotRates:
                self.asked.append(len(nodes))
                found = super().rates(nodes)
                return found.scaled(loss=nodes.astype(float))

        known, source = markets(), Counted()
        first = known.terms(source, np.array([3, 1, 0]))  # type: ignore[arg-type]
        again = known.terms(source, np.array([2, 3]))  # type: ignore[arg-type]
        # A gang is lost in proportion to its size here; no spot node at all counts as one.
        losses = first.burden.losses_per_hour
        assert losses[0] > losses[1] == losses[2]
        assert again.burden.losses_per_hour[1] == losses[0]
        assert source.asked == [3]
        known.terms(source, np.array([5]))  # type: ignore[arg-type]
        assert source.asked == [3, 5]


class TestFallingBack:
    def test_who_would_be_late_uses_up_the_slack_and_does_the_rest_on_demand(self) -> None:
        # 10 h of work take 40 h on spot, a quarter of the pace, for $8. Done by 16 h: 6 h of slack are used up after
        # 6 / (1 - 1/4) = 8 h, in which 2 h of work were done and $8 x 8 / 40 = $1.60 paid; 8 h remain, at $3 each.
        hours, usd = fallen_back(sure(40.0), sure(8.0), sure(10.0), floats(16.0), floats(3.0))
        assert hours.p50 == pytest.approx([16.0])
        assert usd.p50 == pytest.approx([1.6 + 8 * 3])

    def test_who_is_in_time_stays_as_it_is(self) -> None:
        hours, usd = fallen_back(column(11, 12, 16), column(5, 6, 7), column(9, 10, 11), floats(16.0), floats(3.0))
        assert (hours.rows()[0], usd.rows()[0]) == ((11, 12, 16), (5, 6, 7))

    def test_only_the_quantiles_that_are_late_change(self) -> None:
        hours, usd = fallen_back(column(11, 12, 40), column(5, 6, 8), column(10, 10, 10), floats(16.0), floats(3.0))
        assert hours.rows()[0] == pytest.approx((11, 12, 16))
        assert usd.rows()[0] == pytest.approx((5, 6, 25.6))

    def test_without_any_slack_it_is_on_demand_from_the_start_and_takes_as_long_as_the_work(self) -> None:
        hours, usd = fallen_back(sure(40.0), sure(8.0), sure(10.0), floats(9.0), floats(3.0))
        assert hours.p50 == pytest.approx([10.0])
        assert usd.p50 == pytest.approx([30.0])

    def test_dollars_never_fall_from_one_quantile_to_the_next(self) -> None:
        # The middle falls back at once for $30; the p95 has more work, but would still cost less by its own spot part.
        _, usd = fallen_back(column(5, 40, 41), column(100, 8, 8), column(5, 10, 10), floats(16.0), floats(3.0))
        low, middle, high = usd.rows()[0]
        assert low <= middle <= high
        assert low == 100

    def test_flags_stay(self) -> None:
        hours, usd = fallen_back(sure(40.0), sure(8.0), sure(10.0), floats(16.0), floats(3.0))
        assert (hours.extrapolated.tolist(), usd.extrapolated.tolist()) == ([False], [False])
