"""User data as Terraform renders it, really executed: on machines made of namespaces, with a metadata service."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import re
import subprocess
import time

import pytest
from mocked_plan import SETTINGS, copy_module, plan_mocked, user_data
from namespace_node import BootedNode, require_namespaces
from stand_ins import World, wait_until

pytestmark = pytest.mark.slow

STORED = "s3/scav-run-1-*/run-1"
ENDLESS_JOB = (
    "trap 'echo last > /var/lib/scav/checkpoints/last.pt; exit 143' TERM; touch \"$WORLD/running\";"
    "while :; do sleep 0.05; done"
)
TIER = {"checkpoint_tier": {"instance_type": "r6i.4xlarge", "node_count": 1}}


@pytest.fixture(scope="module")
def scripts(terraform, tmp_path_factory):
    """Start scripts by variant: one node, four nodes, a memory node, a run of one minute."""
    root = copy_module(tmp_path_factory.mktemp("rendered"))
    terraform.init(root)
    variants = {"one": {}, "four": {"node_count": 4}, "tier": TIER, "short": {"max_runtime_seconds": 60}}
    plans = plan_mocked(terraform, root, {name: SETTINGS | changes for name, changes in variants.items()})
    found = {name: user_data(plan['aws_launch_template.node["g5.12xlarge"]']) for name, plan in plans.items()}
    return found | {"memory": user_data(plans["tier"]["aws_launch_template.memory[0]"])}


@pytest.fixture(autouse=True)
def _namespaces():
    require_namespaces()


def node(number: int = 1, **more: str) -> dict[str, str]:
    return {
        "InstanceId": f"i-{number}",
        "PrivateIpAddress": f"10.0.0.{number}",
        "LaunchTime": f"2025-01-01T00:00:0{number}+00:00",
        **more,
    }


def boot(root, script, me, *, nodes=None, s3=None, job="exit 0"):
    root.mkdir(exist_ok=True)
    world = World(root, me, s3=s3)
    world.set_groups({"scav-run-1": nodes or [me]})
    world.set_job(job)
    return BootedNode(world, script, me["PrivateIpAddress"])


def stored(world, name):
    return next(iter(world.root.glob(f"{STORED}/{name}")), None)


def torchrun(world):
    """torchrun's own arguments, of the only container."""
    (command,) = world.containers
    image = command.index(SETTINGS["container_image"])
    assert command[image - 2 : image] == ["--entrypoint", "torchrun"]
    return command[image + 1 :]


