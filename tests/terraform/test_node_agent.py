"""The agent that user data installs on a node, against a metadata service and commands that are stand-ins."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[2] / "modules" / "gpu-cluster" / "user_data" / "node.py"
HOSTILE = "'; $(touch owned) `touch owned` ${HOME}\n\"x"

RUN = {
    "run_id": "run-1",
    "region": "us-east-1",
    "group": "scav-run-1",
    "node_count": 1,
    "gpus_per_node": 4,
    "efa": False,
    "image": "registry.example.com/train@sha256:" + "0" * 64,
    "command": ["train.py", "--name", HOSTILE],
    "max_restarts": 3,
    "max_runtime_seconds": 3600,
    "bucket": "bucket",
    "log_group": "/scav/run-1",
    "environment": {"SCAV_RUN_ID": "run-1", "SCAV_CHECKPOINT_DIR": "/checkpoints"},
}
ME = {"InstanceId": "i-me", "PrivateIpAddress": "10.0.0.1", "LaunchTime": "2025-01-01T00:00:02+00:00"}

# S3 is a folder, EC2 is a file; what changes the group is written down.
AWS = r"""
import datetime, json, os, pathlib, shutil, sys
world = pathlib.Path(os.environ["WORLD"])
s3 = world / "s3"
words = sys.argv[1:]
for option in ("--region", "--output"):
    if option in words:
        place = words.index(option)
        del words[place : place + 2]
value = lambda name: words[words.index(name) + 1]
inside = lambda uri: s3 / uri.removeprefix("s3://")
if words[:2] == ["s3api", "list-objects-v2"]:
    root = s3 / value("--bucket")
    keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    stamp = lambda key: datetime.datetime.fromtimestamp((root / key).stat().st_mtime, datetime.timezone.utc).isoformat()
    found = [{"Key": key, "LastModified": stamp(key)} for key in keys if key.startswith(value("--prefix"))]
    print(json.dumps({"Contents": found} if found else {}))
elif words[:2] == ["s3api", "put-object"]:
    path = s3 / value("--bucket") / value("--key")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
