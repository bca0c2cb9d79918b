"""A node of the run on this machine: the real agent with stand-ins for AWS, Docker and the metadata service."""
# ruff: noqa: S310

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from stand_ins import PATIENCE_SECONDS, World, metadata_server, no_disks, wait_until

AGENT = Path(__file__).resolve().parents[2] / "modules" / "gpu-cluster" / "user_data" / "agent"
HOSTILE = "'; $(touch owned) `touch owned` ${HOME}\n\"x"

RUN = {
    "run_id": "run-1",
    "region": "us-east-1",
    "group": "scav-run-1",
    "memory_group": None,
    "topic": None,
    "node_count": 1,
    "gpus_per_node": 4,
    "efa": False,
    "image": "registry.example.com/train@sha256:" + "0" * 64,
    "command": ["train.py", "--name", HOSTILE],
    "max_restarts": 3,
    "max_wait_seconds": 3600,
    "max_failures": 5,
    "max_runtime_seconds": 3600,
    "max_silence_seconds": 3600,
    "runtime_includes_waiting": False,
    "heartbeat_seconds": 60,
    "source": None,
    "data": [],
    "data_seconds": 0,
    "root_volume_gib": 200,
    "bucket": "bucket",
    "log_group": "/scav/run-1",
    "environment": {"SCAV_RUN_ID": "run-1", "SCAV_CHECKPOINT_DIR": "/checkpoints", "SCAV_RESULTS_DIR": "/results"},
}
# An address of its own, since the agent's port is fixed and tests may run side by side.
ADDRESS = f"127.1.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
MEMORY_URL = f"http://{ADDRESS}:29401"
ME = {"InstanceId": "i-me", "PrivateIpAddress": ADDRESS, "LaunchTime": "2025-01-01T00:00:02+00:00"}
MEMORY = ME | {"InstanceId": "i-memory"}
STOPPABLE_JOB = "trap 'echo last > last.pt; exit 143' TERM; touch running.tmp; while :; do sleep 0.05; done"


def until(file: Path) -> str:
    """Words of a job that wait for what the agent does beside it."""
    return f"while [ ! -e '{file}' ]; do sleep 0.05; done"


class Node(World):
    """A world with the agent in it."""

    def __init__(self, root: Path, metadata_address: str) -> None:
        super().__init__(root, ME)
        self.checkpoints = root / "state" / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.results = root / "state" / "results"
        self.results.mkdir()
        self.stored = root / "s3" / "bucket" / "run-1"
        self.stored.mkdir(parents=True)
        self.environment = os.environ | {
            "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "WORLD": str(root),
            "SCAV_RUN_FILE": str(root / "run.json"),
            "SCAV_STATE_DIR": str(root / "state"),
            "SCAV_NOTES_DIR": str(root / "notes"),
            "SCAV_EFA_DEVICES": str(root / "infiniband"),
            **no_disks(root),
            "SCAV_MEMORY_DIR": str(root / "memory"),
            "SCAV_POLL_SECONDS": "0.05",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_address,
        }
        self.set_run()
        self.set_nodes(ME)

    def set_run(self, **changes: object) -> None:
        (self.root / "run.json").write_text(json.dumps(RUN | changes), encoding="utf-8")

    def set_nodes(self, *nodes: dict[str, str], memory: tuple[dict[str, str], ...] = ()) -> None:
        self.set_groups({"scav-run-1": list(nodes), "scav-run-1-memory": list(memory)})

    def set_job(self, script: str) -> None:
        super().set_job(f'cd "{self.root}/state/checkpoints"\n{script}')

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-B", str(AGENT / "node.py"), *command],
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> str:
        code, output = self.ended(*command)
        assert code == 0, output
        return output

    def ended(self, *command: str) -> tuple[int, str]:
        with self.start(*command) as process:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode, output

    def run_as_systemd_does(self, command: str, most: int = 20) -> int:
        """Started again after each failure; returns how often it was started."""
        for starts in range(1, most + 1):
            if self.ended(command)[0] == 0:
                return starts
        raise AssertionError(f"failed {most} times and would for ever")

    @property
    def why_failed(self) -> str:
        reason: str = json.loads((self.stored / "_FAILED").read_text())["reason"]
        return reason

    def heartbeat(self) -> dict[str, object]:
        return json.loads((self.stored / "heartbeats" / "i-me.json").read_text())

    @property
    def scaled_to_zero(self) -> bool:
        return "scav-run-1" in self.groups_scaled_to_zero


@pytest.fixture
def world(tmp_path):
    with metadata_server(tmp_path / "metadata", ("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield Node(tmp_path, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.fixture
def memory_node(world):
    """A memory node on the same address: the tier's two sides talk to each other over real HTTP."""
    world.set_run(memory_group="scav-run-1-memory")
    world.set_nodes(ME, memory=(MEMORY,))
    with world.start("memory") as server:
        wait_until(lambda: memory_files() is not None)
        yield server
        server.kill()
        server.communicate()


def memory_files():
    try:
        with urllib.request.urlopen(f"{MEMORY_URL}/", timeout=5) as reply:
            return json.load(reply)
    except OSError:
        return None


def memory_put(name, data):
    request = urllib.request.Request(f"{MEMORY_URL}/{name}", method="PUT", data=data)
    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
