"""What was found in a script becomes keys of a job file, each with its origin; what was not found is left open."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cli.inspected import inspection_lines
from planner.errors import InputError
from planner.inputs import InspectedScript, drafted_job, job_notes, job_values, parse_job

FOUND: dict[str, Any] = {
    "trainable_parameters": 1000,
    "frozen_parameters": 0,
    "flops_per_sample": 6.5e6,
    "activation_bytes_per_sample": 40_000.0,
    "constant_bytes": 0.0,
    "gradient_bytes": 4000.0,
    "checkpoint_bytes": 9000.0,
    "optimizer": "SGD",
    "momentum": 0.9,
    "precision": "fp32",
    "dataset_samples": 1438,
    "gpu_batch": 16,
    "accumulation_steps": 2,
    "samples_per_step": 32,
    "input_cpu_seconds_per_sample": 0.0085,
    "input_bytes_per_sample": 115_000.0,
    "device": "cpu",
}


def found(**changes: Any) -> InspectedScript:
    return InspectedScript.model_validate({**FOUND, **changes})


def draft(script: InspectedScript, **options: bool) -> str:
    values, notes = job_values(script, **options), job_notes(script)
    text = drafted_job("small", values, source="train.py", command=["train.py", "{gpu_batch}"], notes=notes)
    return text.replace("    samples:", "    samples: 1M").replace("reference_batch:", "reference_batch: 32")


def test_every_key_that_was_found_is_in_the_job_file_with_its_origin() -> None:
    job = parse_job(draft(found()), file="x").job
    workload = job.workload
    assert (workload.dataset_samples, workload.parameters, workload.flops_per_sample) == (1438, 1000, 6.5e6)
    assert (workload.activation_bytes_per_sample, workload.gradient_bytes) == (40_000, 4000)
    assert (workload.checkpoint_bytes, workload.precision, workload.optimizer) == (9000, "fp32", "momentum")
    assert workload.global_batch == (32, 512)
    assert workload.input is not None
    assert workload.input.cpu_seconds_per_sample == pytest.approx(0.0085)
    assert (workload.input.kind, workload.input.bytes_per_sample, workload.input.source) == ("other", 115_000, None)
    assert job.run.command == ("train.py", "{gpu_batch}")
    origins = workload.origins.model_dump(exclude_unset=True)
    assert (origins.pop("global_batch"), origins.pop("precision")) == ("derived", "derived")
    assert set(origins.values()) == {"measured"}
    assert len(origins) == 8


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({}, "derived"),  # fp32 on a processor, which says nothing of a GPU
        ({"precision": "tf32"}, "derived"),
        ({"precision": "bf16"}, "measured"),
        ({"device": "Tesla T4"}, "measured"),
    ],
)
def test_full_precision_on_a_processor_may_be_half_of_it_on_a_gpu(changes: dict[str, Any], origin: str) -> None:
    script = found(**changes)
    assert parse_job(draft(script), file="x").job.workload.origins.precision == origin
    assert any("say bf16 or fp16 if" in note for note in job_notes(script)) is (origin == "derived")


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({}, "measured"),
        ({"precision": "bf16"}, "derived"),  # on a processor
        ({"precision": "fp16", "device": "Tesla T4"}, "measured"),
        ({"constant_bytes": None}, "derived"),
    ],
)
def test_activations_are_only_measured_where_a_gpu_would_keep_the_same(changes: dict[str, Any], origin: str) -> None:
    assert parse_job(draft(found(**changes)), file="x").job.workload.origins.activation_bytes_per_sample == origin


@pytest.mark.parametrize(
    ("name", "momentum", "in_job_file"),
    [
        ("SGD", 0.0, "sgd"),
        ("SGD", 0.9, "momentum"),
        ("Adam", 0.0, "adam"),
        ("AdamW", 0.0, "adamw"),
        ("Lion", 0.0, "lion"),
        ("Adafactor", 0.0, None),
        (None, 0.0, None),
    ],
)
def test_an_optimizer_has_the_job_files_name_or_none(
    name: str | None, momentum: float, in_job_file: str | None
) -> None:
    script = found(optimizer=name, momentum=momentum)
    assert script.optimizer_in_job_file == in_job_file
    unnamed = [note for note in job_notes(script) if "no name for the optimizer" in note]
    assert bool(unnamed) is (name is not None and in_job_file is None)
    assert any(value.key == "optimizer" for value in job_values(script)) is (in_job_file is not None)


@pytest.mark.parametrize(
    ("missing", "key"),
    [
        ("dataset_samples", "dataset_samples"),
        ("samples_per_step", "global_batch"),
        ("flops_per_sample", "flops_per_sample"),
        ("activation_bytes_per_sample", "activation_bytes_per_sample"),
    ],
)
def test_what_was_not_found_is_asked_for_and_the_reason_is_in_the_file(missing: str, key: str) -> None:
    text = draft(found(**{missing: None, "missing": {missing: "nobody knows"}}))
    assert f"# Not found: {missing}: nobody knows." in text
    with pytest.raises(InputError, match=rf"workload\.{key}: this key is required"):
        parse_job(text, file="x")


def test_a_batch_that_was_asked_for_says_nothing_of_the_training() -> None:
    with pytest.raises(InputError, match=r"workload\.global_batch: this key is required"):
        parse_job(draft(found(), asked_batch=True), file="x")


def test_feeding_is_left_out_where_nothing_was_measured() -> None:
    assert parse_job(draft(found(input_cpu_seconds_per_sample=None)), file="x").job.workload.input is None
    fed = parse_job(draft(found(input_bytes_per_sample=None)), file="x").job.workload.input
    assert fed is not None
    assert fed.bytes_per_sample is None


def test_frozen_parameters_are_no_part_of_what_is_trained_and_are_said() -> None:
    script = found(frozen_parameters=7_000_000)
    assert parse_job(draft(script), file="x").job.workload.parameters == 1000
    assert "Beside what is trained there are 7,000,000 frozen parameters." in job_notes(script)


def test_the_largest_batch_is_one_that_scav_searches() -> None:
    assert parse_job(draft(found(samples_per_step=2**23)), file="x").job.workload.global_batch == (2**23, 2**24)


def test_what_is_shown_is_one_fact_a_line_and_one_is_singular() -> None:
    missing = {"z": "nobody knows", "y": "it is late", "x": "nobody knows"}
    script = found(gpu_batch=1, accumulation_steps=1, samples_per_step=1, missing=missing)
    lines = list(inspection_lines(script))
    assert "Parameters   1,000 trainable · 0 frozen" in lines
    assert "Batch        1 sample · 1 micro-step per optimizer step" in lines
    assert "Input        8.5 ms of CPU per sample · 115kB read per sample" in lines
    assert [line for line in lines if line.startswith("Not found")] == [
        "Not found    x, z: nobody knows",
        "Not found    y: it is late",
    ]
    assert "The script takes 1 sample per optimizer step of one process." in job_notes(script)
    assert "Batch        16 samples · 2 micro-steps per optimizer step" in inspection_lines(found())
