"""A job file that writes itself: every value with its origin; what only a person knows stays open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import one_line
from planner.inputs.job.workload import Origin

_OPEN = {  # what a plan needs and nobody has said: without it the file is refused, with line and key
    "dataset_samples": "required: samples in one epoch",
    "global_batch": "required: range of batch sizes that may be used, 256..8192",
}
_ORDER = (
    "dataset_samples",
    "flops_per_sample",
    "parameters",
    "gradient_bytes",
    "activation_bytes_per_sample",
    "checkpoint_bytes",
    "global_batch",
    "precision",
    "optimizer",
)
_COMMENT_COLUMN = 52
_LONGEST_NAME = 39
_TARGET = """\
  target:
    samples:                                        # required: samples until the target is reached (or epochs)
    reference_batch:                                # required: the batch size at which that is enough
"""
_STRATEGIES = """\
  # training: lora                                  # or qlora; left out: all weights are trained
  # strategies: {sharding: [ddp, fsdp]}             # what the script can do; zero1, zero2, hsdp, tensor_parallel: 8
"""
_LIMITS = """\
constraints:
  # deadline: 24h                                   # wall time; left out: none
  # budget: $400                                    # dollars; left out: none
  regions: [us-east-1]                              # or [all]
  instance_types: ["*"]                             # globs (g5.*) and GPU queries (A100:80GB:1..8)
  nodes: 1..16
  spot: auto                                        # never, auto or always
"""
_HANDS_OVER = """\
  # It must train with the plan's batch: by {gpu_batch} and {accumulation_steps} here, by SCAV_GPU_BATCH and
  # SCAV_ACCUMULATION, or by a callback of scav_probe (docs/measurements.md).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownValue:
    """A key of the workload, its value as it stands in the file (1.1GB), and where it comes from in words."""

    key: str
    text: str
    origin: Origin
    how: str


def drafted_job(
    name: str,
    values: Sequence[KnownValue],
    *,
    source: str,
    command: Sequence[str] = (),
    notes: Sequence[str] = (),
    transformer: Mapping[str, str] | None = None,
) -> str:
    """The text of a job file. `source` says what it was written from; `notes` are sentences below that."""
    known = {value.key: value for value in values}
    return "\n".join(_lines(name, known, source, command, notes, transformer or {}))


def job_name(text: str) -> str:
    """The nearest name that a job may have: `My Model_v2` is my-model-v2."""
    dashed = re.sub(r"[^a-z0-9]+", "-", text[:200].lower()).strip("-")
    return dashed[:_LONGEST_NAME].rstrip("-") or "my-training-job"


def _lines(
    name: str,
    values: dict[str, KnownValue],
    source: str,
    command: Sequence[str],
    notes: Sequence[str],
    transformer: Mapping[str, str],
) -> Iterator[str]:
    yield f"# A training job for scav, written from {one_line(source)}."
    yield "# Fill in what is required, set deadline and budget, run `scav plan`. docs/job-file.md explains every key."
    yield from (f"# {one_line(note)}" for note in notes)
    yield f"\nname: {json.dumps(name)}\n\nworkload:"
    if transformer:
        yield _commented("  transformer:", "from which flops, parameters and memory follow")
        yield from (f"    {key}: {text}" for key, text in transformer.items())
        yield from _STRATEGIES.splitlines()
    for key in (*_ORDER, *(key for key in values if key not in _ORDER)):
        if key in values:
            yield _commented(f"  {key}: {values[key].text}", f"{values[key].origin}: {values[key].how}")
        elif key in _OPEN:
            yield _commented(f"  {key}:", _OPEN[key])
    yield "  origins:"
    yield from (f"    {key}: {value.origin}" for key, value in values.items())
    yield f"{_TARGET}\n{_LIMITS}"
    if command:
        hint = "" if any("{gpu_batch}" in word for word in command) else _HANDS_OVER
        yield f"run:\n{hint}  command: {json.dumps(list(command), ensure_ascii=False)}\n"


def _commented(setting: str, comment: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN - 1}} # {one_line(comment)}"