elif words[:2] == ["s3", "cp"]:
    inside(words[3]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(words[2], inside(words[3]))
elif words[:2] == ["s3", "rm"]:
    inside(words[2]).unlink()
elif words[:2] == ["s3", "sync"]:
    if inside(words[2]).exists():
        shutil.copytree(inside(words[2]), words[3], dirs_exist_ok=True)
elif words[:2] == ["ec2", "describe-instances"]:
    nodes = json.loads((world / "nodes.json").read_text())
    print(json.dumps({"Reservations": [{"Instances": nodes}]}))
elif words[0] == "autoscaling":
    with (world / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
elif words[0] != "logs":
    sys.exit(f"unexpected: {words}")
"""
DOCKER = r"""
import json, os, pathlib, signal, subprocess, sys
world = pathlib.Path(os.environ["WORLD"])
if sys.argv[1] == "run":
    with (world / "runs").open("a") as runs:
        runs.write(json.dumps(sys.argv[1:]) + "\n")
    (world / "pid").write_text(str(os.getpid()))
    os.execv("/bin/sh", ["sh", str(world / "job.sh")])
if sys.argv[1] == "stop":
    os.kill(int((world / "pid").read_text()), signal.SIGTERM)
"""
SYSTEMCTL = r"""
import os, pathlib, sys
(pathlib.Path(os.environ["WORLD"]) / "calls").write_text("systemctl " + " ".join(sys.argv[1:]) + "\n")
"""


class World:
    """What surrounds the agent: its commands, its files, its metadata."""

    def __init__(self, root: Path, metadata_address: str, metadata: dict[str, str]) -> None:
        self.root = root
        self.metadata = metadata
        self.checkpoints = root / "state" / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.stored = root / "s3" / "bucket" / "run-1"
        self.stored.mkdir(parents=True)
        commands = root / "bin"
        commands.mkdir()
        for name, text in {"aws": AWS, "docker": DOCKER, "systemctl": SYSTEMCTL}.items():
            (commands / name).write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
            (commands / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "WORLD": str(root),
            "SCAV_RUN_FILE": str(root / "run.json"),
            "SCAV_STATE_DIR": str(root / "state"),
            "SCAV_POLL_SECONDS": "0.05",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_address,
        }
        self.set_run()
        self.set_nodes(ME)
        self.set_job("exit 0")

    def set_run(self, **changes: object) -> None:
        (self.root / "run.json").write_text(json.dumps(RUN | changes), encoding="utf-8")

    def set_nodes(self, *nodes: dict[str, str]) -> None:
        (self.root / "nodes.json").write_text(json.dumps(nodes), encoding="utf-8")

    def set_job(self, script: str) -> None:
        (self.root / "job.sh").write_text(f'cd "{self.checkpoints}"\n{script}\n', encoding="utf-8")

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(AGENT), command],
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        with self.start(command) as process:
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return output

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def containers(self) -> list[list[str]]:
        path = self.root / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def scaled_to_zero(self) -> bool:
        return any(
            call == "autoscaling set-desired-capacity --auto-scaling-group-name scav-run-1 --desired-capacity 0"
            for call in self.calls
        )


@pytest.fixture
def world(tmp_path):
    values = {"instance-id": "i-me", "local-ipv4": "10.0.0.1"}

    class Metadata(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.answer("token")

        def do_GET(self):
            assert self.headers["X-aws-ec2-metadata-token"] == "token"
            self.answer(values.get(self.path.removeprefix("/latest/meta-data/")))

        def answer(self, text):
            self.send_response(200 if text else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield World(tmp_path, f"http://127.0.0.1:{server.server_port}", values)
        server.shutdown()
        thread.join()


def test_a_job_that_succeeds_ends_the_run(world):
    world.set_job("echo weights > epoch-1.pt; echo half > epoch-2.pt.tmp")
    world.run("train")
    assert (world.stored / "checkpoints" / "epoch-1.pt").read_text() == "weights\n"
    assert not (world.stored / "checkpoints" / "epoch-2.pt.tmp").exists()
    assert (world.stored / "_SUCCESS").exists()
    assert world.scaled_to_zero
    assert len(world.containers) == 1


def test_settings_reach_the_container_as_they_were_written(world):
    world.run("train")
    (command,) = world.containers
    image = command.index(RUN["image"])
    assert command[image - 2 : image] == ["--entrypoint", "torchrun"]
    assert command[-3:] == ["train.py", "--name", HOSTILE]
    assert {"--nnodes=1", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:29400"} < set(command)
    assert "SCAV_RUN_ID=run-1" in command
    assert not list(world.root.rglob("owned"))


def test_an_image_with_its_own_entry_point_finds_torchrun_settings_in_its_environment(world):
    world.set_run(command=[])
    world.run("train")
    (command,) = world.containers
    assert command[-1] == RUN["image"]
    assert "--entrypoint" not in command
    assert "PET_NPROC_PER_NODE=4" in command


def test_a_finished_run_stays_finished(world):
    (world.stored / "_SUCCESS").touch()
    world.run("train")
    assert world.containers == []
    assert world.scaled_to_zero


def test_a_job_that_keeps_failing_is_given_up(world):
    world.set_job("exit 1")
    assert "gave up after 5 failures" in world.run("train")
    assert len(world.containers) == 5
    assert not (world.stored / "_SUCCESS").exists()
    assert world.scaled_to_zero


def test_a_job_starts_from_the_stored_checkpoint(world):
    (world.stored / "checkpoints").mkdir()
    (world.stored / "checkpoints" / "epoch-1.pt").write_text("weights")
    world.set_job("grep -q weights epoch-1.pt && rm epoch-1.pt && echo more > epoch-2.pt")
    world.run("train")
    assert [path.name for path in (world.stored / "checkpoints").iterdir()] == ["epoch-2.pt"]


def test_on_sigterm_the_last_checkpoint_is_stored_and_the_run_goes_on(world):
    world.set_job("trap 'echo last > last.pt; exit 143' TERM; touch running.tmp; while :; do sleep 0.05; done")
    with world.start("train") as agent:
        wait_until((world.checkpoints / "running.tmp").exists)
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=30)
    assert (world.stored / "checkpoints" / "last.pt").read_text() == "last\n"
    assert not (world.stored / "_SUCCESS").exists()
    assert not world.scaled_to_zero


def test_rendezvous_is_on_the_on_demand_node_and_moves_with_it(world):
    older_spot = {"LaunchTime": "2025-01-01T00:00:00+00:00", "InstanceLifecycle": "spot"}
    spot = ME | older_spot | {"InstanceId": "i-spot", "PrivateIpAddress": "10.0.0.3"}
    on_demand = ME | {"InstanceId": "i-host", "PrivateIpAddress": "10.0.0.2", "LaunchTime": "2025-01-01T00:00:01+00:00"}
    world.set_run(node_count=3)
    world.set_nodes(ME, spot, on_demand)
    world.set_job("trap 'exit 143' TERM; while :; do sleep 0.05; done")
    with world.start("train") as agent:
        wait_until(lambda: len(world.containers) == 1)
        world.set_nodes(ME, spot, on_demand | {"InstanceId": "i-new", "PrivateIpAddress": "10.0.0.4"})
        wait_until(lambda: len(world.containers) == 2)
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=30)
    endpoints = [next(word for word in run if word.startswith("--rdzv-endpoint=")) for run in world.containers]
    assert endpoints == ["--rdzv-endpoint=10.0.0.2:29400", "--rdzv-endpoint=10.0.0.4:29400"]


def test_an_old_copy_never_replaces_a_newer_checkpoint(world):
    stored = world.stored / "checkpoints"
    stored.mkdir()
    (stored / "last.pt").write_text("old")
    world.set_job(f'echo "newer, from another node" > "{stored}/last.pt"')
    world.run("train")
    assert (stored / "last.pt").read_text() == "newer, from another node\n"


def test_a_spot_notice_stops_the_job(world):
    world.metadata["spot/instance-action"] = '{"action": "terminate"}'
    assert "spot notice" in world.run("watch")
    assert world.calls == ["systemctl stop scav-train.service"]


def test_the_run_ends_at_its_maximum_runtime_counted_from_its_first_node(world):
    (world.stored / "_STARTED").touch()
    two_hours_ago = time.time() - 7200
    os.utime(world.stored / "_STARTED", (two_hours_ago, two_hours_ago))
    world.run("deadline")
    assert world.scaled_to_zero


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
