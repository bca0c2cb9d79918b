"""Spares a processor the work of a large model: its products, convolutions and attentions are computed for some
seconds; from then on each gives a tensor of the right size at once.

Sizes, operators and what is kept do not depend on the values, so every count stays the same; a GPT-2 would otherwise
take minutes, and an hour where a processor has no instructions for bf16. Where sizes do depend on values (a mixture of
experts, boxes that are found in an image), everything is computed.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

LONGEST_SECONDS = 5.0  # of computing them
_VALUE = 0.01  # neither a logarithm nor a quotient of it is infinite
_INDEX = torch.ops.aten.index.Tensor


class SparedProducts:
    """Is asked for the result of every product, and told of every other operator."""

    def __init__(self, longest_seconds: float) -> None:
        self.spared = 0
        self._left_seconds = longest_seconds
        self._values_matter = False

    def result(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._left_seconds <= 0 and not self._values_matter and _can_be_spared(func, args, kwargs):
            made = _of_the_same_size(func, args, kwargs)
            if made is not None:
                self.spared += 1
                return made
        started = time.perf_counter()
        out = func(*args, **kwargs)
        self._left_seconds -= time.perf_counter() - started
        return out

    def see(self, func: Any, args: tuple[Any, ...]) -> None:
        """An operator whose result is as large as its arguments' values say."""
        if torch.Tag.dynamic_output_shape in getattr(func, "tags", ()) and not self._values_matter:
            self._values_matter = func is not _INDEX or _picks_by_mask(args)


def _picks_by_mask(args: tuple[Any, ...]) -> bool:
    indices = [leaf for leaf in tree_leaves(args[1:]) if isinstance(leaf, torch.Tensor)]
    return any(index.dtype in (torch.bool, torch.uint8) for index in indices)


def _can_be_spared(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """On a processor, into a tensor of its own. A GPU is fast enough."""
    if not isinstance(func, torch._ops.OpOverload) or func._schema.is_mutable:
        return False
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return all(type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.device.type == "cpu" for leaf in tensors)


def _of_the_same_size(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """By torch's own rules of sizes; None where it has none for this operator."""
    try:
        shapes = func(*tree_map(_shape_alone, args), **tree_map(_shape_alone, kwargs))
    except (NotImplementedError, RuntimeError):
        return None
    return tree_map(_filled, shapes)


def _shape_alone(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf
    return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")


def _filled(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="cpu").fill_(_VALUE)
