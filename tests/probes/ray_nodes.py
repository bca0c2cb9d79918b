"""Real nodes of a Ray cluster on this machine, each of them light, none seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patience import PATIENCE_SECONDS

# Nothing is sent anywhere, and what nobody looks at is not gathered.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}
LIGHT = ("--block", "--disable-usage-stats", "--object-store-memory=80000000")
LOOK = """
import json, sys, ray
from ray.util import list_named_actors, placement_group_table
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
groups = [group["state"] for group in placement_group_table().values()]
print(json.dumps({
    "nodes": [node["NodeID"] for node in ray.nodes() if node["Alive"]],
    "actors": list_named_actors(all_namespaces=True),
    "groups": [state for state in groups if state != "REMOVED"],
    "busy": ray.cluster_resources().get("CPU", 0) - ray.available_resources().get("CPU", 0),
}))
"""


@dataclass(slots=True)
class RayNodes:
    """`ray start --block` per node; the first is the head."""

    folder: Path  # a short one: Ray's sockets lie in it
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, **QUIET})
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0
    client_port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_head(self) -> None:
        self.port, self.client_port = free_port(), free_port()
        ports = (f"--port={self.port}", f"--ray-client-server-port={self.client_port}")
        self._start("--head", *ports, "--include-dashboard=false", f"--temp-dir={self.folder}", "--num-cpus=1")

    def start_node(self, *resources: str) -> None:
        self._start(f"--address={self.address}", *(resources or ("--num-cpus=1",)))

    def _start(self, *arguments: str) -> None:
        log = (self.folder.parent / f"node-{len(self.nodes)}.txt").open("wb")
        ray = Path(sys.executable).with_name("ray")
        before = self.seen()["nodes"] if self.nodes else []
        self.nodes.append(
            subprocess.Popen(
                [ray, "start", *arguments, *LIGHT],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        )  # fmt: skip
        log.close()
        # As many as there should be, the new one among them: Ray counts one that is gone for a while.
        wait_until(lambda: len(now := self.seen()["nodes"]) == len(self.nodes) and set(now) - set(before))

    def remove(self, number: int) -> None:
        """As a machine that is switched off."""
        end_tree(self.nodes.pop(number))

    def seen(self) -> dict[str, Any]:
        look = [sys.executable, "-c", LOOK, self.address]
        found = subprocess.run(look, env=self.environment, capture_output=True, text=True, check=False)
        return json.loads(found.stdout.splitlines()[0]) if found.returncode == 0 else {"nodes": []}  # then Ray may warn

    def is_clean(self) -> bool:
        seen = self.seen()
        return (seen.get("actors"), seen.get("groups"), seen.get("busy")) == ([], [], 0.0)


@contextlib.contextmanager
def ray_nodes(folder: Path, count: int) -> Iterator[RayNodes]:
    cluster = RayNodes(folder)
    try:
        cluster.start_head()
        for _ in range(count - 1):
            cluster.start_node()
        yield cluster
    finally:
        for node in reversed(cluster.nodes):
            end_tree(node)


def end_tree(root: subprocess.Popen[bytes]) -> None:
    """With all that it started, wherever that has gone; `ray stop` would end other people's nodes as well."""
    for pid in [*descendants(root.pid), root.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    root.wait()


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
