"""What would make a training fit a GPU: single changes first, from the least of them to the greatest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.inputs import Gpu, Sharding, TransformerShape
from planner.models.sharded_memory.calibration import SHIPPED, Calibration, fit_probability
from planner.models.sharded_memory.peak import peak_memory
from planner.models.sharded_memory.strategy import Strategy

_SHARDINGS: tuple[Sharding, ...] = ("zero1", "zero2", "fsdp")


class Way(NamedTuple):
    """A change, and how likely a training fits with it."""

    change: str
    probability: float


def ways_to_fit(
    shape: TransformerShape,
    strategy: Strategy,
    gpu: Gpu,
    *,
    larger: Sequence[Gpu],
    confidence: float,
    varying: bool,
    calibration: Calibration = SHIPPED,
) -> list[Way]:
    """The least change of each kind that is enough: sharding, recomputation, micro-batch, both at once, LoRA, GPU."""

    def chance(changed: Strategy, memory_gib: float = gpu.memory_gib) -> float:
        total = peak_memory(shape, changed).parts.total
        return fit_probability(total, memory_gib, varying=varying, calibration=calibration)

    found: dict[str, Way] = {}
    for kind, words, changed in _changes(strategy):
        if kind not in found and (probability := chance(changed)) >= confidence:
            found[kind] = Way(words, probability)
    if {"sharding", "recompute", "micro-batch"} & found.keys():
        found.pop("together", None)
    for other in sorted((one for one in larger if one.memory_gib > gpu.memory_gib), key=lambda one: one.memory_gib):
        if (probability := chance(strategy, other.memory_gib)) >= confidence:
            found["gpu"] = Way(f"a GPU of {other.memory_gib:.0f} GiB ({other.name})", probability)
            break
    return list(found.values())


def _changes(strategy: Strategy) -> Iterator[tuple[str, str, Strategy]]:
    shardable = strategy.data_parallel > 1 and not strategy.is_gathered
    already = _SHARDINGS.index(strategy.sharding) + 1 if strategy.sharding in _SHARDINGS else 0
    if shardable:
        for sharding in _SHARDINGS[already:]:
            yield "sharding", f"--strategy {sharding}", replace(strategy, sharding=sharding)
    if strategy.recompute == "none":
        yield "recompute", "--recompute selective", replace(strategy, recompute="selective")
    if strategy.recompute != "full":
        yield "recompute", "--recompute full", replace(strategy, recompute="full")
    for size in _halves(strategy.micro_batch):
        yield "micro-batch", f"--micro-batch {size}", _smaller(strategy, size)
    leanest = replace(strategy, recompute="full", sharding="fsdp" if shardable else strategy.sharding)
    words = " ".join((*(("--strategy fsdp",) if shardable else ()), "--recompute full"))
    for size in (strategy.micro_batch, *_halves(strategy.micro_batch)):
        smaller = f" --micro-batch {size}" if size < strategy.micro_batch else ""
        yield "together", words + smaller, _smaller(leanest, size)
    if strategy.training == "full":
        yield "training", "--training lora", replace(strategy, training="lora")
    if strategy.training != "qlora":
        yield "training", "--training qlora", replace(strategy, training="qlora")
        yield "training", f"--training qlora {words}", replace(leanest, training="qlora")


def _halves(micro_batch: int) -> list[int]:
    sizes = []
    while micro_batch > 1:
        micro_batch //= 2
        sizes.append(micro_batch)
    return sizes


def _smaller(strategy: Strategy, micro_batch: int) -> Strategy:
    """As many samples in a step."""
    steps = strategy.accumulation * strategy.micro_batch // micro_batch
    return replace(strategy, micro_batch=micro_batch, accumulation=steps)
