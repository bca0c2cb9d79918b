"""What `scav inspect` found in a training script, and the keys of a job file that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from planner.contract import Contract
from planner.inputs.catalog.tables import Precision
from planner.inputs.job.draft import KnownValue
from planner.inputs.job.fields import LARGEST_BATCH
from planner.inputs.job.workload import Optimizer, Origin
from planner.units import counted, written_bytes, written_flop

_Count = Annotated[int, Field(ge=0, le=10**18)]
_Batch = Annotated[int, Field(gt=0, le=LARGEST_BATCH)]
_Bytes = Annotated[float, Field(ge=0, le=1e18)]
_Positive = Annotated[float, Field(gt=0, le=1e30)]

_NAMES: dict[str, Optimizer] = {"Adam": "adam", "AdamW": "adamw", "Lion": "lion"}
_WIDER_BATCHES = 16  # times the script's own: a range to search, which whoever knows the job may narrow


class InspectedScript(Contract):
    """One script on one machine, one process. What is None was not found, and `missing` says why."""

    trainable_parameters: _Count
    frozen_parameters: _Count
    flops_per_sample: _Positive | None = Field(
        default=None,
        description="forward and backward pass by torch's formulas: matrix products, convolutions and attention, 2 "
        "per multiply-add, attention not halved for a causal mask, what is computed again counted again",
    )
    activation_bytes_per_sample: _Bytes | None = Field(
        default=None,
        description="of storages that are alive when the backward pass begins and grow with the batch, inputs included",
    )
    constant_bytes: _Bytes | None = Field(default=None, description="of those that are kept whatever the batch")
    gradient_bytes: _Bytes
    checkpoint_bytes: _Bytes | None = Field(default=None, description="of model and optimizer, as torch.save writes it")
    optimizer: str | None = Field(default=None, max_length=200, description="the name of its class")
    momentum: float = 0.0
    precision: Precision | None = Field(default=None, description="of most of the flops")
    dataset_samples: _Count | None = Field(default=None, description="in one epoch, as the DataLoader draws them")
    gpu_batch: _Batch | None = Field(default=None, description="samples of one micro-step")
    accumulation_steps: _Batch | None = Field(default=None, description="micro-steps of one optimizer step")
    samples_per_step: _Batch | None = Field(default=None, description="samples of one optimizer step")
    input_cpu_seconds_per_sample: _Positive | None = Field(
        default=None,
        description="CPU time of fetching and collating in one process on one thread, median of a few batches",
    )
    input_bytes_per_sample: _Positive | None = Field(default=None, description="read from files while doing so")
    missing: dict[str, str] = Field(default_factory=dict, description="keys that were not found, and why")
    notes: tuple[str, ...] = ()
    device: str = Field(max_length=200, description="where it ran: cpu, or the name of a GPU")
    software: dict[str, str] = Field(default_factory=dict)

    @property
    def optimizer_in_job_file(self) -> Optimizer | None:
        """None for one that the job file has no name for."""
        if self.optimizer == "SGD":
            return "momentum" if self.momentum else "sgd"
        return _NAMES.get(self.optimizer or "")

    @property
    def ran_at_half_width_on_a_processor(self) -> bool:
        """Autocast on a processor leaves other operators in full precision than on a GPU."""
        return self.device == "cpu" and self.precision in ("bf16", "fp16")

    @property
    def ran_at_full_width_on_a_processor(self) -> bool:
        """Many scripts take half precision only where there is a GPU."""
        return self.device == "cpu" and self.precision in ("fp32", "tf32")


def job_values(found: InspectedScript, *, asked_batch: bool = False) -> list[KnownValue]:
    """The keys of `workload` that were found. `asked_batch`: to inspect it with, which says nothing of the training."""
    batches = [] if asked_batch or found.samples_per_step is None else [_batches(found.samples_per_step)]
    return [*_sizes(found), *batches, *_choices(found), *_feeding(found)]


def job_notes(found: InspectedScript) -> list[str]:
    """For the head of the job file: what was not found, and what a reader should know of the rest."""
    notes = [f"Not found: {sentence}." for sentence in not_found(found)]
    notes += [f"{note[:1].upper()}{note[1:]}." for note in found.notes]
    if found.optimizer is not None and found.optimizer_in_job_file is None:
        notes.append(f"The job file has no name for the optimizer {found.optimizer}: scav takes it for adamw.")
    if found.frozen_parameters:
        notes.append(f"Beside what is trained there are {found.frozen_parameters:,} frozen parameters.")
    if found.samples_per_step is not None:
        notes.append(f"The script takes {counted(found.samples_per_step, 'sample')} per optimizer step of one process.")
    if found.ran_at_full_width_on_a_processor:
        notes.append(
            f"{found.precision} was seen on a processor: say bf16 or fp16 if the script trains with that on a GPU."
        )
    return notes


def not_found(found: InspectedScript) -> list[str]:
    """Each reason once, after the keys that it is of."""
    keys: dict[str, list[str]] = {}
    for key, reason in sorted(found.missing.items()):
        keys.setdefault(reason, []).append(key)
    return [f"{', '.join(of_reason)}: {reason}" for reason, of_reason in keys.items()]


def _sizes(found: InspectedScript) -> Iterator[KnownValue]:
    def measured(key: str, text: str, how: str) -> KnownValue:
        return KnownValue(key=key, text=text, origin="measured", how=how)

    if found.dataset_samples:
        yield measured("dataset_samples", str(found.dataset_samples), "of the data set that the script loads")
    if found.flops_per_sample is not None:
        how = "forward and backward, torch's formulas, operator by operator"
        yield measured("flops_per_sample", written_flop(found.flops_per_sample), how)
    if found.trainable_parameters:
        yield measured("parameters", str(found.trainable_parameters), "trainable ones")
    if found.gradient_bytes:
        yield measured("gradient_bytes", str(round(found.gradient_bytes)), "of the trainable parameters")
    if found.activation_bytes_per_sample:
        yield _activations(found, found.activation_bytes_per_sample)
    if found.checkpoint_bytes:
        yield measured("checkpoint_bytes", written_bytes(found.checkpoint_bytes), "of model and optimizer")


def _activations(found: InspectedScript, size: float) -> KnownValue:
    how = "alive when the backward pass begins"
    at_half_width = found.ran_at_half_width_on_a_processor
    if at_half_width:
        how += ", on a processor; a GPU's autocast keeps other tensors"
    elif found.constant_bytes is None:
        how += ", with what does not grow with the batch"
    known = not at_half_width and found.constant_bytes is not None
    text = written_bytes(size)
    return KnownValue(key="activation_bytes_per_sample", text=text, origin="measured" if known else "derived", how=how)


def _batches(own: int) -> KnownValue:
    largest = min(_WIDER_BATCHES * own, LARGEST_BATCH)
    how = f"1 to {_WIDER_BATCHES} times the script's own batch; narrow it to what trains well"
    return KnownValue(key="global_batch", text=f"{own}..{largest}", origin="derived", how=how)


def _choices(found: InspectedScript) -> Iterator[KnownValue]:
    if found.precision is not None:
        doubted = found.ran_at_full_width_on_a_processor
        how = "of most of the flops, on a processor; a GPU's may be narrower" if doubted else "of most of the flops"
        origin: Origin = "derived" if doubted else "measured"
        yield KnownValue(key="precision", text=found.precision, origin=origin, how=how)
    if (optimizer := found.optimizer_in_job_file) is not None:
        yield KnownValue(key="optimizer", text=optimizer, origin="measured", how=f"{found.optimizer}")


def _feeding(found: InspectedScript) -> Iterator[KnownValue]:
    seconds = found.input_cpu_seconds_per_sample
    if seconds is None:
        return
    stored = found.input_bytes_per_sample
    read = "" if stored is None else f", bytes_per_sample: {written_bytes(stored)}"
    text = f"{{kind: other, cpu_seconds_per_sample: {1000 * seconds:.3g}ms{read}}}"
    yield KnownValue(key="input", text=text, origin="measured", how="fetched here in one process; add source")
