"""How many samples each optimizer step really took, counted where the work is done: at the model's own calls.

A step is what happens between two optimizer steps. The outermost module that is trained tells by its inputs how many
samples it was given; each backward is one micro-step. Batches of a data loader are no evidence: loaders fetch ahead,
and frameworks look at a few batches before they train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

_DEEPEST = 3  # a batch is a tensor, a list or dictionary of them, or one of those with an index beside it


class StepCount(NamedTuple):
    """Of one process and one optimizer step; `samples` is None where they cannot be counted."""

    samples: int | None
    micro_steps: int


class _Call(NamedTuple):
    module: int
    samples: int | None
    fresh: bool  # got data, not what an earlier call of this step made of it


class SampleCounter:
    """Told of calls, backwards and the end of each step; knows what the steps took."""

    def __init__(self) -> None:
        self.last = StepCount(None, 0)
        self._calls: list[list[_Call]] = [[]]  # up to each backward, and since the last one

    def called(self, module: torch.nn.Module, inputs: Iterable[object]) -> None:
        tensors = list(_tensors(inputs, _DEEPEST))
        fresh = not any(tensor.requires_grad for tensor in tensors)
        self._calls[-1].append(_Call(id(module), commonest_first_dimension(tensors), fresh))

    def went_backward(self) -> None:
        self._calls.append([])

    def end_step(self) -> None:
        self.last, self._calls = self._open(), [[]]

    def of_gradient(self) -> StepCount:
        """What the gradients come from that are there now: the step under way, or else the one before."""
        return self._open() if self.is_under_way else self.last

    @property
    def is_under_way(self) -> bool:
        """Whether anything was done since the last step ended."""
        return len(self._calls) > 1 or bool(self._calls[0])

    def _open(self) -> StepCount:
        before_each_backward = self._calls[:-1]
        fresh = [call for calls in self._calls for call in calls if call.fresh]
        if fresh and len(fresh) <= len(before_each_backward):
            return _counted(fresh)
        return _counted([_first(calls) for calls in before_each_backward if calls])


def _first(calls: list[_Call]) -> _Call:
    """Parts of a model get the same samples one after the other. One module that gets data twice may have been given
    two views of the same samples or twice as many: nobody can tell."""
    fresh = [call for call in calls if call.fresh]
    twice = len({call.module for call in fresh}) < len(fresh)
    first = (fresh or calls)[0]
    return first._replace(samples=None) if twice else first


def _counted(calls: list[_Call]) -> StepCount:
    sizes = [call.samples for call in calls if call.samples is not None]
    return StepCount(sum(sizes) if sizes and len(sizes) == len(calls) else None, len(calls))


def samples_in(batch: object) -> int | None:
    """Of a batch as a data loader gives it."""
    return commonest_first_dimension(_tensors([batch], _DEEPEST))


def commonest_first_dimension(tensors: Iterable[torch.Tensor]) -> int | None:
    """The first of them where two are as common; None without any, or with no sample at all."""
    sizes = Counter(int(tensor.shape[0]) for tensor in tensors if tensor.dim() > 0)
    return (sizes.most_common(1)[0][0] or None) if sizes else None


def _tensors(values: Iterable[object], deepest: int) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif deepest and isinstance(value, Mapping):
            yield from _tensors(value.values(), deepest - 1)
        elif deepest and isinstance(value, list | tuple):
            yield from _tensors(value, deepest - 1)


def watch_backward(counter: SampleCounter) -> BackwardWatch:
    watch = BackwardWatch(counter)
    torch.autograd.backward = watch  # which Tensor.backward calls as well
    return watch


class BackwardWatch:
    """Counts `torch.autograd.backward`; a backward inside a backward recomputes what was not kept and is no other."""

    def __init__(self, counter: SampleCounter) -> None:
        self.running = False
        self._counter = counter
        self._original = torch.autograd.backward

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self.running:
            self._original(*args, **kwargs)
            return
        self.running = True
        try:
            self._original(*args, **kwargs)
        finally:
            self.running = False
        self._counter.went_backward()
