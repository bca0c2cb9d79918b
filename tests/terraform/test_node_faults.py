"""Nodes that fail stop: each fault is caused, and what is left costs nothing and says why."""

import importlib.util
import json
import os
import re
import signal
import stat
import sys
import time

import pytest
from agent_node import AGENT, ME, RUN, STOPPABLE_JOB, until
from stand_ins import PATIENCE_SECONDS, wait_until

OTHER = ME | {"InstanceId": "i-other", "LaunchTime": "2025-01-01T00:00:09+00:00"}
SILENT_JOB = "trap 'exit 143' TERM; while :; do sleep 0.05; done"


def leave_mark(world, name):
    (world.stored / name).parent.mkdir(parents=True, exist_ok=True)
    (world.stored / name).touch()


def marks(world, name):
    return sorted(path.name for path in world.stored.glob(f"{name}/*"))


# (a) No route to AWS: user data has scheduled a shutdown, which only contact with AWS postpones.


def test_a_node_that_reaches_aws_postpones_its_shutdown_and_one_that_does_not_never_does(world):
    (world.root / "no-route").touch()
    with world.start("deadline") as agent:
        for _ in range(2):  # it goes on trying
            wait_until(lambda: "cannot read the start of the run: Could not connect" in agent.stdout.readline())
        assert world.calls == []
        (world.root / "no-route").unlink()
        wait_until(lambda: world.calls)
        agent.kill()
        agent.communicate()
    # 30 minutes to start, an hour to wait, an hour to run, and 15 minutes.
    assert world.calls == ["shutdown -h +165"]


def test_the_shutdown_is_the_first_thing_that_user_data_does():
    script = (AGENT.parent / "start.sh.tftpl").read_text(encoding="utf-8")
    words = [line.split()[0] for line in script.splitlines() if re.match(r"[a-z]+ ", line)]
    assert words[:4] == ["set", "umask", "trap", "shutdown"]


# (b) An agent that fails again and again is counted, and ends the run with the reason.


def test_an_agent_that_fails_again_and_again_ends_the_run(world):
    """The disk is full: no checkpoint can be fetched."""
    leave_mark(world, "checkpoints/epoch-1.pt")
    (world.root / "disk-full").touch()
    assert world.run_as_systemd_does("train") == RUN["max_failures"]
    assert world.why_failed.startswith(
        "the agent failed 5 times, the last time: CalledProcessError: [Errno 28] No space"
    )
    assert world.scaled_to_zero
    assert world.containers == []


def test_with_s3_denied_the_run_ends_without_leaving_its_reason_there(world):
    (world.root / "s3-denied").touch()
    assert world.run_as_systemd_does("train") == RUN["max_failures"]
    assert world.scaled_to_zero
    assert not (world.stored / "_FAILED").exists()


def test_failures_of_agent_and_job_count_together_and_a_new_checkpoint_counts_them_anew(world):
    (world.root / "notes").mkdir()
    (world.root / "notes" / "failures.json").write_text("[4, 0]")
    world.set_job("exit 1")
    world.run("train")
    assert len(world.containers) == 1
    (world.stored / "_FAILED").unlink()
    leave_mark(world, "checkpoints/epoch-1.pt")
    world.run("train")
    assert len(world.containers) == 1 + 5


def test_only_the_newest_checkpoint_is_fetched(world):
    now = time.time()
    for epoch in range(1, 5):
        leave_mark(world, f"checkpoints/epoch-{epoch}.pt")
        os.utime(world.stored / f"checkpoints/epoch-{epoch}.pt", (now + 600 * epoch - 6000,) * 2)
    leave_mark(world, "checkpoints/latest")
    world.set_job("ls > ../seen")
    world.run("train")
    assert (world.root / "state" / "seen").read_text().split() == ["epoch-4.pt", "latest"]
    assert marks(world, "checkpoints") == ["epoch-1.pt", "epoch-2.pt", "epoch-3.pt", "epoch-4.pt", "latest"]


@pytest.fixture(scope="module")
def newest():
    """The agent's own function; its module reads the run's settings, of which it needs none here."""
    cloud = type(sys)("cloud")
    cloud.RUN = cloud.STATE = cloud.aws = cloud.stored = None
    spec = importlib.util.spec_from_file_location("agent_checkpoints", AGENT / "checkpoints.py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get("cloud")
    sys.modules["cloud"] = cloud
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["cloud"]
        if before is not None:
            sys.modules["cloud"] = before
    return module.newest


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"last.pt": 0, "best.pt": 900}, ["best.pt", "last.pt"], id="fixed-names"),
        pytest.param({"a-1.pt": 0, "a-2.pt": 900}, ["a-2.pt"], id="one-file"),
        pytest.param({"resnet50-9.pt": 0, "resnet50-10.pt": 900}, ["resnet50-10.pt"], id="a-number-in-every-name"),
        pytest.param({"gpt2.pt": 0}, ["gpt2.pt"], id="one-with-a-number"),
        pytest.param(
            {"s-1/r0": 0, "s-1/r1": 0, "s-2/r0": 900, "s-2/r1": 900, "s-3/r0": 1800, "s-3/r1": 1800},
            ["s-2", "s-3"],
            id="folders-of-several-files-and-the-one-before",
        ),
        pytest.param(
            {"m-1.pt": 0, "o-1.pt": 0, "m-2.pt": 900, "o-2.pt": 900, "m-3.pt": 1800},
            ["m-3.pt"],
            id="by-number-across-names",
        ),
        pytest.param(
            {"1.r0": 0, "1.r1": 0, "2.r0": 900, "2.r1": 901, "3.r0": 1800, "3.r1": 2500},
            ["2.r0", "2.r1", "3.r0", "3.r1"],
            id="ranks-of-one-step-stored-late",
        ),
        pytest.param({"rank0.pt": 900, "rank1.pt": 950}, ["rank0.pt", "rank1.pt"], id="ranks-over-and-over"),
    ],
)
def test_what_is_newest(newest, stored, wanted):
    assert sorted(newest(stored)) == wanted


