"""Starting a stretch from a process that has imported PyTorch already, and watching it like one started here."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from planner.errors import ScavError
from planner.outside import assets
from planner.outside.runners.local import refuse_without_torch
from planner.outside.runners.shared_with_probes import MARK, kill_marked


class Forked:
    """The leader of what was started, as much of a process as is asked of one."""

    def __init__(self, pid: int, answers: _Answers) -> None:
        self.pid, self._answers = pid, answers
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._looked(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._looked(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("probes.warm", timeout or 0.0)
        return code

    def _looked(self, timeout: float | None) -> int | None:
        if self._code is None and (line := self._answers.line(timeout)) is not None:
            self._code = int(line or 1)  # an empty line: the process that knows was killed itself
        return self._code


class WarmProcesses:
    """One process that imports while scav thinks of what to begin with; closed with all that it started."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        refuse_without_torch()
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "probes.warm"],
            env={**os.environ, "PYTHONPATH": probes_path(), "OMP_NUM_THREADS": "1", MARK: mark},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._answers = _Answers(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        kill_marked(self._mark)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def wait_until_ready(self) -> None:
        if not self._answers.is_ready and not self._answers.line(None):
            raise ScavError("PyTorch cannot be imported here: python -c 'import torch.distributed' says why")
        self._answers.is_ready = True

    def start(
        self, workers: int, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
    ) -> Forked:
        order = {"workers": workers, "arguments": [*arguments], "folder": str(folder), "log": str(log.absolute())}
        assert self._process.stdin is not None  # noqa: S101 - asked for
        environment = {**environment, MARK: self._mark}
        self._process.stdin.write(json.dumps({**order, "environment": environment}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answers.line(None)
        if not answer:
            raise ScavError("the process that starts stretches was killed")
        return Forked(int(answer), self._answers)


def probes_path() -> str:
    return os.pathsep.join([str(assets.probes_parent()), os.environ.get("PYTHONPATH", "")])


class _Answers:
    """Lines of its stdout, awaited for a while."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - asked for
        self._file = process.stdout.fileno()
        self._read = b""
        self.is_ready = False

    def line(self, timeout: float | None) -> str | None:
        """None where there is none in time, empty at the end."""
        while b"\n" not in self._read:
            if not select.select([self._file], [], [], timeout)[0]:
                return None
            found = os.read(self._file, 4096)
            if not found:
                return ""
            self._read += found
        line, self._read = self._read.split(b"\n", 1)
        return line.decode()
