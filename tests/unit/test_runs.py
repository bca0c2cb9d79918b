"""Which measurements count after something else was run, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs.measurement_lines import with_run_last, without_rows
from planner.inputs.measurements import Measurement, parse_measurements
from planner.inputs.runs import Ran, are_older, changed_since, of_newest_runs, older_runs
from planner.probing.probe_plan import not_in

A, B = "a" * 12, "b" * 12
IMAGE = "sha256:" + "1" * 64


def row(
    key: str | None = None, *, instance_type: str = "local", script: str | None = None, image: str | None = None
) -> Measurement:
    script_sha256 = script * 64 if script else None
    return Measurement(
        instance_type=instance_type,
        nodes=1,
        gpus_per_node=1,
        gpu_batch=64,
        precision="bf16",
        step_seconds=0.1,
        run_key=key,
        script_sha256=script_sha256,
        image_digest=image,
    )


def test_an_edited_script_leaves_the_older_rows_out_and_those_without_a_key_in() -> None:
    rows = [row(), row(A, script="a"), row(A, script="a"), row(B, script="b"), row()]
    assert are_older(rows) == [False, True, True, False, False]
    assert of_newest_runs(rows) == (rows[0], rows[3], rows[4])


def test_going_back_counts_what_was_measured_last() -> None:
    assert are_older([row(A, script="a"), row(B, script="b"), row(A, script="a")]) == [False, True, False]


def test_this_machine_its_containers_and_rented_ones_have_keys_of_their_own() -> None:
    rows = [row(A, script="a"), row(B, script="a", image=IMAGE), row("c" * 12, instance_type="g5.xlarge", image=IMAGE)]
    assert are_older(rows) == [False, False, False]


def test_another_script_in_containers_is_another_script_here() -> None:
    rows = [row(A, script="a"), row(B, script="b", image=IMAGE), row("c" * 12, instance_type="g5.xlarge", image=IMAGE)]
    assert are_older(rows) == [True, False, False]


def test_another_image_leaves_out_the_rented_rows_of_every_type() -> None:
    rows = [row(A, instance_type="g5.xlarge"), row(A, instance_type="p4d.24xlarge"), row(B, instance_type="g5.xlarge")]
    assert are_older(rows) == [True, True, False]


def test_the_warning_counts_and_says_what_to_do() -> None:
    assert older_runs([row(A, script="a")]) == []
    (warning,) = older_runs([row(A, script="a"), row(), row(B, script="b")])
    assert warning.startswith("used without 1 of 3 measurements: something else was run since; scav measurements list")


def test_a_script_that_was_edited_since_is_named() -> None:
    rows = [row(A, script="a"), row(B, script="b")]
    assert changed_since(rows, script_sha256="b" * 64, image=None) == []
    assert changed_since(rows, script_sha256=None, image=None) == []
    (warning,) = changed_since(rows, script_sha256="a" * 64, image=None)
    assert warning.startswith("run.command was changed since it was measured")


def test_an_image_that_was_built_since_is_named_but_not_for_containers_here() -> None:
    rented = [row(A, instance_type="g5.xlarge", image=IMAGE)]
    assert changed_since(rented, script_sha256=None, image=f"registry.example.com/train@{IMAGE}") == []
    other = f"registry.example.com/train@sha256:{'2' * 64}"
    (warning,) = changed_since(rented, script_sha256=None, image=other)
    assert warning.startswith("run.image was changed")
    assert changed_since([row(A, image=IMAGE)], script_sha256=None, image=other) == []
    assert changed_since([row(instance_type="g5.xlarge", image=IMAGE)], script_sha256=None, image=other) == []


def test_a_run_knows_its_rows_and_those_that_say_nothing() -> None:
    ran = Ran(A, "train.py", "a" * 64)
    marked = ran.mark(row())
    assert (marked.run_key, marked.run_command, marked.script_sha256) == (A, "train.py", "a" * 64)
    rows = [row(), marked, row(B)]
    assert ran.known(rows) == rows[:2]
    before_its_image_is_built = ran._replace(key=None)
    assert before_its_image_is_built.known(rows) == rows[:1]  # the other ran in no container
    contained = marked.model_copy(update={"image_digest": "sha256:" + "c" * 64})
    assert before_its_image_is_built.known([contained, row(B)]) == [contained]
    assert Ran(None, "train.py", "b" * 64).known(rows) == rows[:1]


def test_the_same_configuration_of_another_run_is_not_known() -> None:
    assert not_in([row(A)], [row(B)]) == [row(B)]
    assert not_in([row(A)], [row(A)]) == []
    assert not_in([row()], [row(A)]) == []
    assert not_in([row(A)], [replaced := row(A).model_copy(update={"nodes": 2})]) == [replaced]


def text_of(rows: list[Measurement]) -> str:
    return "".join(row.model_dump_json(exclude_defaults=True) + "\n" for row in rows)


KEYS = st.lists(st.sampled_from([None, A, B, "c" * 12]), max_size=8)


@given(KEYS, st.data())
def test_dropping_keeps_every_other_line(keys: list[str | None], data: st.DataObject) -> None:
    rows = [row(key, instance_type=f"type-{index}") for index, key in enumerate(keys)]
    dropped = data.draw(st.sets(st.integers(0, max(len(rows) - 1, 0))))
    text = text_of(rows).replace('"type-1"', '"type-1" ') + "\n"  # as a person may have written it
    left = without_rows(text, rows, dropped)
    kept = tuple(row for index, row in enumerate(rows) if index not in dropped)
    assert parse_measurements(left, file="x").rows == kept
    assert set(left.split("\n")) <= set(text.split("\n"))


@given(KEYS, st.sampled_from([A, B]))
def test_moving_a_run_loses_nothing_and_makes_it_count(keys: list[str | None], key: str) -> None:
    rows = [row(found, script=found and found[0]) for found in keys]
    text = text_of(rows)
    moved = with_run_last(text, rows, key)
    after = parse_measurements(moved, file="x").rows
    assert sorted(moved.splitlines()) == sorted(text.splitlines())
    older = are_older(after)
    assert not any(older[index] for index, found in enumerate(after) if found.run_key == key)
    if key not in keys or not any(are_older(rows)):
        assert moved == text


@pytest.mark.parametrize("end", ['{"instance_type": "g5', ""])
def test_a_torn_last_line_goes(end: str) -> None:
    rows = [row(A), row(B)]
    assert without_rows(text_of(rows) + end, rows, {0}) == text_of(rows[1:])
