"""The gradient noise of a model while it is trained, without a step that is lost.

Several processes: each one's gradient before DDP averages them, and their mean, at the same parameters; a
communication hook sees both, before the script clips anything. One process: the gradients of two steps that follow each
other stand for two at the same parameters. What the step between them moved is taken for noise, so the estimate is
high where steps are large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from probes.counting import StepCount
from probes.instrument import Instrument
from probes.noise import GradientGroup


class MovingCollector:
    """Groups of gradients, one step after the other, between `begin` and `end`."""

    def __init__(self, parameters: Callable[[], list[torch.nn.Parameter]], batch: int, *, is_spread: bool) -> None:
        self.groups: list[GradientGroup] = []
        self._parameters, self._batch, self._is_spread = parameters, batch, is_spread
        self._is_on = False
        self._own: list[torch.Tensor] = []  # squared norms of buckets of this process's gradient
        self._mean: list[torch.Tensor] = []  # and of the mean over all processes
        self._before: list[torch.Tensor] | None = None  # gradients of the step before, of one process alone

    @classmethod
    def of(cls, instrument: Instrument, asked: StepCount) -> Self | None:
        """None where nobody can see both: shards, micro-steps, or a communication hook of the script's own."""
        if instrument.is_sharded or asked.micro_steps != 1 or not asked.samples:
            return None
        found = cls(instrument.parameters, asked.samples, is_spread=instrument.place.world_size > 1)
        if not found._is_spread:
            return found
        if instrument.parallel is None:
            return None
        try:
            instrument.parallel.register_comm_hook(None, lambda _state, bucket: found._hook(bucket))
        except RuntimeError:
            return None
        return found

    def begin(self) -> None:
        self.groups, self._is_on, self._before = [], True, None
        self._own, self._mean = [], []

    def end(self) -> None:
        self._is_on, self._before = False, None

    def take(self, *, wanted: bool) -> None:
        """Before the optimizer steps; steps of another size are left out."""
        if not self._is_on:
            return
        group = self._of_processes() if self._is_spread else self._of_two_steps(wanted=wanted)
        if group is not None and wanted:
            self.groups.append(group)

    def _of_processes(self) -> GradientGroup | None:
        own, mean, self._own, self._mean = self._own, self._mean, [], []
        if not own or not mean:
            return None
        norms, count = torch.stack(own).sum(), dist.get_world_size()
        dist.all_reduce(norms)
        return GradientGroup(
            count=count,
            batch=self._batch,
            mean_squared_norm=float(norms) / count,
            squared_norm_of_mean=float(torch.stack(mean).sum()),
        )

    def _of_two_steps(self, *, wanted: bool) -> GradientGroup | None:
        now = [parameter.grad.detach().clone() for parameter in self._parameters() if parameter.grad is not None]
        before, self._before = self._before, now if wanted else None
        if before is None or len(before) != len(now):
            return None
        self._before = None  # each gradient is in one pair only
        norms = [sum(float(_squared(tensor)) for tensor in each) for each in (before, now)]
        mean = sum(float(_squared((one + other) / 2)) for one, other in zip(before, now, strict=True))
        return GradientGroup(count=2, batch=self._batch, mean_squared_norm=sum(norms) / 2, squared_norm_of_mean=mean)

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self._is_on:
            self._own.append(_squared(bucket.buffer()))
        averaged = allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
        return averaged.then(self._seen)

    def _seen(self, averaged: torch.futures.Future[Any]) -> torch.Tensor:
        value: torch.Tensor = averaged.value()
        if self._is_on:
            self._mean.append(_squared(value))
        return value


def _squared(tensor: torch.Tensor) -> torch.Tensor:
    """In double precision: the estimate is a small difference of large norms."""
    return tensor.detach().double().square().sum()
