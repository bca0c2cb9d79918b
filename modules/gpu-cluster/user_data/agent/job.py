"""One container after another on this node: torchrun in it, what it says and writes, and whether it still does."""
# ruff: noqa: S603, S607

import re
import subprocess
import threading
import time
from collections import deque

from cloud import FAILED, POLL_SECONDS, RUN, STATE, log, metadata, nodes, put, reason, stored
from fitness import efa_devices
from source import SOURCE

PORT = 29400
# Of such a line whoever watches reads how far the job is.
PROGRESS = re.compile(r"(step|iter|epoch|loss|samples)\D{0,12}\d", re.IGNORECASE)
INSTALL = 'python -m pip install --quiet --requirement requirements.txt && exec torchrun "$@"'


class Job:
    """What `run` returns: "succeeded", "failed", "stalled", or "moved" when the rendezvous host changed."""

    def __init__(self, me, heartbeat, checkpoints, results, market=None):
        self.me = me
        self.heartbeat = heartbeat
        self.checkpoints = checkpoints
        self.results = results
        self.market = market
        self.how_it_ended = ""

    def run(self, host):
        subprocess.run(["docker", "rm", "--force", "scav-train"], check=False, capture_output=True)
        process = subprocess.Popen(
            container_command(self.me, host),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        signs, last_lines = Signs(self.me, host), deque(maxlen=40)
        reader = threading.Thread(target=follow, args=(process.stdout, last_lines, signs), daemon=True)
        reader.start()
        try:
            outcome = self.wait(process, host, signs)
        finally:
            if process.poll() is None:
                # torchrun passes SIGTERM on and gives its workers 30 seconds, time for a last checkpoint.
                subprocess.run(["docker", "stop", "-t", "45", "scav-train"], check=False)
                process.wait()
            self.upload()
            if self.market:
                self.market.job_stopped(signs.working_since)
        reader.join(timeout=5)
        self.how_it_ended = f"the job {outcome}"
        if outcome in ("succeeded", "failed"):
            code = process.returncode
            self.how_it_ended = f"torchrun ended with code {code}: {last_lines[-1] if last_lines else 'no output'}"
            log(self.how_it_ended)
            phase = "done" if code == 0 else "failed"
            self.heartbeat(phase, code=code, log=list(last_lines), said=signs.said)
        return outcome

    def wait(self, process, host, signs):
        while True:
            try:
                return "failed" if process.wait(timeout=POLL_SECONDS) else "succeeded"
            except subprocess.TimeoutExpired:
                pass
            try:
                self.heartbeat("running", said=signs.said)
                signs.seen |= self.upload()
                if [node["InstanceId"] for node in nodes()[:1]] not in ([], [host["InstanceId"]]):
                    log("the rendezvous host changed")
                    return "moved"
                if self.market:
                    self.market.obey(signs.leads, signs.working_since, together=len(nodes()) >= RUN["node_count"])
                if signs.stalled():
                    log(f"no sign of the job on any node for {RUN['max_silence_seconds']} s")
                    return "stalled"
            except FAILED as error:  # not a reason to end a running job
                log(f"will try again: {reason(error)}")

    def upload(self):
        """Whether there was anything new."""
        return self.checkpoints.upload() | self.results.upload()


class Signs:
    """A line of output or a new file is a sign of life, on any node: S3 has a mark of each, the rendezvous host looks.

    Four times in max_silence_seconds, so that a stall is seen after one to one and a half of them.
    """

    def __init__(self, me, host):
        self.me = me
        self.leads = host["InstanceId"] == me
        self.seen = False
        self.said = None
        self.began = time.time()
        self.working_since = self.began  # or since the first word of progress
        self.next_look = self.began + RUN["max_silence_seconds"] / 4

    def stalled(self):
        now = time.time()
        if now < self.next_look:
            return False
        self.next_look = now + RUN["max_silence_seconds"] / 4
        if self.seen:
            self.seen = False
            put(f"_alive/{self.me}")
        last = max([self.began, *stored("_alive/").values()]) if self.leads else now
        return now - last > RUN["max_silence_seconds"]


def follow(stream, last_lines, signs):
    for line in stream:
        print(line, end="", flush=True)
        last_lines.append(line.rstrip("\n")[-500:])
        signs.seen = True
        if PROGRESS.search(line):
            if signs.said is None:
                signs.working_since = time.time()
            signs.said = last_lines[-1]


def booted_at():
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


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
        if (SOURCE / "requirements.txt").exists():
            entry, arguments = ["--entrypoint", "sh"], ["-c", INSTALL, "torchrun", *arguments]
    else:  # the image calls torchrun itself, which reads its options from here
        environment.update({f"PET_{n.upper().replace('-', '_')}": str(v) for n, v in settings.items()})
        entry, arguments = [], []
    logs = {"group": RUN["log_group"], "region": RUN["region"], "stream": f"{me}/train"}
    return [
        *("docker", "run", "--rm", "--init", "--name", "scav-train", "--gpus", "all"),
        *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--volume", f"{STATE / 'checkpoints'}:{environment['SCAV_CHECKPOINT_DIR']}"),
        *("--volume", f"{STATE / 'results'}:{environment['SCAV_RESULTS_DIR']}"),
        *(("--volume", f"{STATE / 'data'}:{environment['SCAV_DATA_DIR']}:ro") if RUN["data"] else ()),
        *(("--volume", f"{SOURCE}:/workspace", "--workdir", "/workspace") if RUN["source"] else ()),
        *("--log-driver", "awslogs", "--log-opt", "mode=non-blocking"),
        *(part for name, value in logs.items() for part in ("--log-opt", f"awslogs-{name}={value}")),
        *(f"--device={device}" for device in efa_devices()),
        *(part for name, value in sorted(environment.items()) for part in ("--env", f"{name}={value}")),
        *entry,
        RUN["image"],
        *arguments,
    ]
