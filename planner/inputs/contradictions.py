"""Values of a job file that contradict each other, with both numbers: refused where they cannot be, else warned of.

Most are a unit that somebody forgot, by which a value is wrong a thousand times or more. So the bounds lie far outside
what real jobs do, and each has its reason; a bound that some job may cross for a good reason only warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from planner.contract import KeyPath, dotted
from planner.inputs.job.parse import JobFile
from planner.inputs.job.placeholders import holds_strategy
from planner.inputs.job.target import TrainingAmount
from planner.inputs.job.workload import Workload
from planner.units import counted, format_count, written_bytes, written_flop

# Flops per byte of activations. A kept value of eight bytes or less was computed, and is computed with again. Above:
# a value is multiplied with a row of weights, of a million at most, or stands for a whole block that is recomputed.
LEAST_INTENSITY, LOW_INTENSITY, HIGH_INTENSITY, MOST_INTENSITY = 1 / 8, 2.0, 1e6, 1e8
MOST_USES = 1e7  # of a weight in a sample: a convolution over a large volume, or millions of rays through a small net
# Bytes per parameter, all-reduced or saved. Compressed gradients are a hundredth, fp64 is eight.
LEAST_GRADIENT, FEW_GRADIENT, MUCH_GRADIENT, MOST_GRADIENT = 1e-3, 0.9, 9.0, 1e3
LEAST_CHECKPOINT, FEW_CHECKPOINT, MUCH_CHECKPOINT = 1.0, 1.9, 1e3  # eight bits are the fewest that anybody trains in
MOST_UNCOUNTED = 1.5  # times the parameters that a shape counts: positions, biases and adapters are less
LEAST_EPOCHS, MOST_EPOCHS = 1e-3, 1e4


class Contradiction(NamedTuple):
    """A key of the workload, what is wrong with it, and whether it may be right all the same."""

    key: KeyPath
    sentence: str
    possible: bool


def contradictions(job_file: JobFile) -> list[str]:
    """Warnings. Raises InputError, with the line, for the first that cannot be."""
    found = list(_every(job_file.job.workload))
    for each in found:
        if not each.possible:
            raise job_file.error(("workload", *each.key), each.sentence)
    warnings = [f"{dotted(('workload', *each.key))}: {each.sentence}" for each in found]
    if _leaves_precision_open(job_file.job.workload):
        warnings.append("workload.precision was seen on a processor (origins: derived): a GPU may train at half of it")
    if job_file.job.workload.transformer is None and holds_strategy(job_file.job.run.command):
        warnings.append("run.command asks for a strategy, which is ddp as long as there is no workload.transformer")
    return warnings


def _leaves_precision_open(workload: Workload) -> bool:
    """Plans of a shape take every value as it stands; those of flat numbers have this doubt in their intervals."""
    seen_alone = workload.origins.precision == "derived" and workload.precision in ("fp32", "tf32")
    return workload.transformer is not None and seen_alone


def _every(workload: Workload) -> Iterator[Contradiction]:
    yield from _shape(workload)
    yield from _work(workload)
    yield from _sizes(workload)
    yield from _amount(workload, workload.target, workload.target.reference_batch, ("target",))
    for index, run in enumerate(workload.convergence.runs):
        yield from _amount(workload, run, run.batch, ("convergence", "runs", index))


def _shape(workload: Workload) -> Iterator[Contradiction]:
    """A transformer whose parameters are said, too: plans take those of its shape."""
    shape = workload.transformer
    if shape is None or workload.training_or_default != "full":
        return
    counted, said = shape.counted.parameters, workload.parameters
    if not 1 / MOST_UNCOUNTED <= counted / said <= MOST_UNCOUNTED:
        both = f"{format_count(said)} parameters, and a transformer of {format_count(counted)}"
        yield Contradiction(("parameters",), f"{both}: which of them is it?", False)


def _work(workload: Workload) -> Iterator[Contradiction]:
    flops, kept, parameters = workload.flops_per_sample, workload.activation_bytes_per_sample, workload.parameters
    both = f"{written_flop(flops)} for a sample that keeps {written_bytes(kept)} of activations"
    if flops < LEAST_INTENSITY * kept:
        yield Contradiction(
            ("flops_per_sample",), f"{both}: keeping takes more; is a unit missing (24.6 GFLOP)?", False
        )
    elif flops < LOW_INTENSITY * kept:
        yield Contradiction(("flops_per_sample",), f"{both}: few even for networks without matrices", True)
    if flops > MOST_INTENSITY * kept:
        few = f"{both}: far more work than they could take part in; is a unit missing (60MB)?"
        yield Contradiction(("activation_bytes_per_sample",), few, False)
    elif flops > HIGH_INTENSITY * kept:
        yield Contradiction(("activation_bytes_per_sample",), f"{both}: few unless nearly all is recomputed", True)
    said = f"{written_flop(flops)} for a sample and {format_count(parameters)} parameters"
    if flops < 2 * parameters:
        rare = f"less than the {written_flop(2.0 * parameters)} of using each once; right only if most are looked up"
        yield Contradiction(("flops_per_sample",), f"{said}: {rare}", True)
    if flops > 6 * MOST_USES * parameters:
        often = f"each would be used {format_count(flops / 6 / parameters)} times; is a unit missing (25.6M)?"
        yield Contradiction(("parameters",), f"{said}: {often}", True)


def _sizes(workload: Workload) -> Iterator[Contradiction]:
    count = f"{format_count(workload.parameters)} parameters"
    if (gradient := workload.gradient_bytes) is not None:
        each, said = gradient / workload.parameters, f"{written_bytes(gradient)} of gradients for {count}"
        if not LEAST_GRADIENT <= each <= MOST_GRADIENT:
            yield Contradiction(
                ("gradient_bytes",), f"{said}: {each:.2g} bytes each; is the unit right (102MB)?", False
            )
        elif not FEW_GRADIENT <= each <= MUCH_GRADIENT:
            yield Contradiction(("gradient_bytes",), f"{said}: {each:.2g} bytes each, usual are 2 or 4", True)
    if (saved := workload.checkpoint_bytes) is not None and saved > 0:
        each, said = saved / workload.parameters, f"a checkpoint of {written_bytes(saved)} for {count}"
        if each < LEAST_CHECKPOINT:
            small = "smaller than the weights at one byte each; is the unit right (307MB)?"
            yield Contradiction(("checkpoint_bytes",), f"{said}: {small}", False)
        elif not FEW_CHECKPOINT <= each <= MUCH_CHECKPOINT:
            yield Contradiction(("checkpoint_bytes",), f"{said}: {each:.2g} bytes each, usual are 4 to 16", True)


def _amount(workload: Workload, amount: TrainingAmount, batch: int, key: KeyPath) -> Iterator[Contradiction]:
    """Of training, until the target or in a run that reached it."""
    data = workload.dataset_samples
    samples = workload.samples_of(amount)
    epochs = samples / data
    if samples < batch:
        yield Contradiction(key, f"{samples:,.4g} samples are less than one batch of {batch:,}", False)
    elif epochs < LEAST_EPOCHS:
        little = f"{format_count(samples)} samples are {epochs:.1g} of the data set's {data:,}; were epochs meant?"
        yield Contradiction(key, little, True)
    if epochs > MOST_EPOCHS:
        passes = f"{format_count(epochs)} passes over {counted(data, 'sample')}"
        yield Contradiction(key, f"{passes}; is a unit missing there?", True)
    if batch > data:
        yield Contradiction(key, f"a batch of {batch:,} is more than the data set's {counted(data, 'sample')}", True)
