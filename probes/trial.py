"""One process of one try in a sweep: starts it, watches it, ends it when it or another one must go."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torch.distributed import Store  # type: ignore[attr-defined]

from probes.last_words import last_words

MEASURED, OUT_OF_MEMORY, FAILED, TIMED_OUT, ENDED = "measured", "out_of_memory", "failed", "timed_out", "ended"
_ALARM = "alarm"
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 2.0  # for the other processes of a try, once one has failed: they may know more
_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one process; `order` tells the first that failed from those that it took along."""

    outcome: str
    reason: str = ""
    order: int = 0
    record: dict[str, Any] | None = None


def run_trial(
    command: Sequence[str], environment: Mapping[str, str], output: Path, store: Store, seconds: float
) -> Report:
    """`store` is what the processes of this one try share; what the program prints is passed on."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        given_up = _wait(process, store, seconds)
    finally:
        _end(process)
    reader.join(timeout=5)
    report = _recorded(output) or given_up or _exit_report(process.returncode, lines)
    if report.outcome in (OUT_OF_MEMORY, FAILED, TIMED_OUT):
        return Report(report.outcome, report.reason, store.add(_ALARM, 1))
    return report


def together(reports: Sequence[Report]) -> Report:
    """Of all processes of a try, the one that says what happened to it."""
    for outcome in (MEASURED, OUT_OF_MEMORY):
        found = [report for report in reports if report.outcome == outcome]
        if found:
            return found[0]
    failures = [report for report in reports if report.order]
    return min(failures, key=lambda report: report.order) if failures else reports[0]


def _wait(process: subprocess.Popen[str], store: Store, seconds: float) -> Report | None:
    """None when it ended by itself."""
    deadline, warned = time.monotonic() + seconds, False
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return Report(ENDED) if warned else Report(TIMED_OUT, f"not finished after {seconds:.0f} s")
        if not warned and store.check([_ALARM]):
            deadline, warned = min(deadline, time.monotonic() + _GRACE_SECONDS), True
        time.sleep(_POLL_SECONDS)
    return None


def _recorded(output: Path) -> Report | None:
    """The record counts even if the process crashed afterwards, or hung while it took leave of the others."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        record = json.loads(output.read_text(encoding="utf-8"))
        return Report(record["outcome"], record.get("reason", ""), record=record)
    return None


def _exit_report(code: int, lines: Sequence[str]) -> Report:
    if code == 0:
        return Report(ENDED)  # only the first process writes a record
    how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
    words = last_words(lines)
    return Report(FAILED, f"the script {how}: {words}" if words else f"the script {how}")


def _pass_on(stream: IO[str], lines: deque[str]) -> None:
    with stream, contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.append(line.rstrip("\n")[-500:])
            print(line, end="", flush=True)


def _end(process: subprocess.Popen[str]) -> None:
    """At once: there is nothing to save; data loaders that outlived their process go with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
