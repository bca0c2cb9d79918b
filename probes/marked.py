"""Processes that bear a mark in their environment: found and ended, whoever has them by then. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "SCAV_PROBE_MARK"  # in the environment of all that a run starts
_PATIENCE_SECONDS = 15.0
_POLL_SECONDS = 0.02


def kill_marked(mark: str) -> None:
    """torchrun gives each worker a group of its own, which outlives a torchrun, and a scav, that had to be killed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (marked := _marked(mark)) and time.monotonic() < deadline:
        for number in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _marked(mark: str) -> list[int]:
    """Processes that were started with this mark in their environment, by whomever; Linux only."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ") if mark else ():
        with contextlib.suppress(OSError):  # of somebody else, or gone
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
