"""The agent on a node: runs the job, keeps its checkpoints, ends the run.

`train` runs torchrun in the container until the job is done; `watch` stops it on a spot notice; `deadline`
ends the run at its maximum runtime; `stop` ends it now; `memory` receives checkpoints on a node without GPUs.
"""
# ruff: noqa: S603, S607

import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import memory
from checkpoints import Checkpoints, Mirror
from cloud import (
    FAILED,
    POLL_SECONDS,
    RUN,
    STATE,
    Heartbeat,
    finished,
    log,
    metadata,
    nodes,
    put,
    reason,
    scale_to_zero,
    started_at,
    stored,
)

NOTICE_POLL_SECONDS = 5
PORT = 29400


def train():
    """Run the job until it is done, with the same number of nodes every time."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    me = metadata("instance-id")
    heartbeat = Heartbeat(me)
    if finished():
        log("this run is finished")
        stop()
        return
    if not pulled_image(heartbeat):
        stop()
        return
    checkpoints = Checkpoints(memory.MemoryTier() if RUN["memory_group"] else None)
    job = Job(me, heartbeat, checkpoints, Mirror("results", f"results/{me}"))
    failures, newest = 0, 0
    while not finished() and failures < RUN["max_failures"]:
        host = wait_for_nodes(heartbeat)
        if host is None:
            log(f"gave up: not all nodes came within {RUN['max_wait_seconds']} s")
            stop()
            return
        checkpoints.restore()
        log(f"torchrun starts, rendezvous on {host['InstanceId']}")
        succeeded = job.run(host)
        if succeeded:
            checkpoints.settle()
            put(f"_done/{me}")
            wait_for_success(me)
        # A job that fails again and again with every node there and no new checkpoint will not get better.
        before, newest = newest, max(stored("checkpoints/").values(), default=0)
        stuck = not succeeded and newest == before and len(nodes()) >= RUN["node_count"]
        failures = failures + 1 if stuck else 0
        time.sleep(POLL_SECONDS)
    log("done" if finished() else f"gave up after {failures} failures without a new checkpoint")
    stop()


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
    """SIGTERM first, every second counts; then the mark by which the other nodes know that this one is going."""
    subprocess.run(["systemctl", "stop", "--no-block", "scav-train.service"], check=True)
    put(f"_draining/{metadata('instance-id')}")
    log("spot notice: the job got SIGTERM")


def deadline():
    """End the run max_runtime_seconds after its first node started, whatever the job does."""
    started = None
    while True:
        try:
            started = started or started_at()
        except Exception as error:  # the stop must not depend on what AWS answers
            log(f"cannot read the start of the run: {reason(error)}")
        if time.time() >= (started or booted_at()) + RUN["max_runtime_seconds"]:
            log("maximum runtime reached")
            try:
                stop()
            except Exception as error:  # whatever AWS answers, this node costs nothing any more
                log(f"cannot scale to 0: {reason(error)}")
                subprocess.run(["shutdown", "-h", "now"], check=True)
            return
        time.sleep(POLL_SECONDS)


def booted_at():
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def stop():
    """Scale the groups to 0, which also ends this node."""
    log("the run ends: group scales to 0")
    try:
        if RUN["memory_group"]:
            memory.MemoryTier().wait_until_stored()
            scale_to_zero(RUN["memory_group"])
    finally:
        scale_to_zero(RUN["group"])


def pulled_image(heartbeat):
    """Whether the image is here. One that cannot be had ends the run: waiting for the deadline would cost GPUs."""
    heartbeat("pulling")
    for attempt in range(RUN["max_failures"]):
        try:
            pull_image()
            return True
        except subprocess.CalledProcessError as error:
            log(f"cannot pull the image: {reason(error)}")
            heartbeat("failed", code=error.returncode, log=str(reason(error)).splitlines()[-40:])
            time.sleep(POLL_SECONDS * (attempt + 1))
    return False


def pull_image():
    registry = RUN["image"].split("/")[0]
    if ".dkr.ecr." in registry:
        region = registry.split(".")[3]
        password = command("aws", "ecr", "get-login-password", "--region", region)
        command("docker", "login", "--username", "AWS", "--password-stdin", registry, stdin=password)
    log(f"pulling {RUN['image']}")
    command("docker", "pull", "--quiet", RUN["image"])


def command(*words, stdin=None):
    return subprocess.run(words, input=stdin, check=True, capture_output=True, text=True).stdout


class Job:
    """One container after another on this node, and what it writes."""

    def __init__(self, me, heartbeat, checkpoints, results):
        self.me = me
        self.heartbeat = heartbeat
        self.checkpoints = checkpoints
        self.results = results

    def run(self, host):
        """Run torchrun once. False when it failed, or the rendezvous host changed and all have to start again."""
        subprocess.run(["docker", "rm", "--force", "scav-train"], check=False, capture_output=True)
        process = subprocess.Popen(
            container_command(self.me, host),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        last_lines = deque(maxlen=40)
        reader = threading.Thread(target=follow, args=(process.stdout, last_lines), daemon=True)
        reader.start()
        try:
            code = self.wait(process, host)
        finally:
            if process.poll() is None:
                # torchrun passes SIGTERM on and gives its workers 30 seconds, time for a last checkpoint.
                subprocess.run(["docker", "stop", "-t", "45", "scav-train"], check=False)
                process.wait()
            self.upload()
        reader.join(timeout=5)
        if code is not None:
            log(f"torchrun ended with code {code}")
            self.heartbeat("done" if code == 0 else "failed", code=code, log=list(last_lines))
        return code == 0

    def wait(self, process, host):
        """The exit code, or None when the rendezvous host changed."""
        while True:
            try:
                return process.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            try:
                self.heartbeat("running")
                self.upload()
                if [node["InstanceId"] for node in nodes()[:1]] not in ([], [host["InstanceId"]]):
                    log("the rendezvous host changed")
                    return None
            except FAILED as error:  # not a reason to end a running job
                log(f"will try again: {reason(error)}")

    def upload(self):
        self.checkpoints.upload()
        self.results.upload()


def follow(stream, last_lines):
    for line in stream:
        print(line, end="", flush=True)
        last_lines.append(line.rstrip("\n")[-500:])


def container_command(me, host):
    settings = {
        "nnodes": RUN["node_count"],
        "nproc-per-node": RUN["gpus_per_node"],
        "max-restarts": RUN["max_restarts"],
        "rdzv-backend": "c10d",
        "rdzv-id": RUN["run_id"],
        "rdzv-endpoint": f"{host['PrivateIpAddress']}:{PORT}",
        "rdzv-conf": f"join_timeout=1800,is_host={int(host['InstanceId'] == me)}",
        "local-addr": metadata("local-ipv4"),
    }
    # Shared with the launcher's, the store of a restarted group still holds the addresses of the dead one (torch 2.13).
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "SCAV_NODE_BOOTED": str(round(booted_at(), 3))}
    environment = {**own, **RUN["environment"]}
    if RUN["command"]:
        flags = [f"--{name}={value}" for name, value in settings.items()]
        entry, arguments = ["--entrypoint", "torchrun"], [*flags, *RUN["command"]]
    else:  # the image calls torchrun itself, which reads its options from here
        environment.update({f"PET_{n.upper().replace('-', '_')}": str(v) for n, v in settings.items()})
        entry, arguments = [], []
    devices = sorted(Path("/dev/infiniband").glob("uverbs*")) if RUN["efa"] else []
    logs = {"group": RUN["log_group"], "region": RUN["region"], "stream": f"{me}/train"}
    return [
        *("docker", "run", "--rm", "--init", "--name", "scav-train", "--gpus", "all"),
        *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--volume", f"{STATE / 'checkpoints'}:{environment['SCAV_CHECKPOINT_DIR']}"),
        *("--volume", f"{STATE / 'results'}:{environment['SCAV_RESULTS_DIR']}"),
        *("--log-driver", "awslogs", "--log-opt", "mode=non-blocking"),
        *(part for name, value in logs.items() for part in ("--log-opt", f"awslogs-{name}={value}")),
        *(f"--device={device}" for device in devices),
        *(part for name, value in sorted(environment.items()) for part in ("--env", f"{name}={value}")),
        *entry,
        RUN["image"],
        *arguments,
    ]


def wait_for_nodes(heartbeat):
    """The rendezvous host, once all nodes are there: the world size is fixed, nothing can run before.

    None when the others do not come: those that are here cost money and do nothing.
    """
    patience = time.monotonic() + RUN["max_wait_seconds"]
    while time.monotonic() < patience:
        found = nodes()
        if len(found) >= RUN["node_count"]:
            return found[0]
        heartbeat("waiting", nodes=len(found))
        log(f"{len(found)} of {RUN['node_count']} nodes are there")
        time.sleep(POLL_SECONDS)
    return None


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
        done = {key.rsplit("/", 1)[1] for key in stored("_done/")}
        if all(node["InstanceId"] in done for node in nodes()):
            return
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    {"train": train, "watch": watch, "deadline": deadline, "stop": stop, "memory": memory.serve}[sys.argv[1]]()
