"""What a training would hold of a GPU, counted while it runs with tensors that have sizes and no memory.

Every storage counts from the operator that makes it to the last reference to it, rounded up as PyTorch's allocator for
GPUs rounds. Sums move in the order of the program, so the fullest moment is found, not composed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

BETWEEN = "script"  # outside model, backward pass and optimizer
_BLOCK_BYTES = 512  # that CUDA's caching allocator rounds up to
_ATEN = torch.ops.aten
_VALUE = 1  # of a number that the script asks a tensor without memory for: neither infinite nor a divisor of zero


class AllocationWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator while it is entered; `phase` names what it sees, and is that of the fullest moment."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes_alone = FakeTensorMode(allow_non_fake_inputs=True)
        self.phase = BETWEEN
        self.bytes = self.peak_bytes = 0
        self.fullest = self.phase
        self._makes_sizes_alone = False
        self._held: dict[int, tuple[Any, int]] = {}  # by storage

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """What is made here has no memory, also where nothing that it is made of lacks it."""
        before = self.phase, self._makes_sizes_alone
        self.phase, self._makes_sizes_alone = phase, True
        try:
            yield
        finally:
            self.phase, self._makes_sizes_alone = before

    def without_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """One of its size."""
        made = self.sizes_alone.from_tensor(tensor)
        self.hold(made)
        return made

    def forget_peak(self) -> None:
        self.peak_bytes, self.fullest = self.bytes, self.phase

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(is_traceable_wrapper_subclass(leaf) for leaf in tree_leaves((args, kwargs))):
            return NotImplemented  # a DTensor: what its parts do is seen one by one
        if func is _ATEN._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return _number(args[0])
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # by its rule of sizes it would be a copy
        with self.sizes_alone if self._makes_sizes_alone else nullcontext():
            out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, FakeTensor):
                self.hold(leaf)
        return out

    def hold(self, tensor: torch.Tensor) -> None:
        """Views share the storage of what they are of."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._held:
            reference = weakref.ref(storage, lambda _: self._release(key))
            self._held[key] = reference, 0
            self._resize(key, storage.nbytes())

    def resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP lets go of what it gathered, and takes it back, without a new tensor."""
        if storage._cdata in self._held:
            self._resize(storage._cdata, storage.nbytes())

    def _resize(self, key: int, size: int) -> None:
        reference, before = self._held[key]
        taken = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        self._held[key] = reference, taken
        self.bytes += taken - before
        if self.bytes > self.peak_bytes:
            self.peak_bytes, self.fullest = self.bytes, self.phase

    def _release(self, key: int) -> None:
        _, size = self._held.pop(key)
        self.bytes -= size


def _number(tensor: torch.Tensor) -> complex:
    if tensor.dtype is torch.bool:
        return True
    return float(_VALUE) if tensor.dtype.is_floating_point else _VALUE
