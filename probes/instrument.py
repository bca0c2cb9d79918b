"""Watches a training script that knows nothing of it: its optimizer's steps, its model, its data loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from probes.cluster import Place, join
from probes.counting import BackwardWatch, SampleCounter, watch_backward
from probes.ending import end
from probes.loading import Loading
from probes.sharded import is_sharded


class Instrument:
    """Calls back before and after every optimizer step; knows the model once it has been called.

    A script may have several optimizers. The first to step marks the steps. Others either step with it, each with
    parameters of its own and all after one backward, or in turn, each after a backward of its own.
    """

    def __init__(
        self,
        place: Place,
        before_step: Callable[[], None],
        after_step: Callable[[], None],
        after_other_step: Callable[[], None] = lambda: None,
        *,
        script_spreads: bool = False,
    ) -> None:
        self.place = place
        self.script_spreads = script_spreads  # the model over the processes, so that nobody else has to
        self.finished = False  # and the script was asked to end
        self.recomputes = False  # what it had computed before, during a backward
        self.counter = SampleCounter()
        self.optimizer: Optimizer | None = None
        self.steps_with_it: list[Optimizer] = []
        self.steps_in_turn = False
        self.model: torch.nn.Module | None = None
        self._whole: torch.nn.Module | None = None
        self.parallel: DistributedDataParallel | None = None
        self.loading = Loading()
        self._before_step, self._after_step, self._after_other_step = before_step, after_step, after_other_step
        self._in_step = False

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._step_begins)
        register_optimizer_step_post_hook(self._step_ends)
        _watch_calls(self, watch_backward(self.counter))
        self.loading.install()

    def synchronize_gradients(self, wanted: bool) -> None:
        """Steps with and without communication, from the same script: their difference is what it exposes."""
        if self.parallel is not None:
            self.parallel.require_backward_grad_sync = wanted

    def optimizers(self) -> list[Optimizer]:
        """Of one step."""
        return [*([self.optimizer] if self.optimizer else []), *self.steps_with_it]

    def parameters(self) -> list[torch.nn.Parameter]:
        groups = [group for optimizer in self.optimizers() for group in optimizer.param_groups]
        return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]

    def end_if_finished(self) -> None:
        """A script that catches whatever comes has caught that it is to end, too, and goes on."""
        if self.finished:
            end(0)

    def called(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model_is_called(module)
        self.counter.called(module, [*args, *kwargs.values()])

    def model_is_called(self, module: torch.nn.Module) -> None:
        """The first that is trained is the model; with several processes it is then spread over them."""
        if self.model is not None:
            return
        if isinstance(module, DistributedDataParallel):
            self.parallel, self.model = module, module.module
        else:
            self.model = self._whole_of(module)
            join(self.place)
            if self.place.world_size > 1 and not self.is_sharded and not self.script_spreads:
                self.parallel = _route_through_ddp(module, self.place)

    def whole_is(self, module: torch.nn.Module) -> None:
        """A library trains it, though the script may call its parts one by one."""
        self._whole = module

    def _whole_of(self, module: torch.nn.Module) -> torch.nn.Module:
        whole = self._whole
        return whole if whole is not None and any(part is module for part in whole.modules()) else module

    @property
    def is_sharded(self) -> bool:
        return self.model is not None and is_sharded(self.model)

    def _step_begins(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.end_if_finished()
        self.optimizer = self.optimizer or optimizer
        if optimizer is self.optimizer:
            self._in_step = True
            self._before_step()
        elif self._in_step:
            return  # a part of the other: PyTorch's optimizer of ZeRO has one inside
        elif self.counter.is_under_way:
            self.steps_in_turn = True
        elif all(optimizer is not other for other in self.steps_with_it):
            self.steps_with_it.append(optimizer)

    def _step_ends(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._in_step and optimizer is not self.optimizer:
            return
        self._in_step = False
        last = self.counter.last
        self.counter.end_step()
        if optimizer is not self.optimizer:
            self.counter.last = last  # the work of another optimizer is no part of this one's step
            self._after_other_step()
        else:
            self._after_step()


def _watch_calls(instrument: Instrument, backward: BackwardWatch) -> None:
    """Tells of the outermost modules that are trained; what they call in turn costs what it always did."""
    original = torch.nn.Module.__call__
    trained: WeakSet[torch.nn.Module] = WeakSet()

    def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if backward.running:
            instrument.recomputes = True
            return original(module, *args, **kwargs)
        if torch.compiler.is_compiling() or not _is_trained(module, trained):
            return original(module, *args, **kwargs)
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]  # its parts are not the model
        try:
            instrument.end_if_finished()
            instrument.called(module, args, kwargs)
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
