"""What a model keeps for its backward whatever the batch: found by calling it once more with one and with two samples.

Weights in another precision, masks, statistics of a layer: they are kept once, so they are no part of what a sample
takes. The calls are those that the script made, with its own inputs, of which fewer or more samples are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map

from probes.spared_products import SparedProducts
from probes.work import WorkWatch

_SIZES = ((1, 2), (2, 4))  # normalisation over the batch refuses one sample alone


class Autocast(NamedTuple):
    """As it was when a module was called; the script's `with` is over when the module is called again."""

    device_type: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls) -> tuple[Autocast, ...]:
        kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return tuple(cls(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


class Call(NamedTuple):
    """Of an outermost module, by the script."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: tuple[Autocast, ...]


def own_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def input_bytes(calls: Sequence[Call]) -> int:
    """Of the data that was handed in, each tensor once; what one module makes for the next is counted as made."""
    tensors = {id(leaf): leaf for call in calls for leaf in tree_leaves((call.args, call.kwargs))}.values()
    return sum(leaf.nbytes for leaf in tensors if isinstance(leaf, torch.Tensor) and leaf.grad_fn is None)


def constant_bytes(calls: Sequence[Call], samples: int, products: SparedProducts | None = None) -> float:
    """The part that does not grow, by a line through two sizes. `samples` are those of the script's own calls."""
    *others, last = _SIZES
    for sizes in others:
        try:
            return _intercept(calls, samples, sizes, products)
        except Exception:  # noqa: S112  # whatever a model says to one sample; the next sizes may do
            continue
    return _intercept(calls, samples, last, products)


def _intercept(calls: Sequence[Call], samples: int, sizes: tuple[int, int], products: SparedProducts | None) -> float:
    small, large = sizes
    kept = [sum(_kept(call, samples, size, products) for call in calls) for size in sizes]
    return kept[0] - small * (kept[1] - kept[0]) / (large - small)


def _kept(call: Call, samples: int, size: int, products: SparedProducts | None) -> int:
    module = call.module.module if isinstance(call.module, DistributedDataParallel) else call.module
    args, kwargs = tree_map(lambda leaf: _resized(leaf, samples, size), (call.args, call.kwargs))
    watch = WorkWatch(products)
    watch.follows_memory = True
    with ExitStack() as stack:
        for state in call.autocast:
            stack.enter_context(torch.autocast(state.device_type, dtype=state.dtype, enabled=state.enabled))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(watch)
        output = module(*args, **kwargs)
        kept = watch.kept_bytes(without=own_tensors(module))
    del output  # up to here it held what the backward would need
    return kept


def _resized(leaf: Any, samples: int, size: int) -> Any:
    """The first samples, over again if there are too few; tensors without them stay as they are."""
    if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or leaf.shape[0] != samples:
        return leaf
    chosen = leaf.detach()[torch.arange(size, device=leaf.device) % samples]
    return chosen.requires_grad_(leaf.requires_grad)
