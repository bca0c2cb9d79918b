"""Probing goes on where a batch does not fit, and the rows say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.errors import OutOfMemory, ScavError
from planner.inputs.measurements import Measurement
from planner.outside.runners.fitting import measure_what_fits
from planner.probing.probe_plan import LOCAL, Probe


def probe(batch: int, workers: int = 1) -> Probe:
    return Probe(LOCAL, 1, workers, batch, 1, "fp32")


def machine(limit: int, tried: list[int]) -> Callable[[Probe], Measurement]:
    def run(asked: Probe) -> Measurement:
        tried.append(asked.gpu_batch)
        if asked.gpu_batch > limit:
            raise OutOfMemory("does not fit", gpu_batch=asked.gpu_batch)
        return Measurement(**asked._asdict(), step_seconds=0.1)

    return run


def test_where_everything_fits_rows_are_as_measured() -> None:
    said: list[str] = []
    rows = list(measure_what_fits(machine(64, []), [probe(16), probe(64), probe(32, workers=2)], say=said.append))
    assert [(row.gpus_per_node, row.gpu_batch, row.out_of_memory_at) for row in rows] == [
        (1, 16, None),
        (1, 64, None),
        (2, 32, None),
    ]
    assert said == []


def test_the_largest_that_fits_is_found_and_said_and_not_looked_for_again() -> None:
    said: list[str] = []
    asked = [probe(16), probe(512)]
    rows = list(measure_what_fits(machine(100, []), asked, say=said.append))
    assert [(row.gpu_batch, row.out_of_memory_at) for row in rows] == [(16, 512), (88, 136)]
    assert said == ["local batch 512 does not fit the memory of 1 x 1 workers; the largest that fits is 88"]

    tried: list[int] = []
    assert list(measure_what_fits(machine(100, tried), asked[1:], known=rows, say=said.append)) == []
    assert tried == []
    assert said[1] == said[0]


def test_a_row_that_was_measured_last_says_what_did_not_fit_after_it() -> None:
    (row,) = measure_what_fits(machine(10, []), [probe(10), probe(12)], say=lambda _: None)
    assert (row.gpu_batch, row.out_of_memory_at) == (10, 12)


def test_nothing_fits() -> None:
    tried: list[int] = []
    with pytest.raises(OutOfMemory, match="not even local batch 1 fits the memory of 1 x 1 workers"):
        list(measure_what_fits(machine(0, tried), [probe(8)], say=lambda _: None))
    assert tried == [8, 4, 2, 1]


@pytest.mark.parametrize("failure", [ScavError("the script failed"), KeyboardInterrupt()])
def test_what_was_measured_before_a_failure_is_not_lost(failure: BaseException) -> None:
    def run(asked: Probe) -> Measurement:
        if asked.gpu_batch == 32:
            raise failure
        return Measurement(**asked._asdict(), step_seconds=0.1)

    rows = measure_what_fits(run, [probe(16), probe(32)], say=lambda _: None)
    assert next(rows).gpu_batch == 16
    with pytest.raises(type(failure)):
        next(rows)