# (c) Success that may not scale the group.


def test_after_success_a_node_that_may_not_scale_the_group_shuts_down(world):
    (world.root / "aws-refuses").touch()
    world.run("train")
    assert (world.stored / "_SUCCESS").exists()
    assert world.calls[-1] == "shutdown -h now"


# (d) A container whose user is not root.


def test_restored_checkpoints_can_be_written_by_whoever_the_container_runs_as(world):
    leave_mark(world, "checkpoints/step-1/shard.pt")
    world.checkpoints.chmod(0o1755)
    world.run("train")
    folder, file = world.checkpoints / "step-1", world.checkpoints / "step-1" / "shard.pt"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (world.checkpoints, folder, file)]
    assert modes == [0o777, 0o777, 0o666]  # without the sticky bit, under which nobody else may replace a file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_container_that_is_not_root_replaces_its_checkpoint(world):
    for folder in [world.checkpoints, *world.checkpoints.parents][:-2]:
        folder.chmod(folder.stat().st_mode | 0o111)
    leave_mark(world, "checkpoints/last.pt")
    world.set_job(
        "exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'echo new > x.tmp && mv x.tmp last.pt'"
    )
    world.run("train")
    assert (world.stored / "checkpoints" / "last.pt").read_text() == "new\n"


# (e) One clock: it counts from when all nodes were there.


def test_the_runtime_counts_from_when_all_nodes_were_there(world):
    world.set_run(node_count=2)
    with world.start("train") as agent:
        wait_until(lambda: world.lines("looks"))
        assert not (world.stored / "_STARTED").exists()
        world.set_nodes(ME, OTHER)
        wait_until((world.stored / "_STARTED").exists)
        agent.kill()
        agent.communicate()


def test_the_runtime_of_a_probe_counts_from_its_first_node(world):
    world.set_run(runtime_includes_waiting=True, max_runtime_seconds=0)
    world.run("deadline")
    assert (world.stored / "_STARTED").exists()
    assert world.why_failed == "the maximum runtime is used up"


def test_a_restart_does_not_set_the_clock_back(world):
    leave_mark(world, "_STARTED")
    os.utime(world.stored / "_STARTED", (1, 1))
    world.run("train")
    assert (world.stored / "_STARTED").stat().st_mtime == 1


def test_a_node_whose_run_never_starts_ends_it(world):
    """An hour and a half is for starting, from when user data ran."""
    before = time.time() - 5401
    os.utime(world.root / "run.json", (before, before))
    world.run("deadline")
    assert world.why_failed == "the time to start is used up"
    assert world.scaled_to_zero


# (f) A job that hangs.


def test_a_job_that_stalls_is_started_again_and_then_given_up(world):
    world.set_run(max_silence_seconds=0.4)
    world.set_job(SILENT_JOB)
    world.run("train")
    assert len(world.containers) == 2
    assert world.why_failed == "6 failures without a new checkpoint, the last one: the job stalled"
    assert world.scaled_to_zero


@pytest.mark.parametrize(
    "sign",
    ["echo step", "touch step-$(date +%s%N).pt", "mkdir -p {alive}; touch {alive}/i-other"],
    ids=["output", "files", "another-node"],
)
def test_a_job_with_a_sign_of_life_goes_on(world, sign):
    """Signs come much more often than every half minute of silence; the mark of one is all that is waited for."""
    world.set_run(max_silence_seconds=30)
    alive = world.stored / "_alive"
    world.set_job(f"{sign.format(alive=alive)}; {until(alive)}; echo done")
    world.run("train")
    assert len(world.containers) == 1
    assert (world.stored / "_SUCCESS").exists()


# (g) EFA that is not there.


def test_a_run_that_asks_for_efa_ends_where_no_node_has_it(world):
    world.set_run(efa=True)
    world.run("train")
    assert world.containers == []
    assert "EFA was asked for" in world.why_failed
    assert world.scaled_to_zero


def test_efa_devices_are_handed_to_the_container(world):
    world.set_run(efa=True)
    (world.root / "infiniband").mkdir()
    (world.root / "infiniband" / "uverbs0").touch()
    world.run("train")
    assert f"--device={world.root / 'infiniband' / 'uverbs0'}" in world.containers[0]


