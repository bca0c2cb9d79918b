"""What inputs that nobody measured may do to a step: predicted again as if each were larger or smaller.

    step if x * more, step if x / less  how far nine in ten values of that origin are off at most, to either side
    log(p95 / p50)^2 = that of the model + sum over inputs of log(step if wrong / step)^2, each side on its own

Everything is predicted as it would be, had the job file said so: measurements keep what they say. A type that was
probed does not care for flops; one that was not is as fast beside the probed ones as its data sheet says, whatever the
flops are. A batch that would not fit any more is taken in more micro-steps.

Flops and activations are doubted, because times and memory rest on them and people get them wrong by factors. Full
precision is doubted where a processor showed it: on a GPU the same script may train at half the width, and then it
keeps what the kernels for that keep, up to 3.4 times less. It trains one way or the other, so the low end is that of
half the width with everything that may go with it. Counts of parameters and of samples are known to whoever writes them
down; what a wrong one does to links and memory is less than what those models miss themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from planner.columns import Floats, Prediction
from planner.inputs import InstanceType, Measurement, Origin, Precision, Workload
from planner.models.configurations import Configurations
from planner.models.memory import MemoryModel
from planner.models.step_time.model import StepTimeModel

DoubtedKey = Literal["flops_per_sample", "activation_bytes_per_sample", "precision"]
ACTIVATIONS: DoubtedKey = "activation_bytes_per_sample"
PRECISION: DoubtedKey = "precision"  # in bits, so that it can be less or more like the others
FULL_WIDTH_BITS = 32.0
HALF_WIDTH: Precision = "fp16"  # in units that compute bf16 as fast, where there are any
KEYS: tuple[DoubtedKey, ...] = get_args(DoubtedKey)


class Wrong(NamedTuple):
    """How many times less and more the true value may be than the one that was said."""

    less: float
    more: float


# An attention that is not fused keeps 34 + 5 x heads x length / width bytes where a fused one keeps 34 (Korthikanti et
# al., arXiv 2205.05198): 3.4 times as much for GPT-2 at 1,024 tokens. A processor and a formula cannot know which one
# the GPU will run, nor what `torch.compile` fuses beside, so activations may be that much too large. They are not that
# much too small: nothing makes a GPU keep three times as much. A step takes at least what its flops take.
UNFUSED = 3.4
WORTH_NAMING = 1.05
# Assumed, not estimated from data. Given: multiply-adds counted once or twice, the backward pass counted or not, the
# logits kept or not all change a value by two or more. Derived: flops by formula miss what is no matrix
# multiplication; activations by formula miss what a framework keeps beside the textbook's list.
FACTORS: dict[DoubtedKey, dict[Origin, Wrong]] = {
    "flops_per_sample": {"measured": Wrong(1.0, 1.0), "derived": Wrong(1.1, 1.1), "given": Wrong(2.0, 2.0)},
    "activation_bytes_per_sample": {
        "measured": Wrong(1.0, 1.0),
        "derived": Wrong(UNFUSED, 1.5),
        "given": Wrong(UNFUSED, 2.0),
    },
    # Who writes it down knows it. What ran without a GPU may take half the width where there is one.
    "precision": {"measured": Wrong(1.0, 1.0), "derived": Wrong(2.0, 1.0), "given": Wrong(1.0, 1.0)},
}


@dataclass(frozen=True, slots=True)
class _AsIf:
    """The models, had the job file said something else."""

    steps: StepTimeModel
    memory: MemoryModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """An input, and what a wrong one would make of the step: so many times the seconds; None where nothing fits."""

    key: DoubtedKey
    value: float
    origin: Origin
    factor: float
    step_factor: float | None


class DoubtedSteps:
    """Step times with the doubt about the job file in their intervals."""

    def __init__(self, steps: StepTimeModel, measurements: Sequence[Measurement]) -> None:
        """Steps as fitted to these measurements, which also say what fits, whatever the job file says."""
        self.steps = steps
        self.measurements = measurements
        self._as_if: dict[tuple[DoubtedKey, float], _AsIf] = {}

    def predict(self, configurations: Configurations) -> Prediction:
        step = self.steps.predict(configurations)
        above, below = np.zeros((2, len(configurations)))
        for key in KEYS:
            if ends_at := self._ends(key, configurations.instance_type):
                ends = [self._seconds_if(configurations, step.p50, key, end) / step.p50 for end in ends_at]
                above += np.log(np.maximum(np.maximum(*ends), 1.0)) ** 2
                below += np.log(np.minimum(np.minimum(*ends), 1.0)) ** 2
        return step.times(_give_or_take(above, below))

    def strongest(self, one: Configurations) -> Dependence | None:
        """The input that the step of this configuration depends on most; None where all are measured."""
        found = [dependence for key in KEYS for dependence in self._dependences(one, key)]
        return max(found, key=_strength, default=None)

    def _dependences(self, one: Configurations, key: DoubtedKey) -> list[Dependence]:
        """Of one configuration on one input, more of it first."""
        workload = self.steps.workload
        origin, value = _origin(workload, key), _value(workload, key)
        now = self.steps.median_seconds(one)
        each = []
        for factor in self._ends(key, one.instance_type):
            ratio: float | None = float((self._seconds_if(one, now, key, factor) / now)[0])
            if key == ACTIVATIONS and self._models_if(key, factor).memory.largest(one)[0] < 1:
                ratio = None
            each.append(Dependence(key=key, value=value, origin=origin, factor=factor, step_factor=ratio))
        return each

    def _ends(self, key: DoubtedKey, instance_type: InstanceType) -> tuple[float, ...]:
        """The most and the least that the input may be, in units of what was said; nothing where it was measured."""
        if key == PRECISION and not self._may_be_halved(instance_type):
            return ()
        wrong = FACTORS[key][_origin(self.steps.workload, key)]
        return (wrong.more, 1 / wrong.less) if max(wrong) > 1.0 else ()

    def _may_be_halved(self, instance_type: InstanceType) -> bool:
        has_units = self.steps.catalog.gpu_of(instance_type).peak_flops_per_second(HALF_WIDTH) is not None
        return has_units and _value(self.steps.workload, PRECISION) == FULL_WIDTH_BITS

    def _seconds_if(self, rows: Configurations, now: Floats, key: DoubtedKey, factor: float) -> Floats:
        """Median seconds of each row, had the job file said so many times as much."""
        models = self._models_if(key, factor)
        other = _split_to_fit(rows, models.memory.largest(rows))
        if not models.steps.is_probed(rows.instance_type):
            return models.steps.median_seconds(other)
        seconds, moved = now.copy(), other.gpu_batch != rows.gpu_batch  # only another split says anything new there
        if moved.any():
            seconds[moved] = models.steps.median_seconds(other.at(moved))
        return seconds

    def _models_if(self, key: DoubtedKey, factor: float) -> _AsIf:
        if (key, factor) not in self._as_if:
            other = self._workload_if(key, factor)
            memory = MemoryModel(other, self.steps.catalog).fit(self.measurements)
            self._as_if[key, factor] = _AsIf(self.steps.as_if(other), memory)
        return self._as_if[key, factor]

    def _workload_if(self, key: DoubtedKey, factor: float) -> Workload:
        """The job file's, had it said so many times as much. At half the width the least is kept that may be."""
        workload = self.steps.workload
        if key != PRECISION:
            return workload.model_copy(update={key: getattr(workload, key) * factor})
        if factor == 1.0:
            return workload
        kept = workload.activation_bytes_per_sample * factor / UNFUSED
        return workload.model_copy(update={key: HALF_WIDTH, ACTIVATIONS: kept})


