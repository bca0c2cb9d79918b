"""What loading costs: how long steps wait for a data loader, and the processor time that it takes.

Workers are processes of their own, however they were started; the system tells in /proc what each has used. They are
looked at now and then, since what one used is forgotten when it ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch.utils.data import DataLoader

_SECONDS_BETWEEN_LOOKS = 0.05  # a look takes microseconds
_USER_TIME = 11  # of the fields of /proc/PID/stat behind the name: user, system, and both of its own ended children


class Loading:
    """Of every data loader that the script iterates over."""

    def __init__(self) -> None:
        self.wait_seconds = 0.0
        self.is_used = False
        self._own_seconds = 0.0  # in this process: all of it without workers, else taking over what they prepared
        self._iterators: WeakSet[Any] = WeakSet()
        self._used: dict[int, float] = {}  # by worker
        self._looked = 0.0

    def install(self) -> None:
        original: Callable[[Any], Iterator[Any]] = DataLoader.__iter__

        def timed(loader: Any) -> Iterator[Any]:
            batches = original(loader)
            self._iterators.add(batches)
            self.is_used = True
            while True:
                start, own = time.perf_counter(), time.thread_time()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                self._own_seconds += time.thread_time() - own
                self.wait_seconds += time.perf_counter() - start
                if start - self._looked > _SECONDS_BETWEEN_LOOKS:
                    self._look()
                yield batch

        DataLoader.__iter__ = timed  # type: ignore[method-assign,assignment]

    def cpu_seconds(self) -> float:
        """Used so far, by this process and all workers."""
        self._look()
        return self._own_seconds + sum(self._used.values())

    def _look(self) -> None:
        self._looked = time.perf_counter()
        for iterator in self._iterators:
            for worker in getattr(iterator, "_workers", ()):
                used = _process_seconds(worker.pid)
                if used is not None:
                    self._used[worker.pid] = used


def _process_seconds(process: int) -> float | None:
    """None of one that has ended."""
    try:
        behind_name = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    ticks = sum(int(field) for field in behind_name[_USER_TIME : _USER_TIME + 4])
    return ticks / os.sysconf("SC_CLK_TCK")
