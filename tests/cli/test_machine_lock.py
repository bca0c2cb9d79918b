"""Two probes at once on one machine: the second is told who is there, and a killed one frees the place."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from planner.errors import InputError, ScavError
from planner.outside.runners.machine_lock import only_probe_here

LONG_SECONDS = 120.0
WAITING = "#!/bin/sh\necho $$ > started.new && mv started.new started\nexec sleep 1000\n"
FAST = """\
#!/usr/bin/env python3
import json, os

step = {"step_seconds": 0.1, "samples": int(os.environ["SCAV_GLOBAL_BATCH"])}
with open(os.environ["SCAV_PROBE_STEPS"], "a") as steps:
    steps.write((json.dumps(step) + "\\n") * 200)
"""


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """A zombie is dead, whoever has not looked at it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def job(write_job: Callable[..., Path], tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    write_job({"global_batch: 256..1024": "global_batch: 256"}, folder=folder)
    for name, text in {"waiting": WAITING, "fast": FAST}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def holder(job: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real scav in the middle of a probe; its program may outlive it, but not this test."""
    scav = subprocess.Popen(
        [sys.executable, "-m", "planner", "probe", job, "--workers", "1", "--writes-steps", "--", "./waiting"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until((job / "started").exists)
    yield scav
    scav.kill()
    scav.wait()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((job / "started").read_text()), signal.SIGKILL)


def test_the_second_is_told_who_holds_it_and_kill_9_frees_it(
    holder: subprocess.Popen[bytes], job: Path, run_scav: Callable[..., Result]
) -> None:
    arguments = ("probe", job, "--workers", "1", "--writes-steps", "--", "./fast")
    second = run_scav(*arguments)
    assert (second.exit_code, second.stdout) == (1, "")
    (said,) = second.stderr.splitlines()
    beginning = f"Error: another probe is running on this machine (process {holder.pid}, job small in {job}, since "
    assert said.startswith(beginning)
    assert re.fullmatch(r"[\d-]{10} [\d:]{8} UTC\): wait for it, or stop it", said.removeprefix(beginning))
    assert run_scav("probe", job, "--dry-run", "--writes-steps", "--", "./fast").exit_code == 0

    left_behind = int((job / "started").read_text())
    holder.send_signal(signal.SIGKILL)
    holder.wait(LONG_SECONDS)
    assert is_alive(left_behind)
    third = run_scav(*arguments)
    assert third.exit_code == 0, third.stderr
    assert not is_alive(left_behind)  # it would have been measured, too


def test_whoever_ends_in_order_frees_it(tmp_path: Path) -> None:
    refused = pytest.raises(ScavError, match=f"process {os.getpid()}, job one in")
    with only_probe_here("one", tmp_path) as first, refused, only_probe_here("two", tmp_path):
        pass
    with only_probe_here("two", tmp_path) as second:
        assert first != second


def test_no_child_inherits_it(tmp_path: Path) -> None:
    with only_probe_here("one", tmp_path):
        child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    try:
        with only_probe_here("two", tmp_path):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"mark": 7}', "\x1b[2J" * 2000, "[" * 4000])
def test_whatever_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path))
    lock = tmp_path / "scav-probe.lock"
    lock.write_text(content)
    with only_probe_here("one", tmp_path):
        lock.write_text(content)
        with pytest.raises(ScavError) as refused, only_probe_here("two", tmp_path):
            pass
    assert str(refused.value).isprintable()
    assert "it has not said which" in str(refused.value)


def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path))
    lock = tmp_path / "scav-probe.lock"
    (tmp_path / "elsewhere").touch()
    lock.symlink_to(tmp_path / "elsewhere")  # whose owner may be another user
    with pytest.raises(InputError, match=r"scav-probe\.lock: cannot lock: "), only_probe_here("one", tmp_path):
        pass
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(InputError, match="cannot lock: not a file"), only_probe_here("one", tmp_path):
        pass
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="cannot lock: no such file"), only_probe_here("one", tmp_path):
        pass


@pytest.mark.parametrize(("call", "number"), [("os.pwrite", errno.ENOSPC), ("fcntl.flock", errno.ENOLCK)])
def test_a_full_disk_and_a_file_system_without_locks_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path))
    with monkeypatch.context() as broken:
        broken.setattr(f"planner.outside.runners.machine_lock.{call}", refuse)
        words = f"cannot lock: {os.strerror(number).lower()}; SCAV_LOCK_FOLDER may name another folder"
        with pytest.raises(InputError, match=words), only_probe_here("one", tmp_path):
            pass
    with only_probe_here("two", tmp_path):  # nothing is left locked
        pass


def test_an_error_of_the_run_itself_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path))
    with pytest.raises(OSError, match="of the run"), only_probe_here("one", tmp_path):
        raise OSError(errno.ENOSPC, "of the run")
