"""Asking scav to stop while clusters are rented: heard at once while one measures, remembered while one goes down."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

from planner.errors import ScavError
from planner.outside.terraform.process import ENDING_SIGNALS


class Interrupted(ScavError):
    exit_code = 130


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP, for the whole of a command: none is lost between two clusters."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._held = True
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it, on purpose
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

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
            raise Interrupted(f"interrupted by {signal.Signals(self._received).name}")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        if not self._held:
            self.raise_if_received()
