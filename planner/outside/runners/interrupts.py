"""Asking scav to stop while it probes: heard at once while something measures, remembered while that is ended.

The same for processes, containers and rented clusters. By default SIGTERM and SIGHUP would end scav without a word to
its children.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

from planner.errors import ScavError
from planner.outside.terraform.process import ENDING_SIGNALS


class Interrupted(ScavError):
    """Its exit code is a shell's: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""

    def __init__(self, number: int):
        self.exit_code = 128 + number
        super().__init__(f"interrupted by {signal.Signals(number).name}")


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP, for the whole of a command: none is lost between two clusters."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._held = True
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():  # no other may catch signals
            return self
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it, on purpose
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """For a while, in which nothing is begun or ended."""
        self.release()
        try:
            yield
        finally:
            self.hold()

    def release(self) -> None:
        """From now on a signal raises Interrupted, once; so does one that came before."""
        self._held = False
        self.raise_if_received()

    def hold(self) -> None:
        """From now on a signal is only remembered: half destroyed is what costs money."""
        self._held = True

    def raise_if_received(self) -> None:
        if self._received is not None:
            self._held = True
            raise Interrupted(self._received)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        if not self._held:
            self.raise_if_received()