def _origin(workload: Workload, key: DoubtedKey) -> Origin:
    origin: Origin = getattr(workload.origins, key)
    return origin


def _value(workload: Workload, key: DoubtedKey) -> float:
    if key == PRECISION:
        return FULL_WIDTH_BITS if workload.precision in ("fp32", "tf32") else FULL_WIDTH_BITS / 2
    return float(getattr(workload, key))


def _strength(dependence: Dependence) -> tuple[bool, float]:
    """What would make a step slower comes first: limits are missed by that."""
    if dependence.step_factor is None:
        return True, float("inf")
    return dependence.step_factor > WORTH_NAMING, float(abs(np.log(dependence.step_factor)))


def _give_or_take(above: Floats, below: Floats) -> Prediction:
    """A factor of one, by the squared logarithms of how much more or less it may be."""
    low, high = np.exp(-np.sqrt(below)), np.exp(np.sqrt(above))
    return Prediction(p05=low, p50=np.ones_like(low), p95=high, extrapolated=np.zeros(len(low), dtype=bool))


def _split_to_fit(rows: Configurations, largest: Floats) -> Configurations:
    """The same samples in more micro-steps where so many do not fit at once; where not even one does, one by one."""
    parts = np.ceil(rows.gpu_batch / np.maximum(largest, 1.0)).astype(np.int64)
    batch = rows.gpu_batch // np.minimum(parts, rows.gpu_batch)
    samples = rows.gpu_batch * rows.accumulation_steps
    return replace(rows, gpu_batch=batch, accumulation_steps=-(-samples // batch))
