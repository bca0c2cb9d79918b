"""What other jobs say of a new one before anything of it is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.inputs import Workload
from planner.models.step_time.data_sheet import StepTerms
from planner.models.step_time.earlier_jobs import (
    MACHINE_SHARES,
    REACH,
    History,
    KnownJob,
    believed,
    known_job,
    likeness,
)
from planner.models.step_time.unprobed_types import COLD_START, JOB_SD, TYPE_SD, TypedRows
from tests.unit.small_world import job

HERE, THERE = "g1.here", "g1.there"
COMPUTE = 0


def workload(times: float = 1.0) -> Workload:
    """As large as the others, or so many times in everything."""
    count = round(1_000_000 * times)
    return job(flops_per_sample=1e9 * times, parameters=count, activation_bytes_per_sample=1e6 * times).workload


def slow(factor: float, *, size: float = 1.0, release: float | None = None, on: str = HERE, rows: int = 9) -> KnownJob:
    """A job whose computing took so many times what the data sheet says, without doubt."""
    typed = TypedRows(
        terms=StepTerms(np.tile([1.0, 1e-12, 0.0, 0.0], (rows, 1))),
        type_index=np.zeros(rows, dtype=np.int64),
        log_step=np.full(rows, np.log(factor)),
        log_work=np.full(rows, np.nan),
        weight=np.full(rows, 1e4),
    )
    return known_job(workload(size), release, [on], typed)


def compute(*jobs: KnownJob, on: str = HERE) -> tuple[float, float]:
    """Mean and standard deviation of the multiplier's logarithm."""
    found = believed(workload(), History(jobs), [HERE, THERE]).on(on)
    return float(found.mean[COMPUTE]), float(np.sqrt(found.covariance[COMPUTE, COMPUTE]))


def test_nothing_is_the_cold_start() -> None:
    found = believed(workload(), History(), [HERE]).on(HERE)
    assert found.mean.tolist() == [0.0] * 4
    assert found.covariance.tolist() == COLD_START.covariance.tolist()


def test_a_job_that_is_known_without_doubt_says_its_share() -> None:
    """By hand: the mean is cov(new, old) / var(old) of what was seen, the variance what is left, over all shares."""
    jobs, types = JOB_SD[COMPUTE] ** 2, TYPE_SD[COMPUTE] ** 2
    machine = np.array(MACHINE_SHARES)
    total, shared = jobs + types, 0.9 * jobs + (machine + (1 - machine) * 0.9) * types
    mean, sd = compute(slow(1.2))
    assert mean == pytest.approx(np.log(1.2) * np.mean(shared / total), rel=0.01)
    # Job and type are taken as independent from here on, so that what is left is a little more than it would be.
    assert total - np.mean(shared**2) / total < sd**2 < total


def test_an_unlike_job_speaks_of_its_machines_only() -> None:
    far = slow(1.2, size=2.0**20)
    assert compute(far)[0] == pytest.approx(
        np.log(1.2) * np.mean(MACHINE_SHARES) * TYPE_SD[0] ** 2 / (JOB_SD[0] ** 2 + TYPE_SD[0] ** 2), rel=0.01
    )
    assert compute(far, on=THERE) == pytest.approx((0.0, np.sqrt(COLD_START.covariance[0, 0])), abs=1e-6)


def test_likeness_falls_with_every_doubling() -> None:
    assert likeness(workload(), workload()) == pytest.approx(0.9)
    assert likeness(workload(), workload(2.0)) == pytest.approx(0.9 * np.exp(-1 / REACH))
    assert compute(slow(1.2))[0] > compute(slow(1.2, size=1.5))[0] > compute(slow(1.2, size=3.0))[0]


def test_nothing_that_is_known_widens_an_interval() -> None:
    cold = np.sqrt(COLD_START.covariance[0, 0])
    for jobs in ((slow(1.2),), (slow(3.0), slow(0.3)), (slow(1.2, size=64.0), slow(1.1, on=THERE))):
        assert all(compute(*jobs, on=name)[1] <= cold + 1e-9 for name in (HERE, THERE))


def test_two_jobs_that_agree_say_more_than_one_and_their_order_nothing() -> None:
    one, other = slow(1.2), slow(1.2, size=1.4)
    assert compute(one, other)[0] > compute(one)[0]
    assert compute(one, other)[1] < compute(one)[1]
    assert compute(one, other) == pytest.approx(compute(other, one), rel=1e-9)


def test_older_software_says_less() -> None:
    new = slow(1.0, size=2.0**20, on=THERE, release=13.0)  # says what today's release is, and nothing else here
    recent, old = slow(1.2, release=13.0), slow(1.2, release=5.0)
    assert compute(recent, new)[0] > 1.2 * compute(old, new)[0] > 0
    assert compute(recent, new)[1] < compute(old, new)[1]
    assert compute(old)[0] == pytest.approx(compute(recent)[0])  # the newest that is known is today's


def test_what_was_hardly_measured_says_hardly_anything() -> None:
    known = slow(1.2)
    doubtful = replace(known, told=known.told * 1e-9, pull=known.pull * 1e-9)
    assert abs(compute(doubtful)[0]) < 0.01
