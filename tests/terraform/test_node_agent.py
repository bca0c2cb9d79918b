"""The agent that user data installs on a node, against a metadata service and commands that are stand-ins."""
# ruff: noqa: S310

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from stand_ins import World, metadata_server, wait_until

AGENT = Path(__file__).resolve().parents[2] / "modules" / "gpu-cluster" / "user_data" / "agent"
HOSTILE = "'; $(touch owned) `touch owned` ${HOME}\n\"x"

RUN = {
    "run_id": "run-1",
    "region": "us-east-1",
    "group": "scav-run-1",
    "memory_group": None,
    "node_count": 1,
    "gpus_per_node": 4,
    "efa": False,
    "image": "registry.example.com/train@sha256:" + "0" * 64,
    "command": ["train.py", "--name", HOSTILE],
    "max_restarts": 3,
    "max_failures": 5,
    "max_runtime_seconds": 3600,
    "heartbeat_seconds": 60,
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

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-B", str(AGENT / "node.py"), command],
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
    urllib.request.urlopen(request, timeout=5).close()


@pytest.mark.parametrize("path", sorted(AGENT.glob("*.py")), ids=lambda path: path.name)
def test_the_agent_is_for_the_python_of_old_images_too(path):
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_a_job_that_succeeds_is_stored_and_ends_the_run(world):
    world.set_job("echo weights > epoch-1.pt; touch epoch-2.pt.tmp")
    world.run("train")
    assert (world.stored / "checkpoints" / "epoch-1.pt").read_text() == "weights\n"
    assert not (world.stored / "checkpoints" / "epoch-2.pt.tmp").exists()
    assert (world.stored / "_SUCCESS").exists()
    assert world.scaled_to_zero
    assert len(world.containers) == 1
    assert world.heartbeat()["phase"] == "done"


def test_settings_reach_the_container_as_they_were_written(world):
    world.run("train")
    (command,) = world.containers
    image = command.index(RUN["image"])
    assert command[image - 2 : image] == ["--entrypoint", "torchrun"]
    assert command[-3:] == ["train.py", "--name", HOSTILE]
    assert {"--nnodes=1", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESS}:29400"} < set(
        command
    )
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


def test_a_probe_that_fails_is_given_up_at_once_and_tells_its_last_lines(world):
    world.set_run(max_failures=1)
    world.set_job("for line in $(seq 100); do echo line $line; done; echo Traceback >&2; exit 3")
    world.run("train")
    assert len(world.containers) == 1
    heartbeat = world.heartbeat()
    assert (heartbeat["phase"], heartbeat["code"], heartbeat["instance_id"]) == ("failed", 3, "i-me")
    assert len(heartbeat["log"]) == 40
    assert heartbeat["log"][-2:] == ["line 100", "Traceback"]


def test_an_image_that_cannot_be_had_ends_the_run(world):
    world.set_run(max_failures=2)
    (world.root / "registry-refuses").touch()
    world.run("train")
    assert world.containers == []
    assert world.scaled_to_zero
    assert (world.heartbeat()["phase"], world.heartbeat()["log"]) == ("failed", ["manifest unknown"])


def test_what_the_job_reports_is_stored_by_node_and_kept(world):
    world.set_job(
        f"cd {world.results}; echo first > measurements.jsonl; touch gone.txt; sleep 1; rm gone.txt; echo >> more.txt"
    )
    world.run("train")
    results = world.stored / "results" / "i-me"
    assert sorted(path.name for path in results.iterdir()) == ["gone.txt", "measurements.jsonl", "more.txt"]


def test_a_job_starts_from_the_stored_checkpoint(world):
    (world.stored / "checkpoints").mkdir()
    (world.stored / "checkpoints" / "epoch-1.pt").write_text("weights")
    world.set_job("grep -q weights epoch-1.pt && rm epoch-1.pt && echo more > epoch-2.pt")
    world.run("train")
    assert [path.name for path in (world.stored / "checkpoints").iterdir()] == ["epoch-2.pt"]


def test_on_sigterm_the_last_checkpoint_is_stored_and_the_run_goes_on(world):
    world.set_job(STOPPABLE_JOB)
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


def test_a_node_that_is_done_waits_for_the_others_and_takes_over_when_the_first_is_lost(world):
    first = ME | {"InstanceId": "i-first", "LaunchTime": "2025-01-01T00:00:00+00:00"}
    world.set_run(node_count=2)
    world.set_nodes(ME, first)
    with world.start("train") as agent:
        wait_until((world.stored / "_done" / "i-me").exists)
        time.sleep(0.5)
        assert not (world.stored / "_SUCCESS").exists()
        world.set_nodes(ME)
        agent.communicate(timeout=30)
    assert (world.stored / "_SUCCESS").exists()
    assert len(world.containers) == 1


def test_a_node_that_is_leaving_is_not_waited_for(world):
    leaving = ME | {"InstanceId": "i-leaving", "LaunchTime": "2025-01-01T00:00:00+00:00"}
    (world.stored / "_draining").mkdir()
    (world.stored / "_draining" / "i-leaving").touch()
    world.set_run(node_count=2)
    world.set_nodes(ME, leaving)
    with world.start("train") as agent:
        wait_until(lambda: (world.stored / "heartbeats" / "i-me.json").exists() and world.heartbeat().get("nodes") == 1)
        assert world.containers == []
        world.set_nodes(ME, leaving, ME | {"InstanceId": "i-new", "LaunchTime": "2025-01-01T00:00:03+00:00"})
        wait_until(lambda: world.containers)
        agent.kill()
        agent.communicate()
    assert f"--rdzv-endpoint={ADDRESS}:29400" in world.containers[0]


