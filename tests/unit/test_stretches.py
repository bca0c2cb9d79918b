"""The journal of a run that is tuned while it trains: what counts, how far it got, and what is wrong with a script."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.models import ConvergenceModel
from planner.probing.stretches import (
    Stretch,
    fault_of_last,
    parse_stretches,
    restart_seconds,
    share_done,
    stuck_learning_rate,
    too_large,
    trained_samples,
)

A, B, C, D = ("a" * 12, "b" * 12, "c" * 12, "d" * 12)
CONSTANT = ConvergenceModel().fit([(16.0, 1000.0), (64.0, 1000.0), (256.0, 1000.0)])


def stretch(origin: str | None, end: str | None, samples: int = 100, **more: object) -> Stretch:
    row = {"workers": 1, "gpu_batch": 64, "seconds": 5.0, "samples": samples, "from_state": origin, "to_state": end}
    return Stretch.model_validate(row | more)


def test_what_each_went_on_from_counts() -> None:
    journal = [stretch(A, B, 100), stretch(B, C, 200), stretch(C, D, 300)]
    assert trained_samples(journal) == 600
    assert share_done(journal, CONSTANT) == pytest.approx(0.6, rel=0.1)
    assert fault_of_last(journal) is None


def test_what_a_killed_one_trained_is_lost_and_nothing_else() -> None:
    assert trained_samples([stretch(A, B, 100), stretch(B, None, 999), stretch(B, C, 200)]) == 300


def test_of_a_killed_one_that_had_saved_on_its_way_nothing_counts() -> None:
    journal = [stretch(A, B, 100), stretch(B, None, 999), stretch(C, D, 200)]
    assert trained_samples(journal) == 300
    assert fault_of_last(journal) is None


def test_a_start_without_a_step_changes_nothing() -> None:
    assert trained_samples([stretch(A, B, 100), stretch(None, None, 0), stretch(B, C, 200)]) == 300


def test_a_script_that_begins_anew_is_told_so_and_counts_from_there() -> None:
    journal = [stretch(A, B, 100), stretch(B, C, 100), stretch(A, D, 50)]
    assert trained_samples(journal) == 50
    fault = fault_of_last(journal)
    assert fault is not None
    assert "began anew" in fault


def test_a_script_that_goes_on_with_something_else_is_told_so() -> None:
    fault = fault_of_last([stretch(A, B), stretch(C, D)])
    assert fault is not None
    assert "other parameters" in fault


def test_a_learning_rate_that_stays_while_the_batch_changes_is_named() -> None:
    first, stuck = stretch(A, B, learning_rate=0.1), stretch(B, C, gpu_batch=128, learning_rate=0.1)
    note = stuck_learning_rate([first, stuck])
    assert note is not None
    assert "64 to 128" in note
    assert stuck_learning_rate([first, stuck.model_copy(update={"learning_rate": 0.14})]) is None
    assert stuck_learning_rate([first, stuck.model_copy(update={"gpu_batch": 64})]) is None


def test_a_restart_takes_what_the_usual_one_took() -> None:
    journal = [stretch(A, B, startup_seconds=seconds) for seconds in (4.0, 5.0, 30.0)]
    assert restart_seconds(journal, 10.0) == 5.0
    assert restart_seconds([], 10.0) == 10.0


def test_stopping_is_a_part_of_it() -> None:
    journal = [stretch(A, B, startup_seconds=3.0, stopping_seconds=1.0), stretch(B, C, startup_seconds=5.0)]
    assert restart_seconds(journal, 10.0) == 5.0


def test_what_did_not_fit_is_in_the_journal() -> None:
    journal = [stretch(A, B), stretch(None, None, fits=False, gpu_batch=128)]
    assert too_large(parse_stretches("\n".join(each.model_dump_json() for each in journal), file="f")) == [(1, 128)]


def test_the_journal_is_read_again_and_a_torn_line_left_out() -> None:
    line = stretch(A, B).model_dump_json(exclude_defaults=True)
    assert parse_stretches(f'{line}\n{line}\n{{"work', file="f") == [stretch(A, B)] * 2
    with pytest.raises(InputError, match="f:1"):
        parse_stretches(f'{{"workers": 0}}\n{line}\n', file="f")
