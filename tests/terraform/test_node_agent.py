"""The agent that user data installs on a node, against a metadata service and commands that are stand-ins."""

import ast
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from agent_node import (
    ADDRESS,
    AGENT,
    HOSTILE,
    ME,
    RUN,
    STOPPABLE_JOB,
    until,
)
from stand_ins import PATIENCE_SECONDS, wait_until


@pytest.mark.parametrize("path", sorted(AGENT.glob("*.py")), ids=lambda path: path.name)
def test_the_agent_is_for_the_python_of_old_images_too(path):
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("path", sorted(AGENT.glob("*.py")), ids=lambda path: path.name)
def test_the_agent_is_python_without_its_docstrings_and_comments_too(path):
    """Which is how nodes get it (user_data.tf)."""
    terraform = (AGENT.parents[1] / "user_data.tf").read_text(encoding="utf-8")
    pattern = re.search(r'docstrings_and_comments = "/(.*)/"', terraform)[1].replace("\\\\", "\\")
    left = re.sub(pattern, "", path.read_text(encoding="utf-8"))
    ast.parse(left, feature_version=(3, 8))


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
    world.set_job("echo CUDA out of memory >&2; exit 1")
    world.run("train")
    why = "5 failures without a new checkpoint, the last one: torchrun ended with code 1: CUDA out of memory"
    assert world.why_failed == why
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
    results = world.stored / "results" / "i-me"
    world.set_job(
        f"cd {world.results}; echo first > measurements.jsonl; touch gone.txt; {until(results / 'gone.txt')};"
        "rm gone.txt; echo >> more.txt"
    )
    world.run("train")
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
        agent.communicate(timeout=PATIENCE_SECONDS)
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
        agent.communicate(timeout=PATIENCE_SECONDS)
    endpoints = [next(word for word in run if word.startswith("--rdzv-endpoint=")) for run in world.containers]
    assert endpoints == ["--rdzv-endpoint=10.0.0.2:29400", "--rdzv-endpoint=10.0.0.4:29400"]


def test_a_node_that_is_done_waits_for_the_others_and_takes_over_when_the_first_is_lost(world):
    first = ME | {"InstanceId": "i-first", "LaunchTime": "2025-01-01T00:00:00+00:00"}
    world.set_run(node_count=2)
    world.set_nodes(ME, first)
    with world.start("train") as agent:
        wait_until((world.stored / "_done" / "i-me").exists)
        looked = len(world.lines("looks"))
        wait_until(lambda: len(world.lines("looks")) > looked + 2)
        assert not (world.stored / "_SUCCESS").exists()
        world.set_nodes(ME)
        agent.communicate(timeout=PATIENCE_SECONDS)
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


WATCH_FOR_A_WHILE = """\
import time, node
looks, waits = [], []
time.sleep = waits.append
node.metadata = lambda path: looks.append(path) or (path == "spot/instance-action" and len(waits) == 3)
node.leave = lambda: print(sum(waits), len(looks))
node.watch()
"""


def test_a_spot_notice_is_looked_for_every_five_seconds(world):
    """Of the two minutes that a notice leaves, hardly any may pass before the job hears of it."""
    command = [sys.executable, "-B", "-c", WATCH_FOR_A_WHILE]
    told = subprocess.run(command, env=world.environment, cwd=AGENT, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["15", "7"]


def test_the_run_ends_at_its_maximum_runtime_counted_from_its_first_node(world):
    started_two_hours_ago(world)
    world.run("deadline")
    assert world.scaled_to_zero
    assert world.why_failed == "the maximum runtime is used up"
    assert "shutdown -h now" not in world.calls


def test_a_node_that_may_not_scale_the_group_ends_itself_at_the_deadline(world):
    started_two_hours_ago(world)
    (world.root / "aws-refuses").touch()
    assert "AccessDenied" in world.run("deadline")
    assert world.calls[-1] == "shutdown -h now"


def started_two_hours_ago(world):
    (world.stored / "_STARTED").touch()
    two_hours_ago = time.time() - 7200
    os.utime(world.stored / "_STARTED", (two_hours_ago, two_hours_ago))


def test_nodes_that_wait_in_vain_for_the_others_end_the_run(world):
    world.set_run(node_count=2, max_wait_seconds=0)
    world.run("train")
    assert world.why_failed == "not all nodes came within 0 s"
    assert world.scaled_to_zero


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00"], ids=["v1", "Z", "v2"]
)
def test_times_are_read_as_both_versions_of_the_aws_cli_write_them(world, text):
    program = f"import cloud; print(cloud.seconds({text!r}))"
    command = [sys.executable, "-B", "-c", program]
    finished = subprocess.run(command, env=world.environment, cwd=AGENT, capture_output=True, text=True, check=True)
    assert float(finished.stdout) == 1767225600.0
