"""What `scav tune --online` believes: the price of a stretch, when to stop, and what a change in the run is worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.errors import ScavError
from planner.inputs import LOCAL, Job, Measurement
from planner.models import fit_convergence
from planner.outside import store
from planner.probing.stretches import Stretch
from planner.probing.tuning_online import OnlineSpace, RunChange, moved, online_account

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny-transformer"


@pytest.fixture
def job() -> Job:
    """So long a run that restarts of some seconds are little."""
    found = store.load_job(EXAMPLE, {}).job
    runs = [{"batch": batch, "samples": 1000 * needed} for batch, needed in ((16, 1990.0), (128, 7640.0))]
    target = found.workload.target.model_copy(update={"samples": 2760e3})
    convergence = found.workload.convergence.model_validate({"runs": runs})
    workload = found.workload.model_copy(update={"target": target, "convergence": convergence})
    return found.model_copy(update={"workload": workload})


def row(workers: int, batch: int, seconds: float) -> Measurement:
    known = {"instance_type": LOCAL, "nodes": 1, "gpus_per_node": workers, "gpu_batch": batch, "precision": "fp32"}
    return Measurement.model_validate({**known, "step_seconds": seconds})


def test_the_first_stretch_costs_nothing_and_is_where_the_search_begins(job: Job) -> None:
    online = OnlineSpace(job, (1, 2))
    belief = online.believe([], fit_convergence(job, None), done=0.0, restart=10.0)
    assert not belief.probe_seconds.any()
    first = online.next_row(belief)
    assert first is not None
    assert online.probe(first).gpus_per_node == 2


def test_a_stretch_costs_the_restart_and_what_it_is_slower(job: Job) -> None:
    online = OnlineSpace(job, (1, 2))
    measured = [row(1, 16, 0.01), row(1, 128, 0.2)]
    belief = online.believe(measured, fit_convergence(job, None), done=0.0, restart=10.0)
    best, slow = (online.row_of(1, batch) for batch in (16, 128))
    assert best is not None
    assert slow is not None
    assert belief.probe_seconds[best] == pytest.approx(10.0)
    share = 1 - belief.measured[best] / belief.measured[slow]
    assert belief.probe_seconds[slow] == pytest.approx(10.0 + 124 * 0.2 * share, rel=0.1)


def test_what_other_workers_took_is_no_measurement_of_these(job: Job) -> None:
    online, samples = OnlineSpace(job, (2,)), fit_convergence(job, None)
    elsewhere = [row(1, 64, 0.03), row(2, 64, 0.03).model_copy(update={"nodes": 2, "gpus_per_node": 1})]
    belief = online.believe(elsewhere, samples, done=0.0, restart=10.0)
    assert not belief.measured
    assert not belief.probe_seconds.any()
    assert online.next_row(belief) is not None


def test_near_the_end_no_stretch_elsewhere_is_worth_a_restart(job: Job) -> None:
    online, samples = OnlineSpace(job, (1, 2)), fit_convergence(job, None)
    belief = {done: online.believe([row(2, 64, 0.03)], samples, done=done, restart=10.0) for done in (0.0, 0.999, 2.0)}
    assert online.next_row(belief[0.0]) is not None
    assert online.next_row(belief[0.999]) is None
    assert online.next_row(belief[2.0]) is None


def test_what_was_measured_is_chosen_by_its_middle_and_the_rest_by_its_upper_end(job: Job) -> None:
    online = OnlineSpace(job, (1, 2))
    belief = online.believe([row(1, 16, 0.01), row(2, 64, 0.5)], fit_convergence(job, None), done=0.5, restart=10.0)
    assert online.choose(belief) == online.row_of(1, 16)


def test_a_change_leaves_the_others_between_all_and_nothing_of_it(job: Job) -> None:
    online, samples = OnlineSpace(job, (1, 2)), fit_convergence(job, None)
    measured = [row(1, 16, 0.01), row(1, 64, 0.03)]
    here, other = online.row_of(1, 16), online.row_of(1, 64)
    assert here is not None
    assert other is not None
    before = online.believe(measured, samples, done=0.0, restart=10.0)
    change = RunChange(float(np.log(4.0)), {here: 0.04})
    after = online.believe(measured, samples, done=0.0, restart=10.0, change=change)
    assert after.measured.keys() == {here}
    assert after.measured[here] == pytest.approx(4 * before.measured[here], rel=0.02)
    assert after.log_value[other] - before.log_value[other] == pytest.approx(np.log(2.0), rel=0.05)
    assert after.log_sd[other] >= np.log(2.0)
    assert online.next_row(after, searching=False) is not None  # so much of the run is left that looking pays
    late = online.believe(measured, samples, done=0.9999, restart=10.0, change=change)
    assert online.next_row(late, searching=False) is None


def test_to_move_is_worth_it_for_more_than_the_restart(job: Job) -> None:
    online, samples = OnlineSpace(job, (1, 2)), fit_convergence(job, None)
    here, other = online.row_of(1, 16), online.row_of(1, 64)
    assert here is not None
    change = RunChange(float(np.log(4.0)), {here: 0.04, other or 0: 0.03})
    belief = online.believe([row(1, 16, 0.01)], samples, done=0.0, restart=10.0, change=change)
    assert online.better_than(here, belief, 10.0) == other
    assert online.better_than(here, belief, 1e6) is None


@pytest.mark.parametrize(("now", "variation", "has_moved"), [(1.05, 0.0, False), (1.3, 0.01, True), (1.3, 0.3, False)])
def test_a_step_has_moved_where_windows_do_not_differ_by_as_much(now: float, variation: float, has_moved: bool) -> None:
    assert bool(moved(1.0, now, variation)) == has_moved


def test_the_account_by_hand(job: Job) -> None:
    """36 s elsewhere, then the rest on the best: offline, both and the whole of the run on top."""
    online, samples = OnlineSpace(job, (1, 2)), fit_convergence(job, None)
    measured = [row(1, 16, 0.01), row(2, 64, 0.5)]
    belief = online.believe(measured, samples, done=0.0, restart=0.0)
    chosen = online.row_of(1, 16)
    assert chosen is not None
    needed = float(samples.predict(np.array([16])).p50[0])
    journal = [
        Stretch(workers=2, gpu_batch=64, seconds=36.0, from_state="a" * 12, to_state="b" * 12),
        Stretch(workers=1, gpu_batch=16, seconds=3600.0, samples=round(needed), from_state="b" * 12, to_state="c" * 12),
    ]
    found = online_account(online, journal, belief, samples, chosen=chosen, restart=18.0)
    straight = needed / 16 * 0.01 / 3600 + 0.005
    assert found.hours == pytest.approx(1.01)
    assert found.probing_hours == pytest.approx(0.01)
    assert found.oracle_hours == pytest.approx(straight, rel=0.02)
    assert found.offline_hours == pytest.approx(0.01 + straight, rel=0.02)
    assert found.best == chosen


def test_what_does_not_fit_is_neither_measured_nor_chosen(job: Job) -> None:
    whole = OnlineSpace(job, (1, 2))
    online, samples = whole.without([(1, 64)]), fit_convergence(job, None)
    measured = [row(1, 128, 0.001), row(1, 16, 0.01)]  # one of them fitted before
    belief = online.believe(measured, samples, done=0.0, restart=10.0)
    fits = (online.space.gpu_batch < 64).tolist()
    assert belief.measured.keys() == {online.row_of(1, 16)}
    assert np.isfinite(belief.log_value).tolist() == fits
    assert fits[online.choose(belief)]
    assert all(
        fits[chosen]
        for chosen in (online.next_row(belief), online.next_row(online.believe([], samples, done=0.0, restart=1.0)))
        if chosen is not None
    )
    assert whole.space.measurable.all()
    with_one = whole.without([(2, 64)])
    assert with_one.space.measurable[with_one.row_of(1, 64)]  # one process alone needs less


def test_where_nothing_fits_it_says_so(job: Job) -> None:
    with pytest.raises(ScavError, match="not even the smallest"):
        OnlineSpace(job, (1, 2)).without([(1, 1)])


def test_of_a_run_that_is_over_nothing_is_gained_though_something_did_not_fit(job: Job) -> None:
    online = OnlineSpace(job, (1, 2)).without([(1, 64)])
    belief = online.believe([row(1, 16, 0.01)], fit_convergence(job, None), done=2.0, restart=10.0)
    assert online.next_row(belief) is None
    assert online.space.gpu_batch[online.choose(belief)] < 64
