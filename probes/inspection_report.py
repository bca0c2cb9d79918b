"""What was seen of a script, as numbers; and of each number that is missing, why."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

from probes import cluster
from probes.as_on_gpu import AsOnGpu
from probes.input_cost import dataset_samples, input_cost
from probes.other_batches import Call, constant_bytes
from probes.spared_products import SparedProducts
from probes.work import WorkWatch

_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_SEVERAL = "the script steps several optimizers in turn, and their work is not taken apart"
_NO_STEP = "no optimizer stepped before the script ended, or its time was over"
_UNCOUNTED = "its samples cannot be counted from the calls of its model; say --samples-per-step N"


@dataclass(frozen=True, slots=True)
class SecondMicroStep:
    """From the end of the first backward to the end of the second."""

    samples: int | None
    kept_bytes: int
    calls: list[Call]


@dataclass(slots=True)
class Sighting:
    """What the hooks saw."""

    modules: dict[int, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[int, Optimizer] = field(default_factory=dict)
    in_turn: bool = False  # each after a backward of its own
    fetched_from: DataLoader[Any] | None = None
    loader: DataLoader[Any] | None = None
    second: SecondMicroStep | None = None
    samples_of_step: int | None = None
    micro_steps: int = 0  # of the last optimizer step


@dataclass(slots=True)
class _Findings:
    """The report as it grows: a value, or the reason why there is none."""

    values: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def say(self, key: str, value: Any, why_not: str) -> None:
        if value is None:
            self.missing[key] = why_not
        else:
            self.values[key] = value


def report(seen: Sighting, work: WorkWatch, as_on_gpu: AsOnGpu, samples_per_step: int | None) -> dict[str, Any]:
    found = _Findings()
    _sizes(found, seen)
    samples = _batch(found, seen, samples_per_step)
    _optimizer(found, seen)
    _precision(found, work, as_on_gpu.autocast_dtype)
    _flops(found, seen, work, samples)
    _activations(found, seen, samples, work.products)
    _input(found, seen.loader)
    return {
        **found.values,
        "missing": found.missing,
        "notes": as_on_gpu.notes(),
        "device": cluster.hardware(cluster.this_place())["gpu"] or "cpu",
        "software": cluster.software(),
    }


def _sizes(found: _Findings, seen: Sighting) -> None:
    of_models = {id(parameter): parameter for module in seen.modules.values() for parameter in module.parameters()}
    groups = [group for optimizer in seen.optimizers.values() for group in optimizer.param_groups]
    everything = of_models | {id(parameter): parameter for group in groups for parameter in group["params"]}
    trainable = [parameter for parameter in everything.values() if parameter.requires_grad]
    count = sum(parameter.numel() for parameter in trainable)
    found.values["trainable_parameters"] = count
    found.values["frozen_parameters"] = sum(parameter.numel() for parameter in everything.values()) - count
    found.values["gradient_bytes"] = sum(_gradient_bytes(parameter) for parameter in trainable)
    found.say("checkpoint_bytes", _checkpoint_bytes(seen) if seen.optimizers else None, _NO_STEP)


def _gradient_bytes(parameter: torch.Tensor) -> int:
    return parameter.numel() * (parameter if parameter.grad is None else parameter.grad).element_size()


def _checkpoint_bytes(seen: Sighting) -> int:
    """Of a file with the states of model and optimizer, as scripts write it."""
    models = [m.module if isinstance(m, DistributedDataParallel) else m for m in seen.modules.values()]
    sink = _Sink()
    states: Iterable[Any] = [part.state_dict() for part in (*models, *seen.optimizers.values())]
    torch.save(list(states), sink)  # type: ignore[arg-type]
    return sink.bytes


class _Sink(io.RawIOBase):
    """Takes everything and keeps nothing but the number of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written = memoryview(data).nbytes
        self.bytes += written
        return written


