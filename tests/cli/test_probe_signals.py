"""`scav probe` on this machine that is told to stop: no process of it is left, however far from scav it has gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LONG_SECONDS = 300.0  # only a test that fails waits so long
# A worker in a session of its own, as torchrun starts them, that obeys nobody.
STUBBORN = """
import os, signal, time
os.setsid()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
open(f"{os.environ['PIDS']}/{os.getpid()}", "w").close()
time.sleep(3600)
"""
PROGRAM = f"""#!{sys.executable}
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}])
open(f"{{os.environ['PIDS']}}/{{os.getpid()}}", "w").close()
time.sleep(3600)
"""
# Under torchrun: its own process is the worker.
SCRIPT = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STUBBORN.replace("os.setsid()\n", "")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Callable[[], list[int]]]:
    """Of the processes that said that they run; whatever is left of them goes in the end."""
    folder = tmp_path / "pids"
    folder.mkdir()

    def found() -> list[int]:
        return [int(path.name) for path in folder.iterdir()]

    yield found
    for pid in found():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def probing(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "planner", "probe", str(tmp_path), "--workers", "1", *arguments],
        env={**os.environ, "PIDS": str(tmp_path / "pids")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_stopped_scav_leaves_no_process_behind(write_job, tmp_path, pids, number):
    write_job()
    (tmp_path / "train").write_text(PROGRAM)
    (tmp_path / "train").chmod(0o755)
    scav = probing(tmp_path, "--writes-steps", "--", "./train")
    wait_until(lambda: len(pids()) == 2 or scav.poll() is not None)
    scav.send_signal(number)
    said = scav.communicate(timeout=LONG_SECONDS)[1]
    wait_until(lambda: not any(map(is_alive, pids())))
    assert scav.returncode == 128 + number, said
    assert said.splitlines()[-1] == f"Error: interrupted by {number.name}"
    assert not (tmp_path / "measurements.jsonl").exists()


@pytest.mark.slow
def test_workers_of_a_torchrun_that_had_to_be_killed_go_with_it(write_job, tmp_path, pids):
    pytest.importorskip("torch")
    write_job()
    (tmp_path / "train.py").write_text(SCRIPT)
    scav = probing(tmp_path, "--", "train.py")
    wait_until(lambda: pids() or scav.poll() is not None)
    scav.send_signal(signal.SIGTERM)
    said = scav.communicate(timeout=LONG_SECONDS)[1]
    wait_until(lambda: not any(map(is_alive, pids())))
    assert scav.returncode == 143, said


def test_nohup_stays_nohup(write_job, tmp_path, pids):
    """A signal that somebody made scav ignore is still ignored; another one ends it."""
    write_job()
    (tmp_path / "train").write_text(PROGRAM)
    (tmp_path / "train").chmod(0o755)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        scav = probing(tmp_path, "--writes-steps", "--", "./train")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_until(lambda: len(pids()) == 2 or scav.poll() is not None)
    scav.send_signal(signal.SIGHUP)
    scav.send_signal(signal.SIGTERM)
    said = scav.communicate(timeout=LONG_SECONDS)[1]
    assert scav.returncode == 143, said
    wait_until(lambda: not any(map(is_alive, pids())))
