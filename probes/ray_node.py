"""What scav starts on the nodes of a Ray cluster: one actor per node, which runs the script there under torchrun.

Ray pickles these classes by value, so the nodes need no scav: standard library only, and nothing of this package until
the archive with it is unpacked.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.metadata
import io
import os
import platform
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SCRIPT = "script"  # the job's folder in the archive; beside it lies this package
_GRACE_SECONDS = 15.0
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux


class About(NamedTuple):
    """A node, to whoever puts a gang together."""

    address: str
    folder: str
    python: str
    interface: str | None
    free_port: int


class Ended(NamedTuple):
    """What became of the script on one node."""

    code: int | None  # None: time ran out
    log: bytes
    record: bytes | None  # what the probe wrote
    noise_state: bytes | None


class RayWatch:
    """Of one scav, under a name that only one can have; it goes with that scav."""

    def software(self) -> dict[str, str]:
        """What scripts run with there."""
        found = {"python": platform.python_version()}
        for package in ("torch", "ray"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
        return found


class RayNode:
    """One node of a probe."""

    def __init__(self, archive: bytes) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="scav-probe-"))
        self.mark = secrets.token_hex(16)
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(self.folder, filter="data")
            self.keeper = subprocess.Popen(
                [sys.executable, "-m", "probes.keeper", str(self.folder), self.mark],
                cwd=self.folder, stdin=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            if self.keeper.wait():
                raise RuntimeError("nobody to tidy up")
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def about(self) -> About:
        address = str(importlib.import_module("ray.util").get_node_ip_address())
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        return About(address, str(self.folder), sys.executable, _interface_of(address), port)

    def run(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        timeout_seconds: float,
        output: str,
        state_file: str,
        state: bytes | None,
        wants_state: bool,
    ) -> Ended:
        """In the script's folder; what it wrote is handed over, as the folder goes with this node."""
        if state is not None:
            Path(state_file).write_bytes(state)
        log = self.folder / "log.txt"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=self.folder / SCRIPT, env=self._environment(environment),
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
            code = _wait(process, timeout_seconds)
        return Ended(
            code, log.read_bytes(), _content(Path(output)), _content(Path(state_file)) if wants_state else None
        )

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        """This node's own clock says when the script was started."""
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        started = repr(time.time())
        own = {"PYTHONPATH": path, "SCAV_PROBE_STARTED": started, "SCAV_PROBE_MARK": self.mark}
        return {**os.environ, **given, **own}


def _wait(process: subprocess.Popen[bytes], timeout_seconds: float) -> int | None:
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        for number, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(patience)
        return None


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _interface_of(address: str) -> str | None:
    """By whose name gloo and NCCL are told to take the network that Ray's nodes reach each other by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without such an address
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asking.fileno(), _ADDRESS_OF_INTERFACE, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