def _batch(found: _Findings, seen: Sighting, stated: int | None) -> int | None:
    """The samples of the second micro-step, by which everything is divided."""
    micro_steps = 0 if seen.in_turn else seen.micro_steps
    found.say("accumulation_steps", micro_steps or None, _SEVERAL if seen.in_turn else _NO_STEP)
    of_step = stated if stated is not None else seen.samples_of_step
    found.say("samples_per_step", of_step, _UNCOUNTED if seen.optimizers else _NO_STEP)
    own, why_not = None if seen.second is None else seen.second.samples, _UNCOUNTED
    if seen.in_turn:
        own, why_not = None, _SEVERAL
    elif stated is not None:
        own = stated // micro_steps if micro_steps and stated % micro_steps == 0 else None
        why_not = "its micro-steps differ from each other"
    found.say("gpu_batch", own, why_not)
    return own


def _optimizer(found: _Findings, seen: Sighting) -> None:
    first = next(iter(seen.optimizers.values()), None)
    found.say("optimizer", None if first is None else type(first).__name__, _NO_STEP)
    if first is not None:
        momentum = max((float(group.get("momentum") or 0.0) for group in first.param_groups), default=0.0)
        found.values["momentum"] = momentum


def _precision(found: _Findings, work: WorkWatch, gpu_autocast: torch.dtype | None) -> None:
    """That of most of the flops."""
    dtype = work.flops.most_common(1)[0][0] if work.flops else None
    if gpu_autocast is not None and dtype is torch.bfloat16:
        dtype = gpu_autocast  # as the script would have it on a GPU
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest":
        found.values["precision"] = "tf32"
        return
    named = None if dtype is None else _named(dtype)
    found.say("precision", named, "no matrix multiplication was seen" if dtype is None else f"{dtype} has no name here")


def _named(dtype: torch.dtype) -> str | None:
    return "fp8" if "float8" in str(dtype) else _PRECISIONS.get(dtype)


def _flops(found: _Findings, seen: Sighting, work: WorkWatch, samples: int | None) -> None:
    total = sum(work.flops.values())
    why_not = None
    if seen.in_turn:
        why_not = _SEVERAL
    elif work.without_formula:
        why_not = f"torch has no formula for {', '.join(sorted(work.without_formula)[:3])}"
    elif not total:
        why_not = "no matrix multiplication was seen"
    elif samples is None:
        why_not = _UNCOUNTED
    found.say("flops_per_sample", None if why_not or not samples else total / samples, why_not or "")


def _activations(found: _Findings, seen: Sighting, samples: int | None, products: SparedProducts | None) -> None:
    second = seen.second
    if seen.in_turn or samples is None or second is None:
        found.missing["activation_bytes_per_sample"] = _SEVERAL if seen.in_turn else _UNCOUNTED
        return
    constant = 0.0
    try:
        if second.calls:
            constant = constant_bytes(second.calls, samples, products)
            found.values["constant_bytes"] = constant
        else:
            found.missing["constant_bytes"] = "the script trains without a module, which could be asked for more"
    except Exception as error:  # whatever a model says to another batch
        reason = f"{type(error).__name__}: {error}"[:200]
        found.missing["constant_bytes"] = f"the model refuses another batch than the script's ({reason})"
    if not 0 <= constant < max(second.kept_bytes, 1):
        found.values.pop("constant_bytes", None)
        found.missing["constant_bytes"] = "what the model keeps does not grow in proportion to the batch"
        constant = 0.0
    found.values["activation_bytes_per_sample"] = (second.kept_bytes - constant) / samples


def _input(found: _Findings, loader: DataLoader[Any] | None) -> None:
    keys = ("dataset_samples", "input_cpu_seconds_per_sample", "input_bytes_per_sample")
    if loader is None:
        for key in keys:
            found.missing[key] = "the script trains without torch's DataLoader"
        return
    found.say(keys[0], dataset_samples(loader), "its data set does not know how many samples it has")
    try:
        cost = input_cost(loader)
    except Exception as error:  # a data set may need its workers
        reason = f"fetching a batch without workers fails ({type(error).__name__}: {error})"[:200]
        found.missing |= dict.fromkeys(keys[1:], reason)
        return
    found.say(keys[1], cost and cost.cpu_seconds_per_sample, "the samples of its batches cannot be counted")
    read = None if cost is None or not cost.read_bytes_per_sample else cost.read_bytes_per_sample
    in_memory = "nothing was read while loading: the data is in memory, or its files are mapped into it"
    found.say(keys[2], read if read and read >= 1 else None, in_memory)
