"""How much gradients of small batches differ from each other: the gradient noise scale, in samples.

From gradients g_k of b samples each and their mean over K of them (B = K*b):

    |G|^2     = (B*|mean|^2 - b*avg|g_k|^2) / (B - b)
    tr(Sigma) = (avg|g_k|^2 - |mean|^2) / (1/b - 1/B)         noise scale = tr(Sigma) / |G|^2

Numerator and denominator are averaged apart over groups and divided last: the ratio of averages is the noise, the
average of ratios is not. Parameters must not move meanwhile, or it is training that is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from probes.sharded import whole

LEAST_GROUP = 4  # gradients per group: fewer tell the mean and the spread apart too poorly
GOOD_ENOUGH = 0.20  # half-width of the interval over the estimate


@dataclass(frozen=True, slots=True)
class GradientGroup:
    """K gradients of `batch` samples each, taken at the same parameters."""

    count: int
    batch: int
    mean_squared_norm: float
    squared_norm_of_mean: float

    @property
    def signal(self) -> float:
        """|G|^2, unbiased."""
        whole = self.count * self.batch
        return (whole * self.squared_norm_of_mean - self.batch * self.mean_squared_norm) / (whole - self.batch)

    @property
    def variance(self) -> float:
        """tr(Sigma) of a single sample's gradient, unbiased."""
        whole = self.count * self.batch
        return (self.mean_squared_norm - self.squared_norm_of_mean) / (1 / self.batch - 1 / whole)


@dataclass(frozen=True, slots=True)
class NoiseEstimate:
    """In samples, with a 90 % interval; `reached` says whether it is narrow enough to use."""

    scale: float
    low: float
    high: float
    groups: int

    @property
    def reached(self) -> bool:
        return math.isfinite(self.scale) and (self.high - self.low) / 2 <= GOOD_ENOUGH * self.scale


def estimate(groups: Sequence[GradientGroup]) -> NoiseEstimate:
    """The ratio of sums, and a jackknife over the groups on its logarithm for the interval."""
    usable = [group for group in groups if math.isfinite(group.mean_squared_norm)]
    signals, variances = [group.signal for group in usable], [group.variance for group in usable]
    signal, variance = sum(signals), sum(variances)
    scale = _ratio(signal, variance)
    if len(usable) < 2 or not math.isfinite(scale):
        return NoiseEstimate(scale=scale, low=0.0, high=math.inf, groups=len(usable))
    without = [_ratio(signal - one, variance - other) for one, other in zip(signals, variances, strict=True)]
    if not all(math.isfinite(value) for value in without):
        return NoiseEstimate(scale=scale, low=0.0, high=math.inf, groups=len(usable))
    logs = [math.log(value) for value in without]
    centre = sum(logs) / len(logs)
    error = math.sqrt((len(logs) - 1) / len(logs) * sum((value - centre) ** 2 for value in logs))
    factor = math.exp(_student_t95(len(logs) - 1) * error)
    return NoiseEstimate(scale=scale, low=scale / factor, high=scale * factor, groups=len(usable))


def _student_t95(degrees: int) -> float:
    """Its 95 % quantile, to 0.2 % from seven degrees on: few groups know their own spread poorly."""
    z = 1.6449
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def _ratio(signal: float, variance: float) -> float:
    return variance / signal if signal > 0 and variance > 0 else math.inf


class GradientCollector:
    """Takes each process's gradient, one micro-batch after the other, until a group is complete.

    Several processes and several micro-batches of one process count alike: K = processes x micro-batches. Where
    parameters are sharded a gradient is the mean over all processes before anybody sees it: K = micro-batches alone,
    of as many more samples.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], batch: int, *, are_means: bool = False) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.batch = batch
        self.are_means = are_means or not dist.is_initialized()
        self.world_size = 1 if self.are_means else dist.get_world_size()
        self.micro_batches = max(math.ceil(LEAST_GROUP / self.world_size), 1)
        self.groups: list[GradientGroup] = []
        self._sums: list[torch.Tensor] = []
        self._squared_norms: list[torch.Tensor] = []

    def take(self) -> None:
        """The gradients that are in `.grad` now."""
        gradients = [self._gradient(parameter) for parameter in self.parameters]
        self._squared_norms.append(_squared_norm(gradients))
        if self._sums:
            for total, gradient in zip(self._sums, gradients, strict=True):
                total += gradient
        else:
            self._sums = [gradient.clone() for gradient in gradients]
        if len(self._squared_norms) == self.micro_batches:
            self.groups.append(self._group())
            self._sums, self._squared_norms = [], []

    def _gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return gradient.detach().float()

    def _group(self) -> GradientGroup:
        count = self.world_size * self.micro_batches
        norms = torch.stack(self._squared_norms).sum()
        if not self.are_means:
            dist.all_reduce(norms)
            for total in self._sums:
                dist.all_reduce(total)
        mean = [total / count for total in self._sums]
        return GradientGroup(
            count=count,
            batch=self.batch,
            mean_squared_norm=float(norms) / count,
            squared_norm_of_mean=float(_squared_norm(mean)),
        )


def _squared_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """In double precision: the estimate is a small difference of large norms."""
    return torch.stack([whole(tensor.double().square().sum()) for tensor in tensors]).sum()
