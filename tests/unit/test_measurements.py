"""measurements.jsonl: what a killed probe leaves behind is forgiven, anything else is named by its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.catalog.snapshot import parse_catalog
from planner.inputs.measurements import Measurement, median, parse_measurements, usable
from planner.outside import assets

ROW = {
    "instance_type": "g5.12xlarge",
    "nodes": 2,
    "gpus_per_node": 4,
    "gpu_batch": 64,
    "precision": "bf16",
    "step_seconds": 0.2,
}
LINE = json.dumps(ROW) + "\n"


def changed(**fields):
    return json.dumps({**ROW, **fields}) + "\n"


def refusal(text):
    with pytest.raises(InputError) as caught:
        parse_measurements(text, file="measurements.jsonl")
    return str(caught.value)


def test_rows_read_back_as_they_were_written():
    full = Measurement(**ROW, startup_seconds=120, probe_usd=0.4)
    text = full.model_dump_json() + "\n" + LINE
    assert parse_measurements(text, file="m").rows == (full, Measurement(**ROW))


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "  \n"])
def test_an_empty_file_holds_no_measurements(text):
    assert parse_measurements(text, file="m").rows == ()


@pytest.mark.parametrize("text", [LINE + "\n" + LINE, LINE.replace("\n", "\r\n") * 2, LINE + LINE.rstrip()])
def test_blank_lines_line_endings_and_a_missing_last_newline_do_not_matter(text):
    found = parse_measurements(text, file="m")
    assert (len(found.rows), found.warnings) == (2, ())


@given(st.integers(1, len(LINE) - 3))
def test_a_last_line_torn_anywhere_is_left_out_with_a_warning(length):
    found = parse_measurements(LINE * 2 + LINE[:length], file="m.jsonl")
    assert len(found.rows) == 2
    assert found.warnings == ("m.jsonl:3: the last line is torn; used without it",)


def test_a_tail_of_zeros_as_a_power_cut_leaves_it_is_torn():
    assert len(parse_measurements(LINE + "\0" * 100, file="m").rows) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE + LINE[:40] + "\n" + LINE, "measurements.jsonl:2: is no JSON"),
        (LINE + LINE[:40] + "\n", "measurements.jsonl:2: is no JSON"),
        (LINE + "\n" + "[]\n", "measurements.jsonl:3: [] must be a group"),
        (changed(step_seconds=-1), "measurements.jsonl:1: step_seconds: input should be greater than"),
        (changed(step_seconds=0), "step_seconds: input should be greater than"),
        (changed(step_seconds=float("nan")), "step_seconds: input should be a finite number"),
        (changed(step_seconds=float("inf")), "step_seconds: input should be a finite number"),
        (changed(nodes=0), "nodes: input should be greater than 0"),
        (changed(nodes=10**30), "nodes: input should be less than or equal to"),
        (changed(gpu_batch=1.5), "gpu_batch: input should be a valid integer"),
        (changed(precision="int3"), "precision: 'int3' is not one of 'fp32'"),
        (changed(surprise=1), "surprise: unknown key; known here: schema_version"),
        (changed(schema_version=2), "schema_version: 2 is not 1"),
        # Whole, so not torn, whether or not a newline ends it.
        (changed(nodes=-1).rstrip(), "nodes: input should be greater than 0"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(text, message):
    assert message in refusal(text)


def test_line_numbers_count_newlines_only():
    odd = changed(instance_type="a\u2028b").encode().decode("unicode_escape")
    assert "measurements.jsonl:2: nodes" in refusal(odd + changed(nodes=0))


@given(st.text(max_size=100), st.booleans())
def test_any_text_is_measurements_or_an_input_error(text, after_a_good_line):
    try:
        found = parse_measurements(LINE * after_a_good_line + text, file="m")
    except InputError:
        return
    assert len(found.rows) == after_a_good_line


@pytest.fixture(scope="module")
def catalog():
    return parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="snapshot.json")


def test_rows_that_say_nothing_about_the_job_are_left_out_with_a_reason(catalog):
    good = Measurement(**ROW)
    rows = [
        good,
        good.model_copy(update={"instance_type": "x9.large"}),
        good.model_copy(update={"gpus_per_node": 3}),
        good.model_copy(update={"precision": "fp16"}),
    ]
    found = usable(rows, catalog, "bf16")
    assert found.rows == (good,)
    assert sorted(found.warnings) == [
        "used without 1 of 4 measurements: 3 GPUs per node is not a whole g5.12xlarge",
        "used without 1 of 4 measurements: taken in fp16, the job uses bf16",
        "used without 1 of 4 measurements: x9.large is not in the catalogue",
    ]


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_the_median_has_half_on_either_side(values):
    middle = median(values)
    assert sum(value < middle for value in values) <= len(values) / 2
    assert sum(value > middle for value in values) <= len(values) / 2


def test_the_median_of_nothing_known_is_unknown():
    assert median([]) is None
    assert median([None, None]) is None
    assert median([None, 3.0]) == 3.0


def test_a_precision_that_the_gpu_does_not_have_is_no_evidence(catalog):
    row = Measurement.model_validate(ROW | {"instance_type": "p3.2xlarge", "gpus_per_node": 1})
    found = usable([row], catalog, "bf16")
    assert found.rows == ()
    assert "p3.2xlarge has no units for bf16" in found.warnings[0]
