"""Watches a training script that knows nothing of it: its optimizer's steps, its model, its data loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from probes.cluster import Place, join


class Instrument:
    """Calls back before and after every optimizer step; knows the model once it has been called."""

    def __init__(self, place: Place, before_step: Callable[[], None], after_step: Callable[[], None]) -> None:
        self.place = place
        self.optimizer: Optimizer | None = None
        self.model: torch.nn.Module | None = None
        self.parallel: DistributedDataParallel | None = None
        self.data_wait_seconds = 0.0
        self._before_step, self._after_step = before_step, after_step

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._step_begins)
        register_optimizer_step_post_hook(self._step_ends)
        _watch_first_call(self._model_is_called)
        _time_data_loading(self)

    def synchronize_gradients(self, wanted: bool) -> None:
        """Steps with and without communication, from the same script: their difference is what it exposes."""
        if self.parallel is not None:
            self.parallel.require_backward_grad_sync = wanted

    def parameters(self) -> list[torch.nn.Parameter]:
        groups = self.optimizer.param_groups if self.optimizer else []
        return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]

    def _model_is_called(self, module: torch.nn.Module) -> bool:
        """Whether this is the model that is trained; with several processes it is then spread over them."""
        if not module.training or not any(parameter.requires_grad for parameter in module.parameters()):
            return False
        if isinstance(module, DistributedDataParallel):
            self.parallel, self.model = module, module.module
        else:
            self.model = module
            join(self.place)
            if self.place.world_size > 1:
                self.parallel = _route_through_ddp(module, self.place)
        return True

    def _step_begins(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.optimizer = self.optimizer or optimizer
        if optimizer is self.optimizer:  # a script with several optimizers steps them all once per step
            self._before_step()

    def _step_ends(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if optimizer is self.optimizer:
            self._after_step()


def _watch_first_call(is_the_model: Callable[[torch.nn.Module], bool]) -> None:
    """Until the model is found, look at every module that is called; afterwards calls cost what they always did."""
    original = torch.nn.Module.__call__

    def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]  # its parts are not the model
        found = is_the_model(module)
        result = module(*args, **kwargs)
        if not found:
            torch.nn.Module.__call__ = watched  # type: ignore[method-assign]
        return result

    torch.nn.Module.__call__ = watched  # type: ignore[method-assign]


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
