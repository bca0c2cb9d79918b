"""Probes on a real Ray cluster of two nodes: the same rows as here, lost workers and nodes, and nothing left behind."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_nodes import RayNodes, ray_nodes, wait_until

pytest.importorskip("torch")
pytest.importorskip("ray")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits-cnn"
# Says which processes run it; waits for as long as a file says so.
SCRIPT = """
import os, pathlib, sys, time, torch
import torch.distributed as dist
from torch import nn
import beside
here = pathlib.Path(sys.argv[1])
stat = lambda pid: pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
worker = os.getpid()
launcher = int(stat(worker)[1])
(here / f"{worker}.worker").touch()
(here / f"{int(stat(launcher)[1])}.actor").touch()
while (here / "hold").exists():
    time.sleep(0.05)
if int(os.environ["WORLD_SIZE"]) > 1:
    dist.init_process_group("gloo")
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    x = torch.randn(int(os.environ["SCAV_GPU_BATCH"]), 64)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), x[:, :8].argmax(dim=1)).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder, ray_nodes(Path(folder) / "ray", 2) as nodes:
        yield nodes


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "scav.yaml").write_text((EXAMPLE / "scav.yaml").read_text().replace("64..256", "64"))
    (folder / "train.py").write_text(SCRIPT)
    (folder / "beside.py").touch()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def scav(command: str, job: Path, here: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "planner", command, str(job), "--max-duration", "1h", *options, "--", "train.py", here],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def on_ray(cluster: RayNodes, *options: str) -> tuple[str, ...]:
    return ("--on", "ray", "--ray-address", cluster.address, *options)


