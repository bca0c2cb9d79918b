"""Every measured field changes what is planned or said, or is listed as provenance and changes nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.inputs.measurements import PROVENANCE, AllReduce, GradientNoise, Measurement
from planner.outside.input_files import load_plan_inputs
from planner.plan.build import make_plan
from planner.search.survey import take_survey

JOB = """\
name: small
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  input: jpeg
  target: {{epochs: 90, reference_batch: 256}}
constraints:
  instance_types: ["g5.12xlarge", "g5.24xlarge"]
  nodes: 1..2
  spot: never
run:
  image: registry.example.com/train@sha256:{digest}
""".format(digest="0" * 64)
FULL: dict[str, Any] = {
    "instance_type": "g5.12xlarge",
    "nodes": 2,
    "gpus_per_node": 4,
    "gpu_batch": 64,
    "accumulation_steps": 1,
    "strategy": {"sharding": "ddp", "tensor_parallel": 1, "pipeline": 1, "recompute": "none"},
    "asked_gpu_batch": 64,
    "asked_accumulation_steps": 1,
    "samples_per_step": 64.0,
    "batch_source": "counted",
    "adapter": "lightning",
    "precision": "bf16",
    "step_seconds": 0.42,
    "step_seconds_p90": 0.45,
    "window_variation": 0.03,
    "windows": 8,
    "exposed_sync_seconds": 0.12,
    "data_wait_seconds": 0.03,
    "input_cpu_seconds_per_sample": 0.008,
    "allreduce": [{"bytes": 65_536, "seconds": 0.002}, {"bytes": 102_400_000, "seconds": 0.25}],
    "allgather": [{"bytes": 102_400_000, "seconds": 0.13}],
    "reduce_scatter": [{"bytes": 102_400_000, "seconds": 0.14}],
    "noise": {
        "scale": 900.0,
        "low": 800.0,
        "high": 1000.0,
        "groups": 32,
        "reached": True,
        "state": "0123456789ab",
        "at_samples": 25_600,
        "at_step": 400,
    },
    "parameters": 25_600_000,
    "gradient_bytes": 102_400_000,
    "peak_memory_bytes": 5e9,
    "out_of_memory_at": 300,
    "checkpoint_save_seconds": 1.9,
    "checkpoint_restore_seconds": 2.5,
    "checkpoint_bytes": 307_200_000,
    "startup_seconds": 214.0,
    "probe_usd": 0.85,
    "hardware": {"gpu": "NVIDIA A10G", "cpu_count": 48},
    "software": {"torch": "2.13.0", "python": "3.11.7"},
    "image_digest": "sha256:" + "0" * 64,
    "run_key": "0" * 12,
    "run_command": "train.py --batch-size {gpu_batch}",
    "script_sha256": "0" * 64,
    "imported_from": {"format": "CSV", "file": "log.csv", "sha256": "0" * 64},
}
RUN = ("image_digest", "run_key", "script_sha256")  # that of the other row is the newest
SAME = {key: FULL[key] for key in ("instance_type", "gpus_per_node", "precision", "software", *RUN)}
OTHER = {
    **SAME,
    "nodes": 1,
    "gpu_batch": 32,
    "step_seconds": 0.2,
    "noise": {**FULL["noise"], "scale": 1100.0, "low": 950.0, "high": 1270.0},
}  # with a third one every fit is checked by leaving out

# Another value for each field; what is not here is doubled.
CHANGED: dict[str, Any] = {
    "instance_type": "g5.24xlarge",
    "strategy": {"sharding": "fsdp"},
    "precision": "fp16",
    "window_variation": 0.3,
    "noise.reached": False,
    "noise.state": "ba9876543210",
    "software": {"torch": "2.3.1+cu121"},
    "hardware": {"gpu": None},
    "image_digest": "sha256:" + "1" * 64,
    "run_key": "1" * 12,
    "run_command": "other.py",
    "script_sha256": "1" * 64,
    "imported_from": {"format": "CSV", "file": "other.csv", "sha256": "1" * 64},
    "out_of_memory_at": 80,
    "batch_source": "stated",
}


def leaves() -> list[str]:
    """Every field of the contract, those of its parts by their path."""
    parts = {"allreduce": AllReduce, "noise": GradientNoise}
    plain = [name for name in Measurement.model_fields if name not in parts]
    return plain + [f"{part}.{name}" for part, contract in parts.items() for name in contract.model_fields]


def perturbed(path: str) -> dict[str, Any]:
    record = json.loads(json.dumps(FULL))
    part, _, name = path.rpartition(".")
    holder = record[part] if part else record
    holder = holder[-1] if isinstance(holder, list) else holder  # the largest all-reduce
    holder[name] = CHANGED[path] if path in CHANGED else 2 * holder[name]
    return record


def outcome(base: Path, record: dict[str, Any]) -> Sequence[Any]:
    """The plan but for the hashes of its inputs, and everything that its reader is told or would be after a loss."""
    (base / "scav.yaml").write_text(JOB)
    (base / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (record, OTHER)))
    inputs = load_plan_inputs(base, {}, None)
    survey = take_survey(inputs)
    plan = make_plan(inputs, survey).model_dump(mode="json", exclude={"inputs"})
    warnings = [*inputs.warnings, *survey.models.warnings]
    return [plan, warnings, dataclasses.asdict(survey.models.overheads)]


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bool]:
    base = tmp_path_factory.mktemp("job")
    before = outcome(base, FULL)
    return lambda path: outcome(base, perturbed(path)) != before


def test_the_record_has_every_field_and_provenance_names_only_fields() -> None:
    assert set(FULL) | {"schema_version"} == set(Measurement.model_fields)
    assert set(PROVENANCE) <= set(leaves())


@pytest.mark.parametrize("path", [path for path in leaves() if path not in PROVENANCE])
def test_a_used_field_changes_the_plan_or_what_is_said(path: str, changes: Callable[[str], bool]) -> None:
    assert changes(path)


@pytest.mark.parametrize("path", sorted(set(PROVENANCE) - {"schema_version"}))
def test_provenance_changes_nothing(path: str, changes: Callable[[str], bool]) -> None:
    assert not changes(path)


def test_the_format_has_one_version_so_that_it_cannot_matter() -> None:
    assert Measurement.model_json_schema()["properties"]["schema_version"]["const"] == 1
