"""An inspection, made and shown: for `scav inspect` and `scav init --from`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from planner.inputs import InspectedScript


def found_in(
    folder: Path, words: tuple[str, ...], gpu_batch: int | None, samples_per_step: int | None, max_duration: str
) -> InspectedScript:
    from planner.cli.inputs import duration
    from planner.outside.runners import Interrupts, Script, inspect_script

    script = Script(folder=folder, command=words).checked()
    seconds = 3600 * duration("--max-duration", max_duration)
    click.echo(f"Inspecting the first steps of {words[0]}", err=True)
    with Interrupts() as interrupts:
        return inspect_script(
            script,
            longest_seconds=seconds,
            interrupts=interrupts,
            gpu_batch=gpu_batch,
            samples_per_step=samples_per_step,
        )


def inspection_lines(found: InspectedScript) -> Iterator[str]:
    """One fact a line, then what is missing."""
    from planner.errors import one_line
    from planner.inputs import not_found

    for heading, facts in _facts(found):
        said = [fact for fact in facts if fact is not None]
        if said:
            yield f"{heading:<12} {' · '.join(said)}"
    for sentence in not_found(found):
        yield f"{'Not found':<12} {one_line(sentence)}"
    for note in found.notes:
        yield f"{'Note':<12} {one_line(note)}"


def _facts(found: InspectedScript) -> Iterator[tuple[str, list[str | None]]]:
    from planner.errors import one_line
    from planner.units import counted, written_bytes, written_flop

    def of(form: str, value: float | None, written: object) -> str | None:
        return None if value is None else form.format(written)

    def samples(count: int | None) -> str | None:
        return None if count is None else counted(count, "sample")

    parameters = f"{found.trainable_parameters:,} trainable"
    yield "Parameters", [parameters, f"{found.frozen_parameters:,} frozen"]
    flops, activations = found.flops_per_sample, found.activation_bytes_per_sample
    yield "Flops", [of("{} per sample, forward and backward", flops, written_flop(flops or 0))]
    yield (
        "Activations",
        [
            of("{} per sample, alive when the backward begins", activations, written_bytes(activations or 0)),
            of("{} whatever the batch", found.constant_bytes, written_bytes(found.constant_bytes or 0)),
        ],
    )
    yield "Gradient", [written_bytes(found.gradient_bytes)]
    yield "Checkpoint", [of("{}", found.checkpoint_bytes, written_bytes(found.checkpoint_bytes or 0))]
    in_job_file = found.optimizer_in_job_file
    named = f"{in_job_file} in the job file" if in_job_file else "the job file has no name for it"
    yield "Optimizer", [one_line(found.optimizer), named] if found.optimizer else []
    doubted = found.ran_at_full_width_on_a_processor
    yield "Precision", [found.precision, "on a GPU it may be half of that" if doubted else None]
    yield "Data set", [samples(found.dataset_samples)]
    micro = found.accumulation_steps
    yield (
        "Batch",
        [
            samples(found.gpu_batch),
            None if micro is None else f"{counted(micro, 'micro-step')} per optimizer step",
        ],
    )
    seconds, read = found.input_cpu_seconds_per_sample, found.input_bytes_per_sample
    yield (
        "Input",
        [
            None if seconds is None else f"{1000 * seconds:.3g} ms of CPU per sample",
            of("{} read per sample", read, written_bytes(read or 0)),
        ],
    )
    yield "Measured on", [one_line(found.device), *(f"{name} {version}" for name, version in found.software.items())]
