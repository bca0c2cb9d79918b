"""Where a job file's values begin to contradict each other: just inside is silence, just outside a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import job

from planner.errors import InputError
from planner.inputs.contradictions import contradictions
from planner.inputs.job.parse import JobFile

# A million parameters, a thousand uses of each, 8 kB kept and one epoch: nothing to say.
USUAL: dict[str, Any] = {
    "dataset_samples": 10_000,
    "flops_per_sample": 6e9,
    "parameters": 1_000_000,
    "activation_bytes_per_sample": 1e6,
    "checkpoint_bytes": 12e6,
    "target": {"samples": 10_000, "reference_batch": 100},
}


def told(**changes: Any) -> list[str]:
    return contradictions(JobFile(job(**{**USUAL, **changes}), "scav.yaml", {}))


def test_a_usual_job_is_believed() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("flops_per_sample", 2.01e6, 1.99e6),  # two for each parameter
        ("activation_bytes_per_sample", 2.99e9, 3.01e9),  # two flops a byte
        ("activation_bytes_per_sample", 6_100, 5_900),  # a million flops a byte
        ("parameters", 101, 99),  # 10 M uses of each
        ("gradient_bytes", 0.91e6, 0.89e6),
        ("gradient_bytes", 8.9e6, 9.1e6),
        ("checkpoint_bytes", 1.91e6, 1.89e6),
        ("checkpoint_bytes", 0.99e9, 1.01e9),
        ("target", {"samples": 99e6, "reference_batch": 100}, {"samples": 101e6, "reference_batch": 100}),
        ("target", {"samples": 11, "reference_batch": 1}, {"samples": 9, "reference_batch": 1}),
        ("target", {"samples": 2e4, "reference_batch": 10_000}, {"samples": 2e4, "reference_batch": 10_001}),
    ],
)
def test_what_is_odd_begins_where_its_reason_says(key: str, inside: Any, outside: Any) -> None:
    changes: dict[str, Any] = {}
    if key == "flops_per_sample":
        changes["activation_bytes_per_sample"] = 1e5
    if key == "parameters":
        changes["checkpoint_bytes"] = 0
    assert told(**changes, **{key: inside}) == []
    (sentence,) = told(**changes, **{key: outside})
    assert sentence.startswith(f"workload.{key}: ") or key == "activation_bytes_per_sample"


@pytest.mark.parametrize(
    ("key", "odd", "impossible"),
    [
        ("activation_bytes_per_sample", 47e9, 49e9),  # an eighth of a flop a byte
        ("activation_bytes_per_sample", 61, 59),  # a hundred million flops a byte
        ("gradient_bytes", 1.01e3, 0.99e3),
        ("gradient_bytes", 0.99e9, 1.01e9),
        ("checkpoint_bytes", 1.01e6, 0.99e6),
        ("target", {"samples": 10_001, "reference_batch": 10_001}, {"samples": 10_000, "reference_batch": 10_001}),
    ],
)
def test_what_cannot_be_begins_where_its_reason_says(key: str, odd: Any, impossible: Any) -> None:
    assert len(told(**{key: odd})) == 1
    with pytest.raises(InputError, match="workload"):
        told(**{key: impossible})


def test_every_run_is_held_against_the_data() -> None:
    runs = {"runs": [{"batch": 200, "epochs": 1}, {"batch": 200, "samples": 199}]}
    with pytest.raises(InputError, match=r"workload\.convergence\.runs\.1: 199 samples are less than one batch of 200"):
        told(convergence=runs)


def test_no_checkpoint_is_none_that_is_too_small() -> None:
    assert told(checkpoint_bytes=0) == []


SHAPE = {"layers": 2, "width": 8, "heads": 2, "feed_forward_width": 32, "vocabulary": 100, "sequence_length": 16}


@pytest.mark.parametrize(("origin", "precision"), [("derived", "bf16"), ("given", "fp32")])
def test_full_precision_of_a_processor_is_a_warning_where_its_doubt_is_not_in_the_interval(
    origin: str, precision: str
) -> None:
    def about_precision(**changes: Any) -> list[str]:
        said = told(**{"origins": {"precision": "derived"}, "precision": "fp32", **changes})
        return [sentence for sentence in said if "processor" in sentence]

    assert about_precision() == []
    shape = {"transformer": SHAPE, "parameters": None, "flops_per_sample": None, "activation_bytes_per_sample": None}
    assert len(about_precision(**shape)) == 1
    assert about_precision(**shape, precision=precision, origins={"precision": origin}) == []
