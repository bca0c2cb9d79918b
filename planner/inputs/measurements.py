"""What probes and finished runs measured: one JSON object per line of `measurements.jsonl`."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from planner.contract import Contract, first_fault, text_form
from planner.errors import InputError
from planner.inputs.catalog.tables import Catalog, Precision
from planner.inputs.job.strategies import ParallelStrategy
from planner.inputs.strategy_text import strategy_text

LOCAL = "local"  # the instance type of a machine that is not in the catalogue
HERE_ONLY = "their step times are of this machine; noise and sizes are used"

# Bounds far outside anything real: beyond them arithmetic overflows where no sentence could explain it.
Count = Annotated[int, Field(gt=0, le=2**24)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Usd = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[float, Field(gt=0, le=1e18)]
Samples = Annotated[float, Field(gt=0, le=1e18)]
ShortHash = Annotated[str, text_form(r"^[0-9a-f]{12}$", "12 digits and letters a to f, the beginning of a hash")]
Digest = Annotated[str, text_form(r"^[0-9a-f]{64}$", "a SHA-256 in hexadecimal digits")]
Words = Annotated[str, Field(max_length=4000)]
_MOST_WARNINGS = 10


# What no prediction follows from, and why. Everything else in the contract changes a plan or warns its reader.
PROVENANCE = {
    "schema_version": "of this format",
    "asked_gpu_batch": "what the probe asked the script for; predictions follow from what was observed",
    "asked_accumulation_steps": "the same, of micro-steps",
    "samples_per_step": "per GPU, mean over all steps; less where the last batch of an epoch is smaller",
    "batch_source": "counted at the model's calls, stated by the user or the program, or imported from a log",
    "adapter": "the library that scav handed the batch to, where the script did not take it by itself",
    "step_seconds_p90": "where the slowest tenth of the steps begins; hours follow from the median",
    "windows": "how many windows the median is of",
    "hardware": "what the machine said of itself; the instance type stands for it",
    "run_command": "what ran, with its placeholders, for a person to recognise",
    "imported_from": "the log that it was imported from: its name, its format and its hash",
    "allgather": "bytes and seconds of gathering a block's shards on its own; links follow from the all-reduces",
    "reduce_scatter": "the same of reducing a block's gradients into shards",
    "noise.groups": "how many gradients it was estimated from",
    "noise.at_step": "how many steps the model had been trained, where known; named where `at_samples` is not",
}


class AllReduce(Contract):
    """One all-reduce on its own, on the slowest process; or another collective, of as many bytes in all."""

    bytes: Bytes
    seconds: Annotated[Seconds, Field(gt=0)]


class GradientNoise(Contract):
    """The gradient noise scale in samples, with its 90 % interval, at one point of the training."""

    scale: Samples
    low: Annotated[float, Field(ge=0, le=1e18)] = Field(description="lower end of the 90 % interval")
    high: Samples = Field(description="upper end of the 90 % interval")
    groups: Count = Field(description=PROVENANCE["noise.groups"])
    reached: bool = Field(description="whether the interval is within 20 % of the estimate")
    state: ShortHash | None = Field(
        default=None, description="of the parameters it was measured at: estimates of the same state are pooled"
    )
    at_samples: Annotated[int, Field(ge=0, le=10**18)] | None = Field(
        default=None, description="how many samples the model had been trained with; a plan says so"
    )
    at_step: Annotated[int, Field(ge=0, le=10**15)] | None = Field(
        default=None, description=PROVENANCE["noise.at_step"]
    )


class ImportedFrom(Contract):
    """A log that another tool wrote."""

    format: Words
    file: Words = Field(description="its name, without the folder")
    sha256: Digest


class Measurement(Contract):
    """One probe: windows of training steps at one configuration, and what was measured beside them."""

    schema_version: Literal[1] = Field(default=1, description=PROVENANCE["schema_version"])
    instance_type: str = Field(description="of the catalogue, or `local` for a machine that is not")
    nodes: Count
    gpus_per_node: Count
    gpu_batch: Count = Field(description="samples per GPU and micro-step, as the timed steps took them")
    accumulation_steps: Count = 1
    strategy: ParallelStrategy | None = Field(
        default=None, description="how the model was spread over the GPUs; left out: the whole of it on each (ddp)"
    )
    asked_gpu_batch: Count | None = Field(default=None, description=PROVENANCE["asked_gpu_batch"])
    asked_accumulation_steps: Count | None = Field(default=None, description=PROVENANCE["asked_accumulation_steps"])
    samples_per_step: Annotated[float, Field(gt=0, le=2**48)] | None = Field(
        default=None, description=PROVENANCE["samples_per_step"]
    )
    batch_source: Literal["counted", "stated", "imported"] | None = Field(
        default=None, description=PROVENANCE["batch_source"]
    )
    adapter: Annotated[str, Field(max_length=40)] | None = Field(default=None, description=PROVENANCE["adapter"])
    precision: Precision
    step_seconds: Annotated[float, Field(ge=1e-6, le=1e9)] = Field(
        description="one optimizer step, median over windows, slowest rank"
    )
    step_seconds_p90: Seconds | None = Field(default=None, description=PROVENANCE["step_seconds_p90"])
    window_variation: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        default=None,
        description="spread between windows over their median; above 0.1 the machine was busy, and it counts half",
    )
    windows: Count | None = Field(default=None, description=PROVENANCE["windows"])
    exposed_sync_seconds: Seconds | None = Field(
        default=None, description="the part of a step that communication added"
    )
    data_wait_seconds: Seconds | None = Field(
        default=None, description="of a step, waiting for data; from a tenth on, feeding set its time"
    )
    input_cpu_seconds_per_sample: Annotated[float, Field(gt=0, le=1e5)] | None = Field(
        default=None, description="of one processor, to load a sample; used where workload.input says none"
    )
    allreduce: tuple[AllReduce, ...] = Field(default=(), description="replaces the data sheet's links of this type")
    allgather: tuple[AllReduce, ...] = Field(default=(), description=PROVENANCE["allgather"])
    reduce_scatter: tuple[AllReduce, ...] = Field(default=(), description=PROVENANCE["reduce_scatter"])
    noise: GradientNoise | None = None
    parameters: Annotated[int, Field(gt=0, le=10**15)] | None = Field(
        default=None, description="trainable ones; a warning where the job file says others"
    )
    gradient_bytes: Bytes | None = Field(default=None, description="used where the job file says none")
    peak_memory_bytes: Bytes | None = Field(
        default=None, description="what PyTorch had allocated on the fullest GPU, while training"
    )
    out_of_memory_at: Count | None = Field(
        default=None, description="smallest gpu_batch known not to fit here, on as many GPUs of this kind"
    )
    checkpoint_save_seconds: Seconds | None = None
    checkpoint_restore_seconds: Seconds | None = None
    checkpoint_bytes: Bytes | None = Field(default=None, description="used where the job file says none")
    startup_seconds: Seconds | None = Field(default=None, description="from the launch to the first step")
    probe_usd: Usd | None = Field(default=None, description="what measuring this cost")
    hardware: dict[str, str | int | float | None] = Field(default_factory=dict, description=PROVENANCE["hardware"])
    software: dict[str, str] = Field(
        default_factory=dict, description="its `torch` tells old measurements, which count half, from new ones"
    )
    image_digest: str | None = Field(
        default=None, description="the container image it was measured in; a warning where run.image is another"
    )
    run_key: ShortHash | None = Field(
        default=None, description="a hash of what ran; rows of an older run than the newest are left out"
    )
    run_command: Words | None = Field(default=None, description=PROVENANCE["run_command"])
    script_sha256: Digest | None = Field(
        default=None, description="of the script and what it imports; rows of an older script are left out"
    )
    imported_from: ImportedFrom | None = Field(default=None, description=PROVENANCE["imported_from"])


@dataclass(frozen=True, slots=True)
class MeasurementFile:
    """The measurements, and what a reader should be told about the file."""

    rows: tuple[Measurement, ...]
    warnings: tuple[str, ...] = ()


def parse_measurements(text: str, *, file: str) -> MeasurementFile:
    """Every line must be right except an unfinished last one, which a killed probe leaves behind."""
    lines = text.split("\n")  # splitlines() would also cut at U+2028, which JSON allows inside a string
    rows: list[Measurement] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(Measurement.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines) and not text.endswith("\n") and not is_json(line):
                return MeasurementFile(tuple(rows), (f"{file}:{number}: the last line is torn; used without it",))
            fault = first_fault(error, Measurement)
            raise InputError(fault.message, file=file, line=number, key=fault.key) from None
    return MeasurementFile(tuple(rows))


def usable(
    rows: Sequence[Measurement], catalog: Catalog, precision: Precision, *, has_shape: bool = False
) -> MeasurementFile:
    """What says something about this job, with a warning for every kind of row that does not."""
    reasons = [unusable(row, catalog, precision, has_shape=has_shape) for row in rows]
    counts = sorted(Counter(reason for reason in reasons if reason).items())
    warnings = [f"used without {count} of {len(rows)} measurements: {reason}" for reason, count in counts]
    if len(warnings) > _MOST_WARNINGS:
        left = sum(count for _, count in counts[_MOST_WARNINGS:])
        warnings[_MOST_WARNINGS:] = [f"used without {left} of {len(rows)} measurements: for other such reasons"]
    return MeasurementFile(
        tuple(row for row, reason in zip(rows, reasons, strict=True) if reason is None), tuple(warnings)
    )


def unusable(row: Measurement, catalog: Catalog, precision: Precision, *, has_shape: bool = False) -> str | None:
    """Why it says nothing about this job's step time, or None. `has_shape`: the job has a transformer."""
    instance_type = catalog.instance_type_by_name.get(row.instance_type)
    if row.instance_type == LOCAL:
        return HERE_ONLY
    if instance_type is None:
        return f"{row.instance_type} is not in the catalogue"
    if row.gpus_per_node != instance_type.gpu_count:
        return f"{row.gpus_per_node} GPUs per node is not a whole {instance_type.name}"
    if catalog.gpu_of(instance_type).peak_flops_per_second(precision) is None:
        return f"{instance_type.name} has no units for {precision}"
    if row.strategy not in (None, ParallelStrategy()) and not has_shape:
        return f"taken with {strategy_text(row.strategy)}, which needs workload.transformer"
    return None if row.precision == precision else f"taken in {row.precision}, the job uses {precision}"


def median(values: Sequence[float | None]) -> float | None:
    """The middle of what was measured; None when nothing was."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
