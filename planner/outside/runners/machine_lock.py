"""One probe run per machine at a time, whoever's: two of them would measure each other.

The lock is the kernel's, on an open file that no child inherits: it goes with its holder, also after kill -9. What the
file says is only for the one who finds it locked, and for the next holder: processes that a killed scav left running
bear its mark and are ended before anything is timed beside them.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.errors import InputError, ScavError, one_line
from planner.outside.runners.shared_with_probes import kill_marked

LOCK_FOLDER = "SCAV_LOCK_FOLDER"
_LOCK_FILE = "scav-probe.lock"
_MOST_BYTES = 4096


@contextlib.contextmanager
def only_probe_here(job: str, folder: Path) -> Iterator[str]:
    """For the whole of a run; its mark. Raises where another run is under way, and says which."""
    path = Path(os.environ.get(LOCK_FOLDER, "/tmp")) / _LOCK_FILE  # noqa: S108 - the same for all users, see _opened
    with _named(path):
        lock = _opened(path)
    try:
        with _named(path):
            mark = _taken(lock, job, folder)
        yield mark
    finally:
        os.close(lock)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """What the system refuses (a full disk, a file system without locks) in one line."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot lock: {reason}; {LOCK_FOLDER} may name another folder", file=str(path)) from None


def _taken(lock: int, job: str, folder: Path) -> str:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ScavError(_refusal(_said(lock))) from None
    kill_marked(str(_said(lock).get("mark", "")))
    mark = secrets.token_hex(16)
    since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    _say(lock, {"pid": os.getpid(), "job": job, "folder": str(folder.resolve()), "since": since, "mark": mark})
    return mark


def _opened(path: Path) -> int:
    """Everybody may lock it. It is never removed: whoever waited for the old one would lock another than the new."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        lock = os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another was faster
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(lock, 0o666)
            return lock
        lock = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        os.close(lock)
        raise OSError(0, "not a file")
    return lock


def _refusal(holder: dict[str, Any]) -> str:
    known = {"pid", "job", "folder", "since"} <= set(holder)
    words = "process {pid}, job {job} in {folder}, since {since}".format(**holder) if known else "it has not said which"
    return one_line(f"another probe is running on this machine ({words}): wait for it, or stop it")


def _said(lock: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(lock, _MOST_BYTES, 0))
    except (ValueError, RecursionError):  # a holder that has not written yet
        return {}
    return holder if isinstance(holder, dict) else {}


def _say(lock: int, holder: dict[str, Any]) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(holder).encode(), 0)
