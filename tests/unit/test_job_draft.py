"""A job file that writes itself reads back as the values it was given, and asks for what only a person knows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units
from planner.errors import InputError
from planner.inputs.job.draft import KnownValue, drafted_job, job_name
from planner.inputs.job.parse import parse_job

VALUES = (
    KnownValue(key="parameters", text="124439808", origin="measured", how="counted"),
    KnownValue(key="flops_per_sample", text="875.1 GFLOP", origin="derived", how="6 per parameter and token"),
    KnownValue(key="activation_bytes_per_sample", text="1.138GB", origin="derived", how="by formula"),
    KnownValue(key="dataset_samples", text="9M", origin="measured", how="of the data set"),
    KnownValue(key="global_batch", text="8..512", origin="given", how="usual"),
    KnownValue(key="precision", text="fp16", origin="measured", how="autocast"),
)


def test_the_file_says_what_was_found_and_where_it_comes_from() -> None:
    text = drafted_job("gpt2", VALUES, source="config.json", command=["train.py", "--name", "ä #1: {gpu_batch}"])
    text = text.replace("    samples:", "    samples: 1M").replace("reference_batch:", "reference_batch: 8")
    job = parse_job(text, file="scav.yaml").job
    assert job.name == "gpt2"
    assert (job.workload.parameters, job.workload.dataset_samples) == (124_439_808, 9_000_000)
    assert job.workload.flops_per_sample == pytest.approx(875.1e9)
    assert job.workload.origins.model_dump(exclude_unset=True) == {value.key: value.origin for value in VALUES}
    assert job.run.command == ("train.py", "--name", "ä #1: {gpu_batch}")
    assert "# derived: 6 per parameter and token" in text


@pytest.mark.parametrize("left_out", ["dataset_samples", "global_batch"])
def test_what_nobody_knows_is_asked_for_with_its_line(left_out: str) -> None:
    text = drafted_job("a", [value for value in VALUES if value.key != left_out], source="x")
    with pytest.raises(InputError, match=rf"{left_out}: this key is required"):
        parse_job(text, file="scav.yaml")


def test_the_target_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"workload\.target\.reference_batch: this key is required"):
        parse_job(drafted_job("a", VALUES, source="x"), file="scav.yaml")


def test_text_of_others_stays_in_its_comment() -> None:
    text = drafted_job("a", VALUES, source="x\nname: b", notes=["y\nname: c"])
    assert [line for line in text.splitlines() if line.startswith("name")] == ['name: "a"']


@pytest.mark.parametrize(
    ("text", "name"),
    [("My Model_v2", "my-model-v2"), ("null", "null"), ("  ", "my-training-job"), ("Qwen2.5-7B/", "qwen2-5-7b")],
)
def test_a_name_is_made_of_any_text(text: str, name: str) -> None:
    assert job_name(text) == name


@given(st.text(max_size=100))
def test_every_name_is_one_that_a_job_may_have(text: str) -> None:
    draft = drafted_job(job_name(text), VALUES, source=text)
    draft = draft.replace("    samples:", "    samples: 1M").replace("reference_batch:", "reference_batch: 8")
    assert parse_job(draft, file="x").job.name == job_name(text)


@given(st.floats(1, 1e18))
def test_what_is_written_reads_back_to_four_digits(number: float) -> None:
    assert math.isclose(units.parse_bytes(units.written_bytes(number)), number, rel_tol=5e-4)
    assert math.isclose(units.parse_flop(units.written_flop(number)), number, rel_tol=5e-4)


def test_written_units() -> None:
    assert [units.written_bytes(size) for size in (1, 999.96, 1.138e9, 2e15)] == ["1B", "1000B", "1.138GB", "2000TB"]
    assert [units.written_flop(count) for count in (24.6e9, 3, 8.75e11)] == ["24.6 GFLOP", "3 FLOP", "875 GFLOP"]


@pytest.mark.parametrize(("word", "said"), [("--lr", True), ("{gpu_batch}", False)])
def test_a_command_without_a_place_for_the_batch_says_how_to_hand_it_over(word: str, said: bool) -> None:
    assert ("must train with the plan's batch" in drafted_job("a", VALUES, source="x", command=["t.py", word])) is said
