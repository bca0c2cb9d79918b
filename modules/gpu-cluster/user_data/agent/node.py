"""The agent on a node: runs the job, keeps its checkpoints, ends the run.

`train` runs torchrun in the container until the job is done; `watch` stops it on a spot notice; `deadline`
ends the run at its maximum runtime; `fail REASON` ends it now; `memory` receives checkpoints on a node without GPUs.
"""
# ruff: noqa: S603, S607

import math
import signal
import subprocess
import sys
import time

from checkpoints import Checkpoints, Mirror
from cloud import (
    NODE_STARTED,
    NOTES,
    POLL_SECONDS,
    RUN,
    Heartbeat,
    TakenOver,
    finished,
    log,
    mark_unhealthy,
    marked,
    metadata,
    nodes,
    put,
    reason,
    started_at,
)
from disk import use_own_disks
from ending import Failures, fail, stop
from fitness import fit, gpu_fault, replaced_or_ended
from job import Job
from source import unpack

NOTICE_POLL_SECONDS = 5
# What booting and pulling the image may take, before a node waits for the others.
START_SECONDS = 1800
WORD_SECONDS = 600
LEAVING = NOTES / "leaving"


def train():
    """Run the job until it is done, with the same number of nodes every time."""
    me = metadata("instance-id")
    heartbeat = Heartbeat(me)
    if finished():
        log("this run is finished")
        stop()
        return
    if not fit(me, heartbeat):
        return
    use_own_disks()
    try:
        work(me, heartbeat)
    except TakenOver:
        from market import turn

        turn(me)


def work(me, heartbeat):
    market = None
    if RUN["policy"]:  # only nodes that need them have these files
        from market import joined

        market = joined(me)
    if RUN["data"]:
        from data import fetch

        fetch(me, heartbeat)
    checkpoints = Checkpoints(memory_tier())
    job = Job(me, heartbeat, checkpoints, Mirror("results", f"results/{me}"), market)
    failures = Failures()
    while not finished():
        host = wait_for_nodes(me, heartbeat, market)
        if host is None:
            fail(f"not all nodes came within {RUN['max_wait_seconds']} s")
            return
        if not started_at():
            put("_STARTED")
        checkpoints.restore()
        unpack()
        log(f"torchrun starts, rendezvous on {host['InstanceId']}")
        outcome = job.run(host)
        if outcome == "succeeded":
            checkpoints.settle()
            put(f"_done/{me}")
            wait_for_success(me)
        elif broken := gpu_fault():
            replaced_or_ended(me, broken)
            return
        elif given_up(failures, outcome):
            fail(f"{failures.count} failures without a new checkpoint, the last one: {job.how_it_ended}")
            return
        time.sleep(POLL_SECONDS)
    log("done")
    stop()


def memory_tier():
    if not RUN["memory_group"]:
        return None
    from memory import MemoryTier

    return MemoryTier()


def given_up(failures, outcome):
    """A job that fails again and again with every node there and no new checkpoint will not get better."""
    if outcome == "moved" or len(nodes()) < RUN["node_count"]:
        return False
    # A stall costs its whole silence: after the second one it is enough.
    return failures.add(math.ceil(RUN["max_failures"] / 2) if outcome == "stalled" else 1)


def crashed(error):
    """The agent itself failed. systemd starts it again, later each time; enough of that ends the run."""
    log(f"the agent failed: {type(error).__name__}: {reason(error)}")
    failures = Failures()
    if failures.add():
        fail(f"the agent failed {failures.count} times, the last time: {type(error).__name__}: {reason(error)}")
        return
    time.sleep(POLL_SECONDS * 2**failures.count)
    raise error


def watch():
    """Poll the instance metadata; on a spot notice stop the job, which then writes a checkpoint."""
    advised = False
    while True:
        try:
            if metadata("spot/instance-action"):
                leave()
                return
            # Advice only, and often nothing follows: with a fixed number of nodes, leaving early stops them all.
            if not advised and metadata("events/recommendations/rebalance"):
                log("rebalance recommendation: this node is likely to be interrupted")
                advised = True
        except OSError as error:
            print(f"no metadata: {error}", flush=True)
        time.sleep(NOTICE_POLL_SECONDS)


