"""Lets a script build and train a model of any size, on any number of processes, on a machine that could hold neither.

Its parameters are given sizes and no memory as they are made, and so is whatever is computed of them; the data stay
real, so that a data loader finds what it looks for. The other processes are pretended. Kernels that keep other tensors
on a processor than on a GPU are replaced, by operators that keep what a GPU's do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from probes.allocations import BETWEEN, AllocationWatch
from probes.cluster import Place
from probes.counting import SampleCounter

_IN_FULL_PRECISION = ("layer_norm", "rms_norm", "softmax", "log_softmax", "cross_entropy", "nll_loss")  # of autocast

LOSS = "loss"  # what the script computes of the model's output


class Buckets(nn.Module):
    """Stands for DistributedDataParallel, whose buckets are made in C++: they hold every gradient once more."""

    def __init__(self, module: nn.Module, *_: Any, gradient_as_bucket_view: bool = False, **__: Any) -> None:
        super().__init__()
        self.module, self.static_graph, self.require_backward_grad_sync = module, False, True
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._buckets = [] if gradient_as_bucket_view else [torch.empty_like(parameter) for parameter in trained]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def no_sync(self) -> Any:
        return nullcontext()


def pretend_processes(place: Place) -> None:
    """Whoever wants to meet the others has met them; what they would send has the right size."""
    from torch.distributed._tools import fake_collectives  # noqa: F401  (rules of sizes, registered by its import)
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def pretend(*_: Any, **__: Any) -> None:
        if not dist.is_initialized():
            meet("fake", store=FakeStore(), rank=place.rank, world_size=place.world_size)

    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        del backend  # whichever was asked for
        return make_group(ranks, timeout, "fake", *args, **kwargs)

    meet, make_group = dist.init_process_group, dist.new_group
    dist.init_process_group, dist.new_group = pretend, group
    nn.parallel.DistributedDataParallel = Buckets  # type: ignore[misc,assignment]
    nn.parallel.distributed.DistributedDataParallel = Buckets  # type: ignore[misc,assignment]


def give_sizes_alone(watch: AllocationWatch, counter: SampleCounter, stepped: Callable[[Optimizer], None]) -> None:
    """To every parameter from now on, and to what models, backward passes and optimizers make: to the script's end."""
    _parameters(watch)
    _moved_models(watch)
    _resized_storages(watch)
    _calls(watch, counter)
    _backward(watch, counter)
    _steps(watch, stepped)
    _as_on_gpu()


def _parameters(watch: AllocationWatch) -> None:
    made = nn.Parameter.__new__

    def without_memory(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if isinstance(data, torch.Tensor) and type(data) in (torch.Tensor, nn.Parameter):
            data = watch.without_memory(data.detach())
        return made(cls, data, requires_grad)

    nn.Parameter.__new__ = without_memory  # type: ignore[method-assign]


def _moved_models(watch: AllocationWatch) -> None:
    """PyTorch swaps the inside of a parameter that it casts, which one without memory does not allow."""
    original = nn.Module._apply
    cast: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # by the one that was: tied weights stay tied
    depth = 0

    def moved(parameter: nn.Parameter, function: Callable[[torch.Tensor], torch.Tensor]) -> nn.Parameter:
        if id(parameter) not in cast:
            with torch.no_grad(), watch.within(watch.phase):
                made = function(parameter.detach())
            same = made.dtype == parameter.dtype
            cast[id(parameter)] = parameter, parameter if same else nn.Parameter(made, parameter.requires_grad)
        return cast[id(parameter)][1]

    def apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        nonlocal depth
        own, depth = module._parameters, depth + 1
        module._parameters = {name: each for name, each in own.items() if not isinstance(each, FakeTensor)}
        original(module, fn, recurse)  # type: ignore[no-untyped-call]
        real = module._parameters
        module._parameters = {
            name: moved(each, fn) if isinstance(each, FakeTensor) else real[name] for name, each in own.items()
        }
        depth -= 1
        if not depth:
            cast.clear()
        return module

    nn.Module._apply = apply  # type: ignore[method-assign]


def _resized_storages(watch: AllocationWatch) -> None:
    original = torch.UntypedStorage.resize_

    def resize(storage: Any, size: int) -> Any:
        result = original(storage, size)
        watch.resized(storage)
        return result

    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]


def _calls(watch: AllocationWatch, counter: SampleCounter) -> None:
    """What it took to build the model is over with the first that trains it."""
    original, building = nn.Module.__call__, True

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal building
        if watch.phase not in (BETWEEN, LOSS) or not _is_trained(module):
            with watch.within(watch.phase):
                return original(module, *args, **kwargs)
        if building:
            watch.forget_peak()
            building = False
        counter.called(module, [*args, *kwargs.values()])
        try:
            with watch.within("forward pass"):
                return original(module, *args, **kwargs)
        finally:
            watch.phase = LOSS

    nn.Module.__call__ = call  # type: ignore[method-assign]


def _is_trained(module: nn.Module) -> bool:
    learns = module.training and torch.is_grad_enabled()
    return learns and any(parameter.requires_grad for parameter in module.parameters())


def _backward(watch: AllocationWatch, counter: SampleCounter) -> None:
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        if watch.phase == "backward pass":  # what was not kept is computed again
            original(*args, **kwargs)
            return
        with watch.within("backward pass"):
            original(*args, **kwargs)
        watch.phase = BETWEEN
        counter.went_backward()

    torch.autograd.backward = backward


def _steps(watch: AllocationWatch, stepped: Callable[[Optimizer], None]) -> None:
    """As on a GPU, where an optimizer steps over all parameters at once if nobody says otherwise."""
    steps = []

    def begins(*_: Any) -> None:
        steps.append(watch.within("optimizer step"))
        steps[-1].__enter__()

    def ends(optimizer: Optimizer, *_: Any) -> None:
        steps.pop().__exit__(None, None, None)
        stepped(optimizer)

    register_optimizer_step_pre_hook(begins)
    register_optimizer_step_post_hook(ends)
    module: Any = sys.modules[Optimizer.__module__]  # torch.optim hides it
    devices = module._get_foreach_kernels_supported_devices()
    module._get_foreach_kernels_supported_devices = lambda: [*devices, "cpu"]


def _as_on_gpu() -> None:
    """A GPU's dropout keeps a mask of bytes, its RMS norm the input alone, and autocast some functions in fp32."""
    dropout, rms_norm = functional.dropout, functional.rms_norm

    def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if p > 0 and training and not inplace:
            return torch.native_dropout(input, p, True)[0]
        return dropout(input, p, training, inplace)

    def norm(input: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:  # noqa: A002
        if isinstance(input, FakeTensor) and (weight is None or weight.dtype == input.dtype):
            return torch.ops.aten._fused_rms_norm(input, shape, weight, eps)[0]
        return rms_norm(input, shape, weight, eps)

    functional.dropout, functional.rms_norm = drop, norm  # type: ignore[assignment]
    for name in _IN_FULL_PRECISION:
        setattr(functional, name, _in_full_precision(getattr(functional, name)))


def _in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        if torch.is_autocast_enabled("cpu") and input.dtype in (torch.bfloat16, torch.float16):
            input = input.float()  # noqa: A001
        return function(input, *args, **kwargs)

    return call
