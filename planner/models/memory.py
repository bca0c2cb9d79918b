"""Which local batch still fits into a GPU's memory.

    needed(m) = fixed + m * per sample          what PyTorch has allocated at its fullest moment, m samples per GPU
    free      = 92 % of the GPU - 1.5 GiB

Without measurements `fixed` and `per sample` are those of the job file. Measured peaks move them: one batch size
scales both, two tell them apart. A batch that was found too large moves them up until it is. Beside this line stand
facts. They hold whatever the line says, for every GPU whose memory makes them certain:

    a batch ran             it fits a GPU with as much memory or more
    a batch was too large   neither it nor a larger one fits a GPU with as much memory or less, on as many GPUs or more

What is assumed: every GPU holds the whole model. The peak is linear in the local batch, and depends neither on the
kind of GPU nor on micro-steps nor, once there are several GPUs, on their number. One GPU alone needs no buffers for
communication, so it can hold more than one of several. Where both facts meet, the batch that was too large wins:
memory that was enough by luck is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.inputs import Catalog, Gpu, InstanceType, Measurement, Workload, median
from planner.models.configurations import Configurations
from planner.units import written_bytes

GIB = 2.0**30
# CUDA context, NCCL and cuDNN work space; then what the caching allocator loses to fragmentation. Assumed. A measured
# peak is of what PyTorch allocated (`probes/after_steps.py`), so both stand between it and the GPU's memory, too.
RESERVED_GIB = 1.5
USABLE_SHARE = 0.92
# Standard deviations of logarithms. Textbook formulas miss the peaks of real trainings by 40 %, and both parts
# mostly alike. A peak repeats within a few percent.
SCALE_SD, TILT_SD, PEAK_SD = 0.5, 0.25, 0.03
ABSURD_FACTOR = 100.0  # a peak so far off the job file is of another job, or in another unit
CONTRADICTED = 2.0  # times the job file's activations, by peaks at several batch sizes: worth telling
ROBUST = 2.0  # where a peak that contradicts the others begins to lose its say, in standard deviations


class _Known(NamedTuple):
    """A local batch that ran, or was too large, on so many GPUs of so much memory."""

    gpu_batch: int
    gpus: int
    memory_gib: float


class MemoryModel:
    """Says which batches fit the GPUs of the catalogue, from the job file and from what was measured."""

    def __init__(self, workload: Workload, catalog: Catalog) -> None:
        self.workload = workload
        self.catalog = catalog
        self.fixed_bytes_ = model_bytes(workload)
        self.bytes_per_sample_ = workload.activation_bytes_per_sample
        self.ran_: tuple[_Known, ...] = ()
        self.too_large_: tuple[_Known, ...] = ()
        self.warnings_: tuple[str, ...] = ()

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """In any order, on any instance type of the catalogue."""
        self.ran_ = tuple(sorted({self._known(row, row.gpu_batch) for row in measurements}))
        marks = {self._known(row, row.out_of_memory_at) for row in measurements if row.out_of_memory_at is not None}
        self.too_large_ = tuple(sorted(marks))
        self._fit_line(measurements)
        return self

    def fits(self, configurations: Configurations) -> Flags:
        """Row by row; a larger batch never fits where a smaller one does not."""
        return np.asarray(configurations.gpu_batch <= self.largest(configurations))

    def largest(self, configurations: Configurations) -> Floats:
        """The largest local batch on the nodes of each row."""
        counts = np.arange(configurations.nodes.max(initial=0) + 1)
        largest = self._largest(configurations.gpu, counts * configurations.instance_type.gpu_count)
        return np.asarray(largest[configurations.nodes])

    def largest_batch(self, instance_type: InstanceType, nodes: int = 1) -> int:
        """The largest local batch that fits; 0 when not even one sample does."""
        gpus = np.array([nodes * instance_type.gpu_count])
        return max(int(self._largest(self.catalog.gpu_of(instance_type), gpus)[0]), 0)

    @property
    def needs(self) -> str:
        return f"every GPU holds the whole model, {self.fixed_bytes_ / GIB:,.0f} GiB before activations"

    def needed_bytes(self, gpu_batch: int) -> float:
        return self.fixed_bytes_ + gpu_batch * self.bytes_per_sample_

    def _largest(self, gpu: Gpu, gpus: Ints) -> Floats:
        """On each number of GPUs in all."""
        room = _free_bytes(gpu.memory_gib) - self.fixed_bytes_
        largest = np.full(len(gpus), room // self.bytes_per_sample_)
        for ran in self.ran_:
            if ran.memory_gib <= gpu.memory_gib:
                alike = (gpus == 1) | (ran.gpus > 1)  # what ran alone has not shown that buffers leave it room
                largest = np.where(alike, np.maximum(largest, ran.gpu_batch), largest)
        for mark in self.too_large_:
            if mark.memory_gib >= gpu.memory_gib:
                largest = np.where(gpus >= mark.gpus, np.minimum(largest, mark.gpu_batch - 1), largest)
        return largest

    def _known(self, row: Measurement, gpu_batch: int) -> _Known:
        gpu = self.catalog.gpu_of(self.catalog.instance_type_by_name[row.instance_type])
        return _Known(gpu_batch, row.nodes * row.gpus_per_node, gpu.memory_gib)

    def _fit_line(self, measurements: Sequence[Measurement]) -> None:
        self.fixed_bytes_ = model_bytes(self.workload)
        self.bytes_per_sample_ = self.workload.activation_bytes_per_sample
        peaks = self._believed_peaks(measurements)
        if peaks:
            # Repeats of one batch say the same again: their middle counts once.
            middle = [median(peaks[batch]) for batch in sorted(peaks)]
            factors = _fitted(self.fixed_bytes_, self.bytes_per_sample_, sorted(peaks), np.array(middle, dtype=float))
            self._move(factors)
            self._name_contradiction(len(peaks), float(factors[1]))
        short = [_free_bytes(mark.memory_gib) / self.needed_bytes(mark.gpu_batch) for mark in self.too_large_]
        factor = max(short, default=0.0) * (1 + 1e-9)  # what did not fit needs more than was free
        self._move(np.full(2, max(factor, 1.0)))

    def _name_contradiction(self, batch_sizes: int, factor: float) -> None:
        if batch_sizes > 1 and not 1 / CONTRADICTED <= factor <= CONTRADICTED:
            said, found = written_bytes(self.bytes_per_sample_ / factor), written_bytes(self.bytes_per_sample_)
            sentence = f"the job file says {said} of activations per sample, measured peaks say {found}"
            self.warnings_ = (*self.warnings_, sentence)

    def _move(self, factors: Floats) -> None:
        self.fixed_bytes_ *= float(factors[0])
        self.bytes_per_sample_ *= float(factors[1])

    def _believed_peaks(self, measurements: Sequence[Measurement]) -> dict[int, list[float]]:
        """By batch; those that cannot be are named in `warnings_`."""
        believed: dict[int, list[float]] = {}
        odd = set()
        for row in measurements:
            peak, expected = row.peak_memory_bytes, self.needed_bytes(row.gpu_batch)
            if peak is None:
                continue
            if expected / ABSURD_FACTOR < peak < expected * ABSURD_FACTOR:
                believed.setdefault(row.gpu_batch, []).append(peak)
            else:
                said = f"the job file says about {expected / GIB:.3g} GiB"
                odd.add(f"used without a peak of {peak / GIB:.3g} GiB at {row.gpu_batch} samples per GPU: {said}")
        self.warnings_ = tuple(sorted(odd))
        return believed


def _fitted(fixed_bytes: float, bytes_per_sample: float, batches: Sequence[int], peaks: Floats) -> Floats:
    """Factors of the fixed part and of the part per sample: between one and what was measured."""
    from scipy.optimize import least_squares

    samples = np.array(batches, dtype=float)

    def factors(parameters: Floats) -> Floats:
        scale, tilt = parameters  # both parts grow by the scale; the tilt takes from one for the other
        return np.asarray(np.exp([scale - tilt, scale + tilt]))

    def residuals(parameters: Floats) -> Floats:
        of_fixed, of_samples = factors(parameters)
        needed = of_fixed * fixed_bytes + of_samples * bytes_per_sample * samples
        return np.concatenate((np.log(needed / peaks) / PEAK_SD, parameters / (SCALE_SD, TILT_SD)))

    return factors(least_squares(residuals, np.zeros(2), loss="soft_l1", f_scale=ROBUST).x)


def _free_bytes(memory_gib: float) -> float:
    return memory_gib * GIB * USABLE_SHARE - RESERVED_GIB * GIB


def model_bytes(workload: Workload) -> float:
    """Weights and gradients in fp32 as autocast keeps them, a cast copy for the half types, optimizer state."""
    cast_copy = {"fp32": 0.0, "tf32": 0.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}[workload.precision]
    return (4.0 + 4.0 + cast_copy) * workload.parameters + workload.optimizer_state_bytes