def test_an_old_copy_never_replaces_a_newer_checkpoint(world):
    stored = world.stored / "checkpoints"
    stored.mkdir()
    (stored / "last.pt").write_text("old")
    world.set_job(f'echo "newer, from another node" > "{stored}/last.pt"')
    world.run("train")
    assert (stored / "last.pt").read_text() == "newer, from another node\n"


def test_a_spot_notice_stops_the_job_and_leaves_a_mark(world):
    world.tell("spot/instance-action", '{"action": "terminate"}')
    assert "spot notice" in world.run("watch")
    assert world.calls == ["systemctl stop --no-block scav-train.service"]
    assert (world.stored / "_draining" / "i-me").exists()


def test_the_run_ends_at_its_maximum_runtime_counted_from_its_first_node(world):
    started_two_hours_ago(world)
    world.run("deadline")
    assert world.scaled_to_zero
    assert not any(call.startswith("shutdown") for call in world.calls)


def test_a_node_that_may_not_scale_the_group_ends_itself_at_the_deadline(world):
    started_two_hours_ago(world)
    (world.root / "aws-refuses").touch()
    assert "AccessDenied" in world.run("deadline")
    assert world.calls[-1] == "shutdown -h now"


@pytest.mark.usefixtures("memory_node")
def test_memory_takes_the_checkpoint_and_s3_gets_it_behind(world):
    world.set_job('mkdir "step 1"; echo weights > "step 1/shard?.pt"; echo "step 1" > latest')
    world.run("train")
    assert (world.root / "memory" / "step 1" / "shard?.pt").read_text() == "weights\n"
    assert (world.stored / "checkpoints" / "step 1" / "shard?.pt").read_text() == "weights\n"
    sources = [line.rsplit(" s3://", 1)[0] for line in world.lines("copies") if "/checkpoints/" in line]
    assert all(source.startswith(str(world.root / "memory")) for source in sources)
    assert world.groups_scaled_to_zero == ["scav-run-1-memory", "scav-run-1"]


@pytest.mark.usefixtures("memory_node")
def test_a_new_node_gets_its_checkpoint_from_memory_even_before_s3_has_it(world):
    refusing = world.root / "s3-refuses"
    refusing.touch()
    memory_put("epoch-7.pt", b"weights")
    world.set_job(f"cp epoch-7.pt seen.tmp; echo more > epoch-8.pt; rm {refusing}")
    world.run("train")
    assert (world.checkpoints / "seen.tmp").read_text() == "weights"
    assert sorted(path.name for path in (world.stored / "checkpoints").iterdir()) == ["epoch-7.pt", "epoch-8.pt"]


@pytest.mark.usefixtures("memory_node")
def test_what_memory_and_s3_both_have_comes_from_memory_unless_s3_is_newer(world):
    for name in ("same.pt", "older-here.pt"):
        memory_put(name, b"in memory")
    wait_until(lambda: all(memory_files().values()))
    time.sleep(0.05)
    (world.stored / "checkpoints" / "older-here.pt").write_text("written to S3 itself")
    world.set_job("cp same.pt same.tmp; cp older-here.pt older-here.tmp")
    world.run("train")
    assert (world.checkpoints / "same.tmp").read_text() == "in memory"
    assert (world.checkpoints / "older-here.tmp").read_text() == "written to S3 itself"
    fetched = [line for line in world.lines("copies") if line.startswith(str(world.root / "s3"))]
    assert [line.split()[0].rsplit("/", 1)[1] for line in fetched] == ["older-here.pt"]


@pytest.mark.usefixtures("memory_node")
def test_a_checkpoint_that_the_job_removes_is_removed_from_memory_and_s3(world):
    world.set_job("echo 1 > epoch-1.pt; sleep 1; rm epoch-1.pt; echo 2 > epoch-2.pt; sleep 0.5")
    world.run("train")
    assert list(memory_files()) == ["epoch-2.pt"]
    assert [path.name for path in (world.stored / "checkpoints").iterdir()] == ["epoch-2.pt"]


def test_without_an_answer_from_memory_checkpoints_go_to_s3(world):
    world.set_run(memory_group="scav-run-1-memory")
    world.set_nodes(ME, memory=(MEMORY,))
    world.set_job("echo weights > epoch-1.pt")
    assert "goes to S3 itself" in world.run("train")
    assert (world.stored / "checkpoints" / "epoch-1.pt").read_text() == "weights\n"


def test_a_checkpoint_that_memory_gives_only_in_part_comes_from_s3(world):
    class CutOff(BaseHTTPRequestHandler):
        def do_GET(self):
            listing = json.dumps({"epoch-1.pt": time.time() + 100}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(listing) if self.path == "/" else 100))
            self.end_headers()
            self.wfile.write(listing if self.path == "/" else b"weig")

        def log_message(self, *_):
            pass

    (world.stored / "checkpoints").mkdir()
    (world.stored / "checkpoints" / "epoch-1.pt").write_text("weights")
    world.set_run(memory_group="scav-run-1-memory")
    world.set_nodes(ME, memory=(MEMORY,))
    world.set_job("cp epoch-1.pt seen.tmp")
    with ThreadingHTTPServer((ADDRESS, 29401), CutOff) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        assert "came only in part" in world.run("train")
        server.shutdown()
        thread.join()
    assert (world.checkpoints / "seen.tmp").read_text() == "weights"


@pytest.mark.usefixtures("memory_node")
def test_memory_keeps_to_its_folder(world):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        memory_put("..%2Frun.json", b"{}")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{MEMORY_URL}/../run.json", timeout=5)
    assert json.loads((world.root / "run.json").read_text())["run_id"] == "run-1"


def started_two_hours_ago(world):
    (world.stored / "_STARTED").touch()
    two_hours_ago = time.time() - 7200
    os.utime(world.stored / "_STARTED", (two_hours_ago, two_hours_ago))
