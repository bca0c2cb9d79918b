"""Runs a program that must not die half way: it gets one SIGINT, and time to end in order.

Terraform that gets a second one gives up its state. So it runs in a session of its own, where neither the terminal's
Ctrl-C nor its closing reaches it, and its output goes to files: were it a pipe and scav were killed, the next line
it writes would kill it too.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

POLL_SECONDS = 0.1
ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
FIRST = "Stopping: Terraform finishes what it has begun and saves its state"
AGAIN = "waiting for Terraform to save its state"
LATER = "Stopping as soon as this is destroyed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    return_code: int
    stdout: str
    stderr: str
    interrupted: bool
    signals: tuple[int, ...] = ()


def run_to_its_end(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    say: Callable[[str], None],
    interruptible: bool = True,
) -> Ended:
    """Calls `on_line` for each line of stdout as it comes; `say` when the user asks to stop.

    What is not `interruptible` hears nothing of that: the signal is raised again when it has ended.
    """
    ended = _run(command, folder, environment, on_line, say, interruptible)
    if ended.signals and not interruptible:
        signal.raise_signal(ended.signals[0])
    return ended


def _run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    say: Callable[[str], None],
    interruptible: bool,
) -> Ended:
    with tempfile.TemporaryDirectory(prefix="scav-terraform-") as scratch, _counted_signals() as received:
        out, err = Path(scratch, "stdout"), Path(scratch, "stderr")
        with out.open("wb") as stdout, err.open("wb") as stderr, out.open("rb") as reader:
            process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                _follow(process, reader, received, on_line, say, interruptible)
            finally:  # also when showing progress fails: never leave it alone with half a cluster
                _stop_and_wait(process, already_asked=bool(received) or not interruptible)
        return Ended(
            return_code=process.returncode,
            stdout=out.read_text(encoding="utf-8", errors="replace"),
            stderr=err.read_text(encoding="utf-8", errors="replace"),
            interrupted=bool(received) and interruptible,
            signals=tuple(received),
        )


def _follow(
    process: subprocess.Popen[bytes],
    reader: BinaryIO,
    received: list[int],
    on_line: Callable[[str], None],
    say: Callable[[str], None],
    interruptible: bool,
) -> None:
    answered, rest, running = 0, b"", True
    while running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            running = False
        *lines, rest = (rest + reader.read()).split(b"\n")
        for line in lines if running else [*lines, *([rest] if rest else [])]:
            on_line(line.decode("utf-8", errors="replace"))
        while answered < len(received):
            if answered == 0 and running and interruptible:
                process.send_signal(signal.SIGINT)
            first = FIRST if interruptible else LATER
            say(AGAIN if answered else first)
            answered += 1


def _stop_and_wait(process: subprocess.Popen[bytes], *, already_asked: bool) -> None:
    if process.poll() is None and not already_asked:
        process.send_signal(signal.SIGINT)
    process.wait()


@contextlib.contextmanager
def _counted_signals() -> Iterator[list[int]]:
    """Signals that would end scav, in the order of their arrival; only the main thread may catch them."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # nohup and a pipeline's `&` let a program ignore a signal on purpose: it stays ignored.
    caught = [number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in caught}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