def leave():
    """SIGTERM first, every second counts; then the mark by which the other nodes know that this one is going.

    `train` marks the node unhealthy when its checkpoint is stored: the group ends an unhealthy node at once.
    """
    NOTES.mkdir(parents=True, exist_ok=True)
    LEAVING.touch()
    subprocess.run(["systemctl", "stop", "--no-block", "scav-train.service"], check=True)
    put(f"_draining/{metadata('instance-id')}")
    log("spot notice: the job got SIGTERM")


def deadline():
    """End the run max_runtime_seconds after all its nodes were there first, whatever the job does."""
    contact, started, next_word = False, None, 0.0
    while True:
        if time.time() >= next_word:  # silence on all nodes is taken for their death (silence.tf)
            next_word = time.time() + WORD_SECONDS
            log("this node is up")
        try:
            started = started or started_at()
            if not contact:
                contact = True
                postpone_shutdown()
                if RUN["runtime_includes_waiting"] and not started:
                    put("_STARTED")
                    started = started_at()
            ends = started + RUN["max_runtime_seconds"] if started else NODE_STARTED + start_limit()
        except Exception as error:  # the stop must not depend on what AWS answers
            log(f"cannot read the start of the run: {reason(error)}")
            ends = (started or NODE_STARTED + start_limit()) + RUN["max_runtime_seconds"]
        if time.time() >= ends:
            what = "the maximum runtime" if started else "the time to start"
            fail(f"{what} is used up")
            return
        time.sleep(POLL_SECONDS)


def start_limit():
    return START_SECONDS + RUN["data_seconds"] + RUN["max_wait_seconds"]


def postpone_shutdown():
    """The first contact with AWS: user data would have shut the node down without. Now it is the last stop only."""
    minutes = math.ceil((start_limit() + RUN["max_runtime_seconds"]) / 60) + 15
    subprocess.run(["shutdown", "-h", f"+{minutes}"], check=True)


def wait_for_nodes(me, heartbeat, market):
    """The rendezvous host, once all nodes are there: the world size is fixed, nothing can run before.

    None when the others do not come: those that are here cost money and do nothing. For spot nodes with a policy, its
    table says for how long to wait.
    """
    patience = time.monotonic() + RUN["data_seconds"] + RUN["max_wait_seconds"]
    while market or time.monotonic() < patience:
        found = ready_nodes()
        if len(found) >= RUN["node_count"]:
            return found[0]
        heartbeat("waiting", nodes=len(found))
        log(f"{len(found)} of {RUN['node_count']} nodes are there")
        if market:
            market.obey([node["InstanceId"] for node in nodes()[:1]] == [me])
        time.sleep(POLL_SECONDS)
    return None


def ready_nodes():
    """A node that still copies data is not there yet: torchrun would give up waiting for it."""
    ready = marked("_data") if RUN["data"] else None
    return [node for node in nodes() if ready is None or node["InstanceId"] in ready]


def wait_for_success(me):
    """The first node declares it, whichever that is by now; no other may start the job again meanwhile."""
    while not finished():
        if [node["InstanceId"] for node in nodes()[:1]] == [me]:
            wait_for_uploads()
            put("_SUCCESS")
        else:
            time.sleep(POLL_SECONDS)


def wait_for_uploads(limit_seconds=900):
    """Other nodes may still upload their part of the last checkpoint."""
    until = time.time() + limit_seconds
    while time.time() < until:
        done = marked("_done")
        if all(node["InstanceId"] in done for node in nodes()):
            return
        time.sleep(POLL_SECONDS)


def memory():
    from memory_node import serve  # only memory nodes have it

    serve()


def main(service, *arguments):
    if service != "train":
        {"watch": watch, "deadline": deadline, "fail": fail, "memory": memory}[service](*arguments)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        train()
    except SystemExit:
        if LEAVING.exists():
            mark_unhealthy(metadata("instance-id"))
        raise
    except Exception as error:
        crashed(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
