"""What is nearly as good by the objective: then faster and smaller clusters, and batches that people would run, win."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import CATALOG, ONE, candidate

from planner.models.configurations import Configurations
from planner.search.candidates import usual_batch
from planner.search.pricing import Candidate
from planner.search.ranking import settle


def no_noise(_one: Candidate, _other: Candidate) -> float:
    return 0.0


class TestNearTies:
    """Five percent by the objective; then at least as fast and no larger, clearly better in one of both."""

    BEST = candidate(hours=12.0, usd=59.27, nodes=9)

    def settled(self, other: Candidate, objective: Any = "cost", noise: float = 0.0) -> Candidate:
        found = settle([self.BEST, other], objective, lambda *_: noise)
        assert found is not None
        assert found.beaten is (None if found.winner is self.BEST else self.BEST)
        return found.winner

    @pytest.mark.parametrize(
        ("other", "wins"),
        [
            ({"hours": 2.2, "usd": 59.59, "nodes": 1}, True),  # faster and smaller
            ({"hours": 2.2, "usd": 62.2, "nodes": 1}, True),  # 4.9 %
            ({"hours": 2.2, "usd": 62.3, "nodes": 1}, False),  # 5.1 %
            ({"hours": 2.2, "usd": 59.59, "nodes": 10}, False),  # larger
            ({"hours": 12.1, "usd": 59.59, "nodes": 1}, False),  # slower
            ({"hours": 12.0, "usd": 59.59, "nodes": 8}, True),  # as fast, and smaller
            ({"hours": 11.0, "usd": 59.59, "nodes": 9}, True),  # as large, and faster
            ({"hours": 11.9, "usd": 59.59, "nodes": 9}, False),  # not by much
        ],
    )
    def test_go_to_the_faster_and_smaller(self, other: Any, wins: bool) -> None:
        row = candidate(**other)
        assert self.settled(row) is (row if wins else self.BEST)

    def test_noise_makes_more_of_them(self) -> None:
        row = candidate(hours=2.2, usd=64.0, nodes=1)
        assert self.settled(row, noise=0.02) is self.BEST
        assert self.settled(row, noise=0.1) is row

    def test_in_hours_go_to_the_cheaper_and_smaller(self) -> None:
        row = candidate(hours=12.4, usd=30.0, nodes=9)
        assert self.settled(row, "time") is row
        assert self.settled(candidate(hours=12.7, usd=30.0, nodes=9), "time") is self.BEST

    def test_of_several_the_fastest_and_of_these_the_smallest(self) -> None:
        rows = [candidate(hours=hours, usd=60.0, nodes=nodes) for hours, nodes in ((5.0, 1), (2.0, 4), (2.05, 3))]
        found = settle([self.BEST, *rows], "cost", no_noise)
        assert found == (rows[2], self.BEST)

    def test_a_knee_has_none(self) -> None:
        assert settle([self.BEST, candidate(hours=2.2, usd=59.59)], "knee", no_noise) is not None
        assert settle([], "cost", no_noise) is None

    def test_an_odd_batch_wins_only_by_more(self) -> None:
        odd = candidate(usd=20.0, usual_batch=False)
        usual, dear = candidate(usd=20.9, hours=11.0), candidate(usd=21.1)
        assert settle([odd, usual], "cost", no_noise) == (usual, odd)
        assert settle([odd, dear], "cost", no_noise) == (odd, None)

    def test_an_odd_batch_is_no_reason_to_leave_a_usual_one(self) -> None:
        odd = candidate(usd=20.5, hours=2.0, usual_batch=False)
        assert settle([candidate(usd=20.0), odd], "cost", no_noise) == (candidate(usd=20.0), None)


class TestBatches:
    @pytest.mark.parametrize(
        ("gpu_batch", "steps", "usual"),
        [(1, 1, True), (2, 2, True), (3, 1, False), (6, 4, False), (8, 3, True), (20, 2, False), (96, 1, True)],
    )
    def test_that_people_would_run(self, gpu_batch: int, steps: int, usual: bool) -> None:
        one = Configurations.of(CATALOG, ONE, nodes=1, gpu_batch=gpu_batch, accumulation_steps=steps)
        assert usual_batch(one).tolist() == [usual]
