"""Watches a training script that knows nothing of it: its optimizer's steps, its model, its data loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from probes.cluster import Place, join
from probes.counting import BackwardWatch, SampleCounter, watch_backward


class Instrument:
    """Calls back before and after every optimizer step; knows the model once it has been called."""

    def __init__(self, place: Place, before_step: Callable[[], None], after_step: Callable[[], None]) -> None:
        self.place = place
        self.counter = SampleCounter()
        self.optimizer: Optimizer | None = None
        self.model: torch.nn.Module | None = None
        self.parallel: DistributedDataParallel | None = None
        self.data_wait_seconds = 0.0
        self._before_step, self._after_step = before_step, after_step

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._step_begins)
        register_optimizer_step_post_hook(self._step_ends)
        _watch_calls(self, watch_backward(self.counter))
        _time_data_loading(self)

    def synchronize_gradients(self, wanted: bool) -> None:
        """Steps with and without communication, from the same script: their difference is what it exposes."""
        if self.parallel is not None:
            self.parallel.require_backward_grad_sync = wanted

    def parameters(self) -> list[torch.nn.Parameter]:
        groups = self.optimizer.param_groups if self.optimizer else []
        return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]

    def model_is_called(self, module: torch.nn.Module) -> None:
        """The first that is trained is the model; with several processes it is then spread over them."""
        if self.model is not None:
            return
        if isinstance(module, DistributedDataParallel):
            self.parallel, self.model = module, module.module
        else:
            self.model = module
            join(self.place)
            if self.place.world_size > 1:
                self.parallel = _route_through_ddp(module, self.place)

    def _step_begins(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.optimizer = self.optimizer or optimizer
        if optimizer is self.optimizer:  # a script with several optimizers steps them all once per step
            self._before_step()

    def _step_ends(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        last = self.counter.last
        self.counter.end_step()
        if optimizer is not self.optimizer:
            self.counter.last = last  # the work of another optimizer is no part of this one's step
        else:
            self._after_step()


def _watch_calls(instrument: Instrument, backward: BackwardWatch) -> None:
    """Tells of the outermost modules that are trained; what they call in turn costs what it always did."""
    original = torch.nn.Module.__call__
    trained: WeakSet[torch.nn.Module] = WeakSet()

    def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or backward.running or not _is_trained(module, trained):
            return original(module, *args, **kwargs)
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]  # its parts are not the model
        try:
            instrument.model_is_called(module)
            instrument.counter.called(module, [*args, *kwargs.values()])
            return module(*args, **kwargs)
        finally:
            torch.nn.Module.__call__ = watched  # type: ignore[method-assign]

    torch.nn.Module.__call__ = watched  # type: ignore[method-assign]


def _is_trained(module: torch.nn.Module, trained: WeakSet[torch.nn.Module]) -> bool:
    """In training mode, with gradients, and with something to learn: losses, teachers and tests are not."""
    if not (module.training and torch.is_grad_enabled()):
        return False
    if module not in trained and any(parameter.requires_grad for parameter in module.parameters()):
        trained.add(module)
    return module in trained


def _route_through_ddp(module: torch.nn.Module, place: Place) -> DistributedDataParallel:
    """The script keeps calling its module; the call goes through DDP, which calls the module's own forward."""
    own_forward = module.forward
    parallel = DistributedDataParallel(module, device_ids=[place.local_rank] if torch.cuda.is_available() else None)
    inside = False

    def forward(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return own_forward(*args, **kwargs)
        inside = True
        try:
            return parallel(*args, **kwargs)
        finally:
            inside = False

    module.forward = forward
    return parallel


def _time_data_loading(instrument: Instrument) -> None:
    original: Callable[[Any], Iterator[Any]] = DataLoader.__iter__

    def timed(loader: Any) -> Iterator[Any]:
        batches = original(loader)
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            instrument.data_wait_seconds += time.perf_counter() - start
            yield batch

    DataLoader.__iter__ = timed  # type: ignore[method-assign,assignment]