# (h) One node of four that cannot pull its image.


def test_one_node_that_cannot_pull_its_image_is_replaced_and_the_run_goes_on(world):
    world.set_run(node_count=4, max_failures=2)
    world.set_nodes(ME, OTHER, OTHER | {"InstanceId": "i-third"}, OTHER | {"InstanceId": "i-fourth"})
    (world.root / "registry-refuses").touch()
    with world.start("train") as agent:
        wait_until(lambda: marks(world, "_unfit") == ["i-me"])
        assert agent.poll() is None  # the other one may still be pulling: is it the node, or the image?
        leave_mark(world, "_fit/i-other")
        agent.communicate(timeout=PATIENCE_SECONDS)
    assert marks(world, "_draining") == ["i-me"]
    replaced = "autoscaling set-instance-health --instance-id i-me --health-status Unhealthy"
    assert world.calls == [f"{replaced} --no-should-respect-grace-period", "shutdown -h now"]
    assert not (world.stored / "_FAILED").exists()


def test_nodes_that_are_unfit_one_after_the_other_end_the_run(world):
    world.set_run(max_failures=2)
    for mark in ("_fit/i-other", "_unfit/i-earlier"):
        leave_mark(world, mark)
    (world.root / "registry-refuses").touch()
    world.run("train")
    assert world.why_failed.startswith("too many unfit nodes without a new checkpoint, the last one: cannot pull")
    assert world.scaled_to_zero


# (i) A broken GPU.

XID = "[ 12.3] NVRM: Xid (PCI:0000:00:1e): {}, pid=17, name=python, Ch 00000008\n"


def test_a_node_with_a_fatal_xid_is_replaced_before_it_starts(world):
    leave_mark(world, "_fit/i-other")
    (world.root / "dmesg").write_text(XID.format(31) + XID.format(79))
    output = world.run("train")
    assert "this node cannot take part: [ 12.3] NVRM: Xid (PCI:0000:00:1e): 79" in output
    assert world.containers == []
    assert world.calls[-1] == "shutdown -h now"


def test_an_xid_that_the_job_itself_may_cause_is_no_reason(world):
    (world.root / "dmesg").write_text(XID.format(31))
    world.run("train")
    assert len(world.containers) == 1


def test_a_gpu_that_is_lost_while_the_job_runs_makes_the_node_leave(world):
    world.set_job(f"touch '{world.root}/gpu-lost'; exit 1")
    world.run("train")
    assert len(world.containers) == 1
    assert marks(world, "_draining") == ["i-me"]
    assert world.calls[-1] == "shutdown -h now"


def test_fewer_gpus_than_planned_are_a_fault(world):
    world.set_run(gpus_per_node=16)
    world.run("train")
    assert world.why_failed == "nvidia-smi shows 8 of 16 GPUs"


# (j) A spot notice.


def test_after_a_spot_notice_the_node_is_unhealthy_as_soon_as_its_checkpoint_is_stored(world):
    world.set_job(STOPPABLE_JOB)
    with world.start("train") as agent:
        wait_until((world.checkpoints / "running.tmp").exists)
        world.tell("spot/instance-action", '{"action": "terminate"}')
        world.run("watch")
        assert not any("set-instance-health" in call for call in world.calls)
        agent.send_signal(signal.SIGTERM)  # as systemctl stop does
        agent.communicate(timeout=PATIENCE_SECONDS)
    assert (world.stored / "checkpoints" / "last.pt").exists()
    assert "set-instance-health --instance-id i-me --health-status Unhealthy" in world.calls[-1]


def test_a_node_that_is_stopped_without_a_notice_stays_healthy(world):
    world.set_job(STOPPABLE_JOB)
    with world.start("train") as agent:
        wait_until((world.checkpoints / "running.tmp").exists)
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=PATIENCE_SECONDS)
    assert world.calls == []


# (k) The reason.


def test_a_failed_run_says_why_and_stays_failed(world):
    topic = "arn:aws:sns:us-east-1:123456789012:runs"
    world.set_run(max_failures=1, topic=topic)
    world.set_job("echo no such data set; exit 2")
    world.run("train")
    report = json.loads((world.stored / "_FAILED").read_text())
    assert (report["run_id"], "no such data set" in report["reason"]) == ("run-1", True)
    (told,) = [call for call in world.calls if call.startswith("sns publish")]
    assert topic in told
    assert "no such data set" in told
    world.run("train")
    assert len(world.containers) == 1  # a node that replaces this one ends, too


def test_user_data_says_what_failed(world):
    world.run("fail", "the machine image has no docker")
    assert world.why_failed == "the machine image has no docker"
    assert world.scaled_to_zero


def test_the_agent_works_without_its_comments():
    """As user data has it: what is removed leaves no function without a body."""
    source = (AGENT.parents[1] / "user_data.tf").read_text(encoding="utf-8")
    pattern = json.loads('"' + re.search(r'docstrings_and_comments = "/(.*)/"', source)[1] + '"')
    for path in AGENT.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        bare = re.sub(pattern, "", text)
        compile(bare, path.name, "exec")
        assert len(bare) < 0.95 * len(text), path.name
