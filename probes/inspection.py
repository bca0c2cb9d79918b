"""Inspects a training script that knows nothing of it, by its own first steps.

The first micro-step warms up. The second, from the end of one backward to the end of the next, is counted operator by
operator. When it is over and the optimizer has stepped, the rest is looked up and the script is ended. What cannot be
found is not guessed: the report says why it is missing.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

from probes.as_on_gpu import AsOnGpu
from probes.cluster import Place
from probes.counting import BackwardWatch, SampleCounter
from probes.inspection_report import SecondMicroStep, Sighting, report
from probes.instrument import Instrument
from probes.other_batches import Autocast, Call, input_bytes, own_tensors
from probes.session import ProbeFinished
from probes.spared_products import SparedProducts
from probes.work import WorkWatch


class Inspection(Instrument):
    """Told of calls, backwards and optimizer steps; ends the script as soon as it has seen enough."""

    def __init__(
        self,
        place: Place,
        output: Path,
        *,
        longest_seconds: float,
        samples_per_step: int | None,
        products: SparedProducts | None,
    ) -> None:
        super().__init__(place, lambda: None, self._optimizer_stepped)
        self._output, self._samples_per_step = output, samples_per_step
        self._ends_at = time.monotonic() + longest_seconds
        self._as_on_gpu = AsOnGpu()
        self._seen = Sighting()
        self._work = WorkWatch(products)
        self._watching = False
        self._micro_steps = 0  # each is a call of a model and the backward after it; without a model, a backward
        self._micro_steps_before = 0  # the last optimizer step
        self._calls: list[Call] = []  # since the last backward
        self._second = SampleCounter()
        self._kept_bytes = 0
        self._stepping = False
        self._over = False

    def install(self) -> None:
        super().install()
        self._as_on_gpu.install()
        _watch_backward(self)
        _watch_loaders(self._seen)

    def called(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._over:  # called again by us
            return
        super().called(module, args, kwargs)
        self._watch()
        self._seen.modules[id(module)] = module
        self._seen.loader = self._seen.fetched_from
        self._calls.append(Call(module, args, kwargs, Autocast.now()))
        if self._micro_steps == 1:
            self._work.counts_flops = True  # also within a step that trains by itself
            self._second.called(module, [*args, *kwargs.values()])
            self._follow_memory_of(module)

    def _follow_memory_of(self, module: torch.nn.Module) -> None:
        """DDP makes its buckets anew before it calls what it wraps; they are no part of what a sample takes."""

        def follow(*_: Any) -> None:
            self._work.follows_memory = True

        if isinstance(module, DistributedDataParallel):
            module.module.register_forward_pre_hook(follow)
        else:
            follow()

    def backward_begins(self) -> None:
        if self._micro_steps == 1 and self._is_micro_step:
            own = [tensor for module in self._seen.modules.values() for tensor in own_tensors(module)]
            self._kept_bytes = self._work.kept_bytes(without=own) + input_bytes(self._calls)
            self._work.follows_memory = False
            self._work.forget_memory()

    def backward_ended(self) -> None:
        if self._over or not self._is_micro_step:
            return
        self._micro_steps += 1
        calls, self._calls = self._calls, []
        if self._micro_steps == 1:
            self._watch()
            self._work.counts_flops = not self._stepping
            self._work.follows_memory = not self._seen.modules  # else from the call on
        elif self._micro_steps == 2:
            self._work.counts_flops = False
            self._second.went_backward()
            self._seen.second = SecondMicroStep(self._second.of_gradient().samples, self._kept_bytes, calls)
        if time.monotonic() > self._ends_at and self._seen.second is not None:
            self.finish()

    def _watch(self) -> None:
        """From the first call on, since that may be too much to compute; until the end, for further micro-steps."""
        if not self._watching:
            self._watching = True
            self._work.__enter__()  # type: ignore[no-untyped-call]

    @property
    def _is_micro_step(self) -> bool:
        """Or else another loss of the same call."""
        return bool(self._calls) or not self._seen.modules

    def finish(self) -> NoReturn:
        """With what is known; without a second micro-step that is nothing."""
        self._over = True
        if self._watching:
            self._watching = False
            self._work.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        reason = f"the script ended after {self._micro_steps} backward passes, two are needed to count"
        nothing = {"outcome": "too_few_steps", "reason": reason}
        record = nothing if self._seen.second is None else {"outcome": "inspected", "report": self._report()}
        self._output.write_text(json.dumps(record) + "\n", encoding="utf-8")
        raise ProbeFinished(0)

    def _report(self) -> dict[str, Any]:
        self._seen.samples_of_step = self.counter.last.samples
        self._seen.in_turn = self.steps_in_turn
        return report(self._seen, self._work, self._as_on_gpu, self._samples_per_step)

    def _step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping = True
        if not any(callable(argument) for argument in (*args[1:], *kwargs.values())):  # no step that trains by itself
            # An optimizer's own work and memory do not grow with the batch.
            self._work.counts_flops = self._work.follows_memory = False
        self._seen.optimizers[id(optimizer)] = optimizer
        super()._step_begins(optimizer, args, kwargs)

    def _step_ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping = False
        super()._step_ends(optimizer, args, kwargs)
        self._work.counts_flops = self._micro_steps == 1
        self._work.follows_memory = self._micro_steps == 1 and not self._seen.modules

    def _optimizer_stepped(self) -> None:
        self._seen.micro_steps = self._micro_steps - self._micro_steps_before
        self._micro_steps_before = self._micro_steps
        if self._seen.second is not None and not self._over:
            self.finish()


def _watch_backward(inspection: Inspection) -> None:
    """Around the watch that counts them, which knows of a backward inside a backward."""
    watch = torch.autograd.backward
    if not isinstance(watch, BackwardWatch):
        raise TypeError("the backward is not being watched")

    def backward(*args: Any, **kwargs: Any) -> None:
        outermost = not watch.running
        if outermost:
            inspection.backward_begins()
        watch(*args, **kwargs)
        if outermost:
            inspection.backward_ended()

    torch.autograd.backward = backward


def _watch_loaders(seen: Sighting) -> None:
    """Remembers the last that a batch was taken from: when a model is called, that is the one it trains from."""
    original = DataLoader.__iter__

    def watched(loader: DataLoader[Any]) -> Any:
        for batch in original(loader):
            seen.fetched_from = loader
            yield batch

    DataLoader.__iter__ = watched  # type: ignore[method-assign]
