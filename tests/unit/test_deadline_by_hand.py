"""Deadline policies step by step, in worlds small enough to count: hours of work and dollars by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_world import floats

from planner.spot.deadline.baselines import greedy, uniform_progress
from planner.spot.deadline.dynamic_program import market_chain, solve
from planner.spot.deadline.grid import with_more_work
from planner.spot.deadline.omniscient import omniscient_cost
from planner.spot.deadline.table import STATES, PolicyTable
from planner.spot.deadline.world import IDLE, ON_DEMAND, SPOT, Moment, Policy, PolicyOutcome, World, act
from planner.spot.rates.process import AGES, SpotProcess

# Steps and restarts of an hour, intervals of two; spot costs 0.4 of on-demand, waiting 0.1.
HOURLY = World(work_hours=3.0, spot_share=0.4, idle_share=0.1, interval_hours=2.0, restart_hours=1.0, step_hours=1.0)


def fixed(*choices: int) -> Policy:
    """Step after step, whatever happens."""
    left = list(choices)
    return lambda moment: np.full(len(moment.up), left.pop(0))


def market(*states: int) -> np.ndarray:
    return np.array([states], dtype=bool)


def lived(policy: Policy, up: np.ndarray, deadline: float = 10.0, world: World = HOURLY, **more: Any) -> PolicyOutcome:
    return act(world, policy, up, np.zeros(len(up)), deadline, seed=0, **more)


class TestActing:
    def test_every_change_of_what_is_rented_costs_a_restart(self) -> None:
        # Wait; start spot (no work yet); work; change to on-demand (restart); work; work: done after 6 h.
        found = lived(fixed(IDLE, SPOT, SPOT, ON_DEMAND, ON_DEMAND, ON_DEMAND), market(1, 1, 1, 1, 1, 1, 1))
        assert found.hours.tolist() == [6.0]
        assert found.cost == pytest.approx([0.1 + 2 * 0.4 + 3.0])
        assert (found.waiting_hours.tolist(), found.losses.tolist(), found.missed.tolist()) == ([1.0], [0], [False])

    def test_spot_that_is_gone_is_waited_for_and_takes_work_back(self) -> None:
        # Start, work 1 h, then gone: at most what was done since the restart, or two hours, is taken back.
        found = lived(fixed(*[SPOT] * 9), market(1, 1, 0, 1, 1, 1, 1, 1, 1))
        taken_back = min(1.0, np.random.default_rng(0).random((3, 1))[2, 0] * 2.0)
        # The hour that it was gone is waited for, the next is a restart; then 2 h and what was taken back.
        assert found.hours == pytest.approx([4.0 + 2.0 + taken_back])
        assert found.cost == pytest.approx([2 * 0.4 + 0.1 + (3.0 + taken_back) * 0.4])
        assert (found.losses.tolist(), found.waiting_hours.tolist()) == ([1], [1.0])

    def test_a_run_that_is_done_within_a_step_pays_for_its_part(self) -> None:
        short = World(work_hours=0.25, spot_share=0.4, restart_hours=0.5, step_hours=1.0)
        found = lived(fixed(ON_DEMAND, ON_DEMAND), market(0, 0), world=short)
        assert (found.hours.tolist(), found.cost.tolist()) == ([0.75], [0.75])

    def test_a_restart_may_take_several_steps(self) -> None:
        slow = World(work_hours=1.0, spot_share=0.4, restart_hours=2.5, step_hours=1.0)
        found = lived(fixed(*[ON_DEMAND] * 5), market(0, 0, 0, 0, 0), world=slow)
        assert found.hours == pytest.approx([3.5])

    def test_whoever_is_not_done_goes_on_with_on_demand(self) -> None:
        # Two hours of spot leave 2 of 3 h of work, and on-demand must start first.
        found = lived(fixed(SPOT, SPOT), market(1, 1), deadline=2.0)
        assert (found.hours.tolist(), found.missed.tolist()) == ([2 + 1 + 2.0], [True])
        assert found.cost == pytest.approx([2 * 0.4 + 3.0])
        running = lived(fixed(ON_DEMAND, ON_DEMAND), market(1, 1), deadline=2.0)
        assert running.hours.tolist() == [4.0]

    def test_prices_of_each_step(self) -> None:
        prices, idle = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]]), np.array([[0.01, 0.02, 0.03, 0.04, 0.05]])
        found = lived(fixed(IDLE, SPOT, SPOT, SPOT, SPOT), market(1, 1, 1, 1, 1), prices=prices, idle_prices=idle)
        assert found.cost == pytest.approx([0.01 + 0.2 + 0.3 + 0.4 + 0.5])

    def test_the_policy_sees_work_time_and_the_market_s_age(self) -> None:
        seen: list[tuple[float, float, float, int]] = []

        def note(moment: Moment) -> np.ndarray:
            seen.append((moment.work_left[0], moment.time_left, moment.age_hours[0], int(moment.mode[0])))
            return np.full(1, SPOT)

        act(HOURLY, note, market(1, 1, 1, 0, 0, 1), floats(5.0), 6.0, seed=0)
        works, times, ages, modes = (list(column) for column in zip(*seen, strict=True))
        assert times == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
        assert ages == [5.0, 6.0, 7.0, 0.0, 1.0, 0.0]
        assert modes == [IDLE, SPOT, SPOT, IDLE, IDLE, IDLE]
        assert works[:3] == [3.0, 3.0, 2.0]

    def test_who_is_told_of_more_work_sees_that_less_what_was_done_and_never_nothing(self) -> None:
        seen: list[float] = []

        def note(moment: Moment) -> np.ndarray:
            seen.append(float(moment.work_left[0]))
            return np.full(1, ON_DEMAND)

        lived(note, market(0, 0, 0, 0), assumed_work_hours=5.0)
        lived(note, market(0, 0, 0, 0), assumed_work_hours=2.0)
        assert seen == [5.0, 5.0, 4.0, 3.0, 2.0, 2.0, 1.0, 1.0]


class TestOmniscient:
    def test_waits_for_spot_if_it_comes_in_time(self) -> None:
        # An hour of waiting, a restart and three hours of spot.
        assert omniscient_cost(HOURLY, market(0, 1, 1, 1, 1), 5.0) == pytest.approx([0.1 + 4 * 0.4])

    def test_begins_with_on_demand_if_spot_comes_too_late_for_all_of_it(self) -> None:
        # A restart and an hour of work on demand, then a restart and two hours on spot.
        assert omniscient_cost(HOURLY, market(0, 0, 1, 1, 1), 5.0) == pytest.approx([2.0 + 3 * 0.4])
        # One hour of spot would only be its restart: on-demand to the end.
        assert omniscient_cost(HOURLY, market(0, 0, 0, 0, 1), 5.0) == pytest.approx([4.0])

    def test_leaves_before_spot_is_lost_rather_than_lose_work(self) -> None:
        # Spot for two hours, one of work; an hour later on-demand: a restart and two hours of work.
        found = omniscient_cost(HOURLY, market(1, 1, 0, 0, 0, 0), 6.0)
        # Leaving after one hour saves nothing; losing the second takes an hour back on average, which costs more.
        assert found == pytest.approx([4.0])
        gentle = World(
            work_hours=3.0, spot_share=0.1, interval_hours=1e-9, restart_hours=0.0, step_hours=1.0, idle_share=0.0
        )
        assert omniscient_cost(gentle, market(1, 1, 0, 0), 4.0) == pytest.approx([0.2 + 1.0])

    def test_cannot_be_done(self) -> None:
        assert np.isinf(omniscient_cost(HOURLY, market(1, 1, 1), 3.0)).all()

    def test_each_run_has_its_own_work_and_prices(self) -> None:
        world = World(work_hours=floats(1.0, 2.0), spot_share=0.4, restart_hours=1.0, step_hours=1.0)
        up = np.ones((2, 4), dtype=bool)
        assert omniscient_cost(world, up, 4.0) == pytest.approx([0.8, 1.2])
        prices = np.array([[0.5, 0.4, 0.3, 0.2], [0.5, 0.4, 0.3, 0.2]])
        idle = np.zeros((2, 4))
        # Waits for the cheapest hours: the last two, the last three.
        assert omniscient_cost(world, up, 4.0, prices, idle) == pytest.approx([0.5, 0.9])

    def test_a_restart_of_several_steps_is_work_added(self) -> None:
        slow = World(work_hours=1.0, spot_share=0.4, restart_hours=3.0, step_hours=1.0)
        assert omniscient_cost(slow, np.ones((1, 6), dtype=bool), 6.0) == pytest.approx([4 * 0.4])
        assert omniscient_cost(slow, np.zeros((1, 6), dtype=bool), 6.0) == pytest.approx([4.0])


class TestBaselines:
    """Three hours of work; the net is two restarts, which are as long as steps: two hours."""

    def decide(self, policy: Policy, work: float, time: float, up: bool, mode: int) -> int:
        moment = Moment(floats(work), time, np.array([up]), floats(0.0), np.array([mode]))
        return int(policy(moment)[0])

    @pytest.mark.parametrize(
        ("time", "mode", "up", "expected"),
        [
            (5.0, IDLE, True, SPOT),  # exactly work and net
            (5.0, IDLE, False, IDLE),
            (4.9, IDLE, True, ON_DEMAND),
            (4.9, SPOT, True, ON_DEMAND),
            (5.9, ON_DEMAND, True, ON_DEMAND),  # to leave on-demand a third restart must fit
            (6.0, ON_DEMAND, True, SPOT),
            (6.0, ON_DEMAND, False, IDLE),
        ],
    )
    def test_greedy_waits_until_it_must_hurry(self, time: float, mode: int, up: bool, expected: int) -> None:
        assert self.decide(greedy(HOURLY), 3.0, time, up, mode) == expected

    def test_the_net_is_two_steps_where_these_are_longer(self) -> None:
        quick = World(work_hours=3.0, spot_share=0.4, restart_hours=0.1, step_hours=1.0)
        assert self.decide(greedy(quick), 3.0, 4.9, True, IDLE) == ON_DEMAND
        assert self.decide(greedy(quick), 3.0, 5.0, True, IDLE) == SPOT

    @pytest.mark.parametrize(
        ("work", "mode", "up", "expected"),
        [
            # 20 of 30 h are left, so a third of the 3 h should be done; two hours ahead of that pace is 12/30.
            (2.0, IDLE, False, IDLE),
            (2.01, IDLE, False, ON_DEMAND),
            (2.5, IDLE, True, SPOT),
            (1.9, ON_DEMAND, True, ON_DEMAND),
            (1.79, ON_DEMAND, True, SPOT),
            (1.79, ON_DEMAND, False, IDLE),
            (1.9, ON_DEMAND, False, ON_DEMAND),
        ],
    )
    def test_uniform_progress_is_never_behind(self, work: float, mode: int, up: bool, expected: int) -> None:
        assert self.decide(uniform_progress(HOURLY, 30.0), work, 20.0, up, mode) == expected

    def test_uniform_progress_hurries_too(self) -> None:
        assert self.decide(uniform_progress(HOURLY, 30.0), 3.0, 4.9, True, IDLE) == ON_DEMAND


class TestChain:
    def test_rates_that_do_not_age_end_alike_at_every_age(self) -> None:
        process = SpotProcess(loss_per_hour=np.full(AGES, 2.0), return_per_hour=np.full(AGES, 0.5))
        chain = market_chain(process, 0.1)
        # There and lost, gone and back: always to the youngest of the other side.
        assert chain[:AGES, AGES] == pytest.approx(1 - math.exp(-0.2))
        assert chain[AGES:, 0] == pytest.approx(1 - math.exp(-0.05))
        assert chain[:AGES, AGES + 1 :].sum() == chain[AGES:, 1:AGES].sum() == 0

    def test_as_many_outlive_an_age_as_do_in_truth(self) -> None:
        # The third age lasts 0.7 h. Whoever is in it ends or grows older; those who do not end are exp(-rate x 0.7).
        process = SpotProcess(loss_per_hour=np.full(AGES, 2.0), return_per_hour=np.full(AGES, 0.5))
        chain = market_chain(process, 0.1)
        lost, older = chain[2, AGES], chain[2, 3]
        assert older / (older + lost) == pytest.approx(math.exp(-2.0 * 0.7))
        assert chain[5, 5] == pytest.approx(math.exp(-0.2))  # nothing is older than the last

    def test_a_step_longer_than_an_age_passes_it(self) -> None:
        process = SpotProcess(loss_per_hour=np.full(AGES, 2.0), return_per_hour=np.full(AGES, 0.5))
        # After an hour whoever was new is one hour old: the fourth age.
        assert market_chain(process, 1.0)[0, 3] == pytest.approx(math.exp(-2.0))

    def test_without_risk_an_age_is_left_in_its_length(self) -> None:
        process = SpotProcess(loss_per_hour=np.zeros(AGES), return_per_hour=np.full(AGES, 0.5))
        assert market_chain(process, 0.1)[2, 3] == pytest.approx(0.1 / 0.7)


class TestTable:
    def table(self, slack: float = 5.0, **changes: Any) -> PolicyTable:
        """Less slack is asked for with less work: from 1 h to `slack`."""
        usual: dict[str, Any] = {
            "step_hours": 0.5,
            "restart_hours": 0.25,
            "rollback_hours": 1.0,
            "margin_hours": 0.125,
            "spot_share": 0.4,
            "work_left_hours": (0.0, 10.0),
            "slack_hours": dict.fromkeys(("idle", "spot", "on_demand"), ((1.0, slack),) * STATES),
        }
        return PolicyTable(**{**usual, **changes})

    def decide(self, table: PolicyTable, work: float, slack: float, mode: int = IDLE, up: bool = True) -> int:
        moment = Moment(floats(work), work + slack, np.array([up]), floats(0.0), np.array([mode]))
        return int(table.decide(moment)[0])

    def test_between_two_amounts_of_work_the_slack_is_interpolated(self) -> None:
        # Half way: 3 h. Beyond the last: as there.
        assert [self.decide(self.table(), 5.0, slack) for slack in (2.99, 3.0)] == [ON_DEMAND, SPOT]
        assert [self.decide(self.table(), 20.0, slack) for slack in (4.99, 5.0)] == [ON_DEMAND, SPOT]
        assert self.decide(self.table(), 5.0, 3.0, up=False) == IDLE

    def test_whatever_the_table_says_a_loss_must_fit(self) -> None:
        # On spot: a rollback, a restart and the margin. Waiting: a step instead. On demand: and back again.
        safe = self.table().safe_slack
        assert safe.tolist() == pytest.approx([0.5 + 0.25 + 0.125, 1.0 + 0.25 + 0.125, 0.5 + 0.25 + 0.125 + 0.25])
        careless = self.table(slack_hours=dict.fromkeys(("idle", "spot", "on_demand"), ((0.0, 0.0),) * STATES))
        for mode in (IDLE, SPOT, ON_DEMAND):
            decided = [self.decide(careless, 5.0, slack, mode) for slack in (safe[mode] - 0.01, safe[mode] + 1e-9)]
            assert decided == [ON_DEMAND, SPOT]

    def test_each_state_has_its_own_row(self) -> None:
        rows = tuple((float(state), float(state)) for state in range(STATES))
        table = self.table(slack_hours={"idle": rows, "spot": rows, "on_demand": rows})
        # There for 2 h is the fourth age, number 3; gone for 2 h number 9.
        for up, slack in ((True, 3.0), (False, 9.0)):
            moments = [
                Moment(floats(1.0), 1.0 + asked, np.array([up]), floats(2.0), np.array([IDLE]))
                for asked in (slack - 0.01, slack)
            ]
            assert [int(table.decide(moment)[0]) == ON_DEMAND for moment in moments] == [True, False]


class TestSolved:
    def test_spot_that_never_leaves_is_taken_as_long_as_a_loss_would_fit(self) -> None:
        process = SpotProcess(loss_per_hour=np.zeros(AGES), return_per_hour=np.full(AGES, 1e-6))
        world = World(
            work_hours=4.0, spot_share=0.4, idle_share=0.2, interval_hours=0.5, restart_hours=0.2, step_hours=0.1
        )
        table = solve(world, process, 8.0, margin_hours=0.1)
        # On spot: slack for the interval, the restart and the margin, within a step. Gone, it never comes back:
        # on-demand at once, however much slack there is.
        there, gone = table.limits[SPOT][:AGES, 12], table.limits[IDLE][AGES:, 12]
        assert there == pytest.approx(0.8, abs=0.11)
        assert (gone > 3.0).all()
        assert (table.step_hours, table.restart_hours, table.rollback_hours) == (0.1, 0.2, 0.5)
        assert (table.margin_hours, table.spot_share) == (0.1, 0.4)

    def test_points_span_the_work_and_two_intervals(self) -> None:
        process = SpotProcess(loss_per_hour=np.full(AGES, 0.1), return_per_hour=np.full(AGES, 1.0))
        world = World(work_hours=4.0, spot_share=0.4, interval_hours=0.5, restart_hours=0.2, step_hours=0.1)
        points = solve(world, process, 6.0, points=6).work_left_hours
        assert points == pytest.approx((0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
        eighths = solve(replace(world, work_hours=0.5, interval_hours=0.125, step_hours=0.125), process, 2.0)
        assert eighths.work_left_hours == (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)


def test_reading_between_points_of_work() -> None:
    value = floats(0.0, 10.0, 30.0)
    assert with_more_work(value, 0.25) == pytest.approx([2.5, 15.0, 30.0])
    assert with_more_work(value, -2.0) == pytest.approx([0.0, 0.0, 0.0])
    assert with_more_work(value, 2.0) == pytest.approx([30.0, 30.0, 30.0])
