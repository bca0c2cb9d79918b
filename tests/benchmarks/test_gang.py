"""Gangs whose node count changes, and the pool of many zones."""

from __future__ import annotations

import numpy as np
import pytest
from gang import IndependentNodes, gang_chain
from gang_runs import gang_hours
from spot_pooling import pooled_process

from planner.errors import InputError
from planner.inputs.traces import Trace
from planner.spot.runs.work import SpotWork


def trace_of(counts: list[int], tick_seconds: float = 600.0) -> Trace:
    return Trace(name="zone", tick_seconds=tick_seconds, counts=np.array(counts))


def flickering(ticks: int = 4000, seed: int = 0) -> Trace:
    return trace_of(np.repeat(np.random.default_rng(seed).integers(0, 5, ticks // 8), 8).tolist())


def test_counts_stay_within_the_gang_and_follow_the_seed() -> None:
    for model in (gang_chain(flickering()), IndependentNodes.from_trace(flickering())):
        counts = model.counts(48.0, 0.1, 50, seed=3)
        assert (counts.min() >= 0, counts.max() <= 4) == (True, True)
        assert (counts == model.counts(48.0, 0.1, 50, seed=3)).all()


def test_nodes_that_are_lost_together_are_simulated_together() -> None:
    together = trace_of(([4] * 30 + [0] * 10) * 60)
    chain, alone = gang_chain(together), IndependentNodes.from_trace(together)
    whole = [(model.counts(400.0, 1 / 6, 100, seed=1)[:, 600:] == 4).mean() for model in (chain, alone)]
    assert whole[0] == pytest.approx(0.75, abs=0.08)
    assert whole[1] < 0.5


def test_without_any_node_there_is_no_gang() -> None:
    with pytest.raises(InputError, match="availability is zero"):
        gang_chain(trace_of([0, 0, 0]))


@pytest.mark.parametrize("elastic", [False, True])
def test_a_whole_gang_needs_the_work_and_half_of_it_twice_that_or_forever(elastic: bool) -> None:
    work = SpotWork(work_hours=2.0, interval_hours=0.25)
    counts = np.array([[4] * 600, [2] * 600])
    whole, half = gang_hours(work, counts, 0.1, 4, elastic=elastic)
    assert whole == pytest.approx(2.1)
    assert half == pytest.approx(4.1) if elastic else np.isnan(half)


def test_the_pool_needs_losses() -> None:
    with pytest.raises(InputError, match="no trace with at least 5 losses"):
        pooled_process([trace_of([1] * 100)])


def test_the_pool_of_one_zone_is_its_own_rates() -> None:
    pool = pooled_process([trace_of([1, 0] * 500, tick_seconds=360.0)])
    assert (pool.loss_per_hour[0], pool.log_sd) == (pytest.approx(10, rel=0.01), pytest.approx(0, abs=1e-9))
