"""Ends a process of a group without taking its interpreter apart.

Taken apart, it aborts now and then ("terminate called without an active exception"), and a run that is complete counts
as failed: a thread of gloo's gives its last tensor back to an interpreter that is going away. It does so also after
`destroy_process_group`, because meshes and wrappers keep the group alive.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

import torch.distributed as dist


def leave(code: int = 0) -> None:
    """Last of all: nothing more is said to the others; this process ends with the code, however it comes to its end."""
    if dist.is_initialized():
        dist.destroy_process_group()
    atexit.register(end, code)


def end(code: int) -> NoReturn:
    """Now, with what was left to be done at the end."""
    atexit.unregister(end)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
