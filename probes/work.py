"""What a stretch of PyTorch does, operator by operator: how many flops at which precision, and what memory it fills.

Flops are those of torch's own formulas: matrix products, convolutions and attention, 2 per multiply-add. Attention is
counted in full, though a causal mask spares half of it, and its backward with the scores that are computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from probes.spared_products import SparedProducts

_ATEN = torch.ops.aten
# On a processor, attention is another operator, for which torch has no formula; the work is the same.
_FORMULAS = {
    **flop_counter.flop_registry,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: flop_counter.flop_registry[
        _ATEN._scaled_dot_product_flash_attention
    ],
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.flop_registry[
        _ATEN._scaled_dot_product_flash_attention_backward
    ],
}
_WITHOUT_WORK = {"aten", "prim", "prims", "profiler", "inductor", "c10d", "_c10d_functional"}
_WORK_WITHOUT_FORMULA = ("rnn", "lstm", "gru", "_int_mm", "_grouped_mm")  # of aten, in one piece


class _Storage(NamedTuple):
    reference: Any  # a StorageWeakRef: while it is there, no other storage takes the same address
    bytes: int


class WorkWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator while it is entered; what it counts, it counts only while it is told to."""

    def __init__(self, products: SparedProducts | None = None) -> None:
        """`products` may spare some of the computing; without it, everything is computed."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.products = products
        self.counts_flops = False
        self.follows_memory = False
        self.flops: Counter[torch.dtype] = Counter()
        self.without_formula: set[str] = set()
        self._made: dict[int, _Storage] = {}

    def kept_bytes(self, *, without: Iterable[torch.Tensor] = ()) -> int:
        """Of what was made while memory was followed and is still there; each storage once, whoever shares it."""
        own = {tensor.untyped_storage()._cdata for tensor in without}
        made = self._made.items()
        alive = [storage for key, storage in made if key not in own and not storage.reference.expired()]
        return sum(storage.bytes for storage in alive)

    def forget_memory(self) -> None:
        self._made.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload) and func._overloadpacket not in _FORMULAS:
            with self:  # in inference mode, operators arrive in one piece: linear, not addmm
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = self._computed(func, args, kwargs)
        if self.counts_flops:
            self._count(func, args, kwargs, out)
        if self.follows_memory:
            self._remember(out, args, kwargs)
        return out

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.products is None:
            return func(*args, **kwargs)
        if getattr(func, "_overloadpacket", func) in _FORMULAS:
            return self.products.result(func, args, kwargs)
        self.products.see(func, args)
        return func(*args, **kwargs)

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        packet = getattr(func, "_overloadpacket", func)
        if formula := _FORMULAS.get(packet):
            first = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))
            self.flops[first.dtype] += formula(*args, **kwargs, out_val=out)
        elif does_uncounted_work(packet):
            self.without_formula.add(str(packet))

    def _remember(self, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Views and what is changed in place share the storage of an argument: nothing was made."""
        for storage in _storages(out):
            if storage._cdata not in self._made and storage.nbytes():
                given = {argument._cdata for argument in _storages((args, kwargs))}
                if storage._cdata not in given:
                    self._made[storage._cdata] = _Storage(StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]


def _storages(values: Any) -> list[torch.UntypedStorage]:
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return [tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided]


def does_uncounted_work(packet: object) -> bool:
    """Other libraries' operators, and layers that arrive as one operator: their flops are missing in the sum."""
    namespace, _, name = str(packet).partition(".")
    if namespace == "aten":
        return any(word in name for word in _WORK_WITHOUT_FORMULA)
    return namespace not in _WITHOUT_WORK