def said(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, error = process.communicate()
    assert process.returncode == code, error
    return out, error


def rows(job: Path) -> list[dict[str, object]]:
    file = job / "measurements.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def pids(here: Path, kind: str) -> list[int]:
    return [int(path.stem) for path in here.glob(f"*.{kind}")]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    return False


def nothing_is_left(cluster: RayNodes, here: Path) -> None:
    wait_until(lambda: not any(map(is_alive, [*pids(here, "worker"), *pids(here, "actor")])))
    wait_until(cluster.is_clean)


def test_rows_are_as_on_this_machine_whether_probed_or_tuned(cluster: RayNodes, job: Path, here: Path) -> None:
    out, _ = said(scav("tune", job, here, *on_ray(cluster)))
    assert "Best here: " in out
    of_ray = rows(job)
    assert {(row["nodes"], row["gpus_per_node"]) for row in of_ray} == {(1, 1), (2, 1)}
    _, error = said(scav("probe", job, here, *on_ray(cluster)))
    assert "2 probes on ray, 2 measured before" in error
    assert rows(job) == of_ray
    _, error = said(scav("probe", job, here))
    assert "2 probes on local, 0 measured before" in error
    of_here = rows(job)[len(of_ray) :]
    form = [{name: type(value) for name, value in row.items()} for row in (*of_ray, *of_here)]
    assert form[:2] == form[2:]
    assert [row["software"].pop("ray") for row in of_ray] == [cluster_version()] * 2
    for row, other in zip(of_ray, of_here, strict=True):
        assert row["software"] == other["software"]
        assert row["instance_type"] == "local"
        assert row["noise"]["state"] == of_ray[0]["noise"]["state"]
    nothing_is_left(cluster, here)


def cluster_version() -> str:
    from importlib.metadata import version

    return version("ray")


@pytest.mark.parametrize("victim", ["actor", "worker"])
def test_what_is_killed_is_probed_again(cluster: RayNodes, job: Path, here: Path, victim: str) -> None:
    (here / "hold").touch()
    process = scav("probe", job, here, *on_ray(cluster, "--nodes", "1"))
    wait_until(lambda: pids(here, victim) or process.poll() is not None)
    (here / "hold").unlink()
    (killed,) = pids(here, victim)
    os.kill(killed, signal.SIGKILL)
    _, error = said(process)
    assert error.splitlines()[-1].endswith(": probing again")
    assert len(rows(job)) == 1
    assert len(pids(here, "worker")) == 2
    nothing_is_left(cluster, here)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_stopped_scav_leaves_nothing(cluster: RayNodes, job: Path, here: Path, number: signal.Signals) -> None:
    (here / "hold").touch()
    process = scav("probe", job, here, *on_ray(cluster, "--nodes", "2"))
    wait_until(lambda: pids(here, "worker") or process.poll() is not None)
    process.send_signal(number)
    _, error = said(process, -number if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        assert error.splitlines()[-1] == f"Error: interrupted by {number.name}"
    nothing_is_left(cluster, here)
    assert rows(job) == []


def test_a_node_that_is_gone_is_one_line_and_what_was_measured_stays(cluster: RayNodes, job: Path, here: Path) -> None:
    """The second time the node is there again, and only what is missing is measured."""
    said(scav("probe", job, here, *on_ray(cluster, "--nodes", "1")))
    (here / "hold").touch()
    process = scav("probe", job, here, *on_ray(cluster, "--nodes", "2", "--patience", "5s"))
    wait_until(lambda: len(pids(here, "worker")) == 3 or process.poll() is not None)
    cluster.remove(1)
    (here / "hold").unlink()
    _, error = said(process, 1)
    lines = error.splitlines()
    assert lines[-2].endswith(": probing again")
    assert lines[-1].startswith(("Error: a probe needs 2 nodes with 1 CPU each", "Error: the Ray cluster had no room"))
    cluster.start_node()
    _, error = said(scav("probe", job, here, *on_ray(cluster)))
    assert "2 probes on ray, 1 measured before" in error
    assert [row["nodes"] for row in rows(job)] == [1, 2]
    nothing_is_left(cluster, here)


def test_another_probe_on_the_cluster_is_waited_for_by_its_user(
    cluster: RayNodes, job: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "hold").touch()
    first = scav("probe", job, here, *on_ray(cluster, "--nodes", "1"))
    wait_until(lambda: pids(here, "worker") or first.poll() is not None)
    monkeypatch.setenv("SCAV_LOCK_FOLDER", str(tmp_path))  # as on another machine
    other = Path(shutil.copytree(job, tmp_path / "other"))
    _, error = said(scav("probe", other, here, *on_ray(cluster)), 1)
    assert error.splitlines()[-1].startswith("Error: another probe is running on this Ray cluster")
    first.send_signal(signal.SIGINT)
    said(first, 130)
    nothing_is_left(cluster, here)


def test_from_outside_through_rays_client(cluster: RayNodes, job: Path, here: Path) -> None:
    address = f"ray://127.0.0.1:{cluster.client_port}"
    said(scav("probe", job, here, "--on", "ray", "--ray-address", address, "--nodes", "2"))
    assert [row["nodes"] for row in rows(job)] == [1, 2]
    nothing_is_left(cluster, here)


@contextlib.contextmanager
def something_else() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_cannot_be_is_one_line(cluster: RayNodes, job: Path, here: Path) -> None:
    def refused(*options: str) -> str:
        (line,) = said(scav("probe", job, here, "--on", "ray", *options), 1)[1].splitlines()
        return line

    assert refused("--ray-address", "127.0.0.1:1").startswith(
        "Error: no Ray cluster at 127.0.0.1:1: connection refused"
    )
    assert refused("--ray-address", "local") == "Error: --ray-address: write host:6379, ray://host:10001 or auto"
    with something_else() as address:
        assert refused("--ray-address", address).startswith(f"Error: no Ray cluster at {address}: something else")
    at = ("--ray-address", cluster.address)
    few = "Error: a probe needs 1 node with 2 CPUs, and the Ray cluster has 2 nodes of 1 CPU"
    assert refused(*at, "--workers", "2") == few
    assert refused(*at, "--writes-steps").startswith("Error: --writes-steps: has no meaning with --on ray")
    cluster.start_node("--num-cpus=2", "--num-gpus=1")
    no_gpus = "Error: a probe needs 2 nodes with 1 GPU each, and the Ray cluster has "
    assert refused(*at).startswith(no_gpus)
    assert "2 nodes of 0 GPUs" in refused(*at)
    assert "1 node of 1 GPU" in refused(*at)
    cluster.remove(2)
    assert rows(job) == []


PRETEND = """
import json, sys, ray
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
from ray.experimental import internal_kv
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
key, space = CLUSTER_METADATA_KEY, {"namespace": KV_NAMESPACE_CLUSTER}
told = json.loads(internal_kv._internal_kv_get(key, **space))
internal_kv._internal_kv_put(key, json.dumps(told | {"ray_version": "2.9.3"}), **space)
"""


def test_another_version_is_one_line(job: Path, here: Path) -> None:
    """A real cluster, which says that it was started by an older one."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder, ray_nodes(Path(folder) / "ray", 1) as old:
        subprocess.run([sys.executable, "-c", PRETEND, old.address], env=old.environment, check=True)
        for address in (old.address,):
            _, error = said(scav("probe", job, here, "--on", "ray", "--ray-address", address), 1)
            (line,) = error.splitlines()
            assert line.startswith(f"Error: Ray here and at {address} must be of one version: ")
            assert "2.9.3" in line
