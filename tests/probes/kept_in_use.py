"""`python kept_in_use.py train.py ARGS`: the bytes that the C library has given out between a script's second forward
and its backward. The allocator's own count: nothing of what `scav inspect` looks at.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


class MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


LIBRARY = ctypes.CDLL("libc.so.6")
LIBRARY.mallinfo2.restype = MallInfo


def in_use() -> int:
    found = LIBRARY.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def in_use_but_for_the_last_step() -> int:
    """Its gradients and outputs are thrown away here or there: before the forward, or between it and the backward."""
    gradients = [parameter.grad for module in modules for parameter in module.parameters()]
    left = [tensor for tensor in (*gradients, *(output() for output in outputs_of_last_step)) if tensor is not None]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in left}
    return in_use() - sum(storages.values())


modules: list[torch.nn.Module] = []
before: list[int] = []  # the first call since the last backward
outputs: list[weakref.ref[torch.Tensor]] = []
outputs_of_last_step: list[weakref.ref[torch.Tensor]] = []
backwards = inside = 0
call, backward = torch.nn.Module.__call__, torch.autograd.backward


def watched_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    global inside
    if not before and module.training:
        modules[:] = [module]
        before.append(in_use_but_for_the_last_step())
    inside += 1
    output = call(module, *args, **kwargs)
    inside -= 1
    if not inside:
        outputs.extend(weakref.ref(leaf) for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
    return output


def watched_backward(*args: Any, **kwargs: Any) -> None:
    global backwards
    backwards += 1
    if backwards == 2:
        print(f"kept {in_use_but_for_the_last_step() - before[0]}", flush=True)
        os._exit(0)
    backward(*args, **kwargs)
    before.clear()
    outputs_of_last_step[:] = outputs


torch.nn.Module.__call__ = watched_call  # type: ignore[method-assign]
torch.autograd.backward = watched_backward
script = Path(sys.argv[1])
sys.argv = sys.argv[1:]
sys.path[0] = str(script.parent)
runpy.run_path(str(script), run_name="__main__")
