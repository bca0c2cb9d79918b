"""A machine for user data: namespaces of its own, with root's powers inside and none outside.

`python namespace_node.py WORLD` is its first process (see BootedNode): it covers /etc, /opt and /var/lib with folders
of its own, takes the metadata service's address, runs WORLD/user-data as cloud-init would, and lives until killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from stand_ins import PATIENCE_SECONDS, World, metadata_server, no_disks, wait_until

OWN_NAMESPACES = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
METADATA_ADDRESS = "169.254.169.254"


def why_not() -> str | None:
    """Why this machine cannot give a node namespaces of its own; None when it can."""
    missing = [name for name in ("unshare", "mount", "ip", "bash") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    script = "set -e; d=$(mktemp -d); mount -t tmpfs t $d; mkdir $d/e; mount --rbind /etc $d/e; ip link set lo up"
    tried = subprocess.run(
        ["unshare", *OWN_NAMESPACES, "bash", "-c", script], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def require_namespaces() -> None:
    """Skips the test where they cannot be had; in CI that is a failure."""
    reason = why_not()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


class BootedNode:
    """User data that is running. What it does shows in its world."""

    def __init__(self, world: World, user_data: str, address: str) -> None:
        (world.root / "user-data").write_text(user_data, encoding="utf-8")
        self.world = world
        environment = {
            "PATH": f"{world.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "WORLD": str(world.root),
            "ADDRESS": address,
            "SCAV_POLL_SECONDS": "0.2",
            "SCAV_MEMORY_DIR": str(world.root / "memory"),
            "SCAV_NOTES_DIR": str(world.root / "notes"),
            **no_disks(world.root),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with (world.root / "boot.log").open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", *OWN_NAMESPACES, sys.executable, __file__, str(world.root)],
                env=environment,
                cwd=world.root / "work",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        if error is not None:
            for log in sorted(self.world.root.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(encoding='utf-8')}")

    def wait_until_started(self) -> None:
        """User data has run to its end, without a failure."""
        code = self.world.root / "user-data-exit-code"
        wait_until(lambda: code.exists() or self.process.poll() is not None)
        assert code.exists(), (self.world.root / "boot.log").read_text()
        assert code.read_text() == "0", (self.world.root / "boot.log").read_text()

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the node."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        enter = ["nsenter", "--target", children[0], "--user", "--net", "--mount", "--preserve-credentials"]
        arguments = [*enter, *command]
        return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


def boot(root: Path) -> None:
    changes = root / "changes"
    changes.mkdir()
    run("mount", "-t", "tmpfs", "tmpfs", str(changes))
    for folder in ("/etc", "/opt", "/var/lib"):
        cover(Path(folder), changes / folder.strip("/").replace("/", "-"))
    run("ip", "link", "set", "lo", "up")
    for address in (METADATA_ADDRESS, os.environ["ADDRESS"]):
        run("ip", "address", "add", f"{address}/32", "dev", "lo")
    server = metadata_server(root / "metadata", (METADATA_ADDRESS, 80))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = root / "user-data"
    script.chmod(0o755)
    first = os.spawnl(os.P_NOWAIT, str(script), str(script))  # noqa: S606 - as cloud-init does, by its first line
    while True:  # the first process of a machine buries the dead
        try:
            pid, status = os.wait()
        except ChildProcessError:
            signal.pause()
        if pid == first:
            (root / "exit-code.new").write_text(str(os.waitstatus_to_exitcode(status)))
            (root / "exit-code.new").replace(root / "user-data-exit-code")


def cover(folder: Path, own: Path) -> None:
    """Puts a new folder there, with links to all that was in it: what is added is the node's, and goes with it.

    Not an overlay, which fails where another mount is inside, as it is where containers run.
    """
    before, now = own / "before", own / "now"
    before.mkdir(parents=True)
    now.mkdir()
    run("mount", "--rbind", str(folder), str(before))
    for child in before.iterdir():
        if child.name != "systemd":
            (now / child.name).symlink_to(child)
    (now / "systemd" / "system").mkdir(parents=True)
    run("mount", "--bind", str(now), str(folder))


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    boot(Path(sys.argv[1]))