def test_the_rendered_script_passes_shellcheck(tool, scripts, tmp_path):
    for name, script in scripts.items():
        file = tmp_path / f"{name}.sh"
        file.write_text(script, encoding="utf-8")
        command = [tool("shellcheck"), "--enable=all", "--exclude=SC2250", str(file)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout


def test_one_node_trains_and_ends_the_run(scripts, tmp_path):
    with boot(tmp_path / "node", scripts["one"], node()) as machine:
        machine.wait_until_started()
        wait_until(lambda: machine.world.groups_scaled_to_zero)
        world = machine.world
        assert torchrun(world) == [
            "--nnodes=1",
            "--nproc-per-node=4",
            "--max-restarts=3",
            "--rdzv-backend=c10d",
            "--rdzv-id=run-1",
            "--rdzv-endpoint=10.0.0.1:29400",
            "--rdzv-conf=join_timeout=1800,is_host=1",
            "--local-addr=10.0.0.1",
            "train.py",
            "--epochs",
            "90",
        ]
        (command,) = world.containers
        assert {"SCAV_GLOBAL_BATCH=1024", "SCAV_GPU_BATCH=64", "SCAV_CHECKPOINT_DIR=/checkpoints"} < set(command)
        assert "/var/lib/scav/checkpoints:/checkpoints" in command
        assert stored(world, "_SUCCESS")
        # Ten minutes for a sign of AWS, set before anything else. Then the last stop, after all that the run may take:
        # 10 hours, one for waiting, half for starting, and a quarter more.
        assert [call for call in world.calls if call.startswith("shutdown")] == ["shutdown -h +10", "shutdown -h +705"]


def test_four_nodes_meet_at_the_on_demand_node(scripts, tmp_path):
    spot = {"InstanceLifecycle": "spot"}
    nodes = [node(1, **spot), node(2, **spot), node(3), node(4, **spot)]
    s3 = tmp_path / "s3"
    s3.mkdir()
    with contextlib.ExitStack() as stack:
        machines = [
            stack.enter_context(boot(tmp_path / me["InstanceId"], scripts["four"], me, nodes=nodes, s3=s3))
            for me in nodes
        ]
        wait_until(lambda: all(machine.world.groups_scaled_to_zero for machine in machines))
        lines = [torchrun(machine.world) for machine in machines]
    assert all({"--nnodes=4", "--nproc-per-node=4", "--rdzv-endpoint=10.0.0.3:29400"} < set(line) for line in lines)
    assert [line[6][-1] for line in lines] == ["0", "0", "1", "0"]
    assert [line[7] for line in lines] == [f"--local-addr=10.0.0.{number}" for number in (1, 2, 3, 4)]
    assert sorted(path.name for path in tmp_path.glob(f"{STORED}/_done/*")) == ["i-1", "i-2", "i-3", "i-4"]


def test_a_spot_notice_reaches_the_job(scripts, tmp_path):
    with boot(tmp_path / "node", scripts["one"], node(), job=ENDLESS_JOB) as machine:
        world = machine.world
        wait_until((world.root / "running").exists)
        world.tell("spot/instance-action", json.dumps({"action": "terminate", "time": "2025-01-01T00:02:00Z"}))
        wait_until(lambda: stored(world, "checkpoints/last.pt"))
        wait_until(lambda: stored(world, "_draining/i-1"))
        assert "systemctl stop --no-block scav-train.service" in world.calls
        assert stored(world, "_SUCCESS") is None
        assert world.groups_scaled_to_zero == []


def test_a_finished_run_is_not_started_again(scripts, tmp_path):
    s3 = tmp_path / "s3"
    s3.mkdir()
    with boot(tmp_path / "first", scripts["one"], node(1), s3=s3) as machine:
        wait_until(lambda: machine.world.groups_scaled_to_zero)
    with boot(tmp_path / "again", scripts["one"], node(2), s3=s3) as machine:
        wait_until(lambda: machine.world.groups_scaled_to_zero)
        assert machine.world.containers == []


def test_the_timer_ends_a_job_that_does_not_end(scripts, tmp_path):
    """Once the job runs, the run's first node turns out to have started 55 seconds ago; one minute is all it has."""
    run = json.loads(gzip.decompress(base64.b64decode(re.search(r"<<'SCAV_RUN'\n(\S+)\n", scripts["short"])[1])))
    started = tmp_path / "s3" / run["bucket"] / "run-1" / "_STARTED"
    started.parent.mkdir(parents=True)
    started.touch()
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "s3-is-silent").touch()
    with boot(tmp_path / "node", scripts["short"], node(), s3=tmp_path / "s3", job=ENDLESS_JOB) as machine:
        world = machine.world
        wait_until((world.root / "running").exists)
        os.utime(started, (time.time() - 55, time.time() - 55))
        (world.root / "s3-is-silent").unlink()
        wait_until(lambda: world.groups_scaled_to_zero)
        assert time.time() - started.stat().st_mtime >= 60
        assert world.containers
        assert stored(world, "_SUCCESS") is None
        assert "the run failed: the maximum runtime is used up" in world.lines("scav-deadline.service.log")


@pytest.mark.parametrize("aws_refuses", [False, True])
def test_an_image_without_a_tool_ends_the_run_instead_of_idling(scripts, tmp_path, aws_refuses):
    script = scripts["one"].replace("for tool in aws docker ", "for tool in aws no-such-tool ")
    assert script != scripts["one"]
    (tmp_path / "node").mkdir()
    if aws_refuses:
        (tmp_path / "node" / "aws-refuses").touch()
    with boot(tmp_path / "node", script, node()) as machine:
        wait_until((tmp_path / "node" / "user-data-exit-code").exists)
        assert machine.world.groups_scaled_to_zero == ["scav-run-1"]
        assert machine.world.containers == []
        assert (machine.world.calls[-1] == "shutdown -h now") == aws_refuses


def test_a_memory_node_takes_checkpoints(scripts, tmp_path):
    with boot(tmp_path / "node", scripts["memory"], node()) as machine:
        machine.wait_until_started()
        world = machine.world
        wait_until(lambda: "takes checkpoints" in "".join(world.lines("scav-memory.service.log")))
        put = "import urllib.request as u; u.urlopen(u.Request('http://10.0.0.1:29401/a.pt', method='PUT', data=b'x'))"
        done = machine.inside("python3", "-c", put)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: stored(world, "checkpoints/a.pt"))
        assert sorted(path.name for path in world.root.glob("*.service.pid")) == [
            "scav-deadline.service.pid",
            "scav-memory.service.pid",
        ]
