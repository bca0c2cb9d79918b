"""The agent on a training node: runs the job, keeps its checkpoints in S3, ends the run.

`train` runs torchrun in the container until the job is done; `watch` stops it on a spot notice; `deadline`
ends the run at its maximum runtime; `stop` ends it now. Needs python3 (3.8 or newer), docker and the AWS CLI.
"""
# ruff: noqa: S310, S603, S607

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

RUN = json.loads(Path(os.environ.get("SCAV_RUN_FILE", "/etc/scav/run.json")).read_text(encoding="utf-8"))
STATE = Path(os.environ.get("SCAV_STATE_DIR", "/var/lib/scav"))
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
POLL_SECONDS = float(os.environ.get("SCAV_POLL_SECONDS", "15"))
NOTICE_POLL_SECONDS = 5
FAILURE_LIMIT = 5
PORT = 29400


def train():
    """Run the job until it is done, with the same number of nodes every time."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pull_image()
    checkpoints = Checkpoints()
    me = metadata("instance-id")
    failures, newest = 0, ""
    while not finished() and failures < FAILURE_LIMIT:
        host = wait_for_nodes()
        checkpoints.restore()
        log(f"torchrun starts, rendezvous on {host['InstanceId']}")
        succeeded = run_container(me, host, checkpoints)
        checkpoints.upload()
        if succeeded:
            put(f"_done/{me}")
            if host["InstanceId"] == me:
                wait_for_uploads()
                put("_SUCCESS")
        # A job that fails again and again with every node there and no new checkpoint will not get better.
        before, newest = newest, max(stored("checkpoints/").values(), default="")
        stuck = not succeeded and newest == before and len(nodes()) >= RUN["node_count"]
        failures = failures + 1 if stuck else 0
        time.sleep(POLL_SECONDS)
    log("done" if finished() else f"gave up after {failures} failures without a new checkpoint")
    stop()


def watch():
    """Poll the instance metadata; on a spot notice stop the job, which then writes a checkpoint."""
    advised = False
    while True:
        if metadata("spot/instance-action"):
            log("spot notice: the job gets SIGTERM")
            subprocess.run(["systemctl", "stop", "scav-train.service"], check=True)
            return
        # Advice only, and often nothing follows: with a fixed number of nodes, leaving early stops them all.
        if not advised and metadata("events/recommendations/rebalance"):
            log("rebalance recommendation: this node is likely to be interrupted")
            advised = True
        time.sleep(NOTICE_POLL_SECONDS)


def deadline():
    """End the run max_runtime_seconds after its first node started, whatever the job does."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    started = None
    while True:
        try:
            started = started or started_at()
        except subprocess.CalledProcessError as error:
            log(f"cannot read the start of the run: {error.stderr}")
        if time.time() >= (started or boot) + RUN["max_runtime_seconds"]:
            log("maximum runtime reached")
            stop()
            return
        time.sleep(POLL_SECONDS)


def stop():
    """Scale the group to 0, which also ends this node."""
    log("the run ends: group scales to 0")
    group = ["--auto-scaling-group-name", RUN["group"]]
    aws("autoscaling", "set-desired-capacity", *group, "--desired-capacity", "0")


def pull_image():
    registry = RUN["image"].split("/")[0]
    if ".dkr.ecr." in registry:
        region = registry.split(".")[3]
        password = subprocess.run(
            ["aws", "ecr", "get-login-password", "--region", region], check=True, capture_output=True
        ).stdout
        login = ["docker", "login", "--username", "AWS", "--password-stdin", registry]
        subprocess.run(login, input=password, check=True)
    log(f"pulling {RUN['image']}")
    subprocess.run(["docker", "pull", "--quiet", RUN["image"]], check=True)


def run_container(me, host, checkpoints):
    """Run torchrun once. False when it failed, or the rendezvous host changed and all have to start again."""
    subprocess.run(["docker", "rm", "--force", "scav-train"], check=False, capture_output=True)
    process = subprocess.Popen(container_command(me, host))
    try:
        while True:
            try:
                code = process.wait(timeout=POLL_SECONDS)
                log(f"torchrun ended with code {code}")
                return code == 0
            except subprocess.TimeoutExpired:
                pass
            try:
                checkpoints.upload()
                if [node["InstanceId"] for node in nodes()[:1]] not in ([], [host["InstanceId"]]):
                    log("the rendezvous host changed")
                    return False
            except (OSError, subprocess.CalledProcessError) as error:  # not a reason to end a running job
                log(f"will try again: {getattr(error, 'stderr', None) or error}")
    finally:
        if process.poll() is None:
            # torchrun passes SIGTERM on and gives its workers 30 seconds, time for a last checkpoint.
            subprocess.run(["docker", "stop", "-t", "45", "scav-train"], check=False)
            process.wait()
            checkpoints.upload()


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
    environment = dict(RUN["environment"])
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
        *("--log-driver", "awslogs", "--log-opt", "mode=non-blocking"),
        *(part for name, value in logs.items() for part in ("--log-opt", f"awslogs-{name}={value}")),
        *(f"--device={device}" for device in devices),
        *(part for name, value in sorted(environment.items()) for part in ("--env", f"{name}={value}")),
        *entry,
        RUN["image"],
        *arguments,
    ]


class Checkpoints:
    """The local checkpoint folder and its copy in S3.

    Only what this node wrote or removed goes to S3: a node that merely holds an old copy must not put it over
    a newer one. A file counts as written under its final name, so the job writes to *.tmp and renames.
    """

    def __init__(self):
        self.folder = STATE / "checkpoints"
        self.index = STATE / "checkpoints.json"
        self.uri = f"s3://{RUN['bucket']}/{RUN['run_id']}/checkpoints"
        self.synced = json.loads(self.index.read_text()) if self.index.exists() else {}

    def restore(self):
        self.upload()
        # Without --exact-timestamps a newer file of the same size would not be fetched.
        aws("s3", "sync", self.uri, str(self.folder), "--exact-timestamps", "--only-show-errors")
        self.remember(self.files())

    def upload(self):
        files = self.files()
        for name in sorted(files, key=lambda name: files[name][0]):  # oldest first: a pointer file comes last
            if self.synced.get(name) != files[name]:
                aws("s3", "cp", str(self.folder / name), f"{self.uri}/{name}", "--only-show-errors")
                self.remember({**self.synced, name: files[name]})
        for name in sorted(set(self.synced) - set(files)):
            aws("s3", "rm", f"{self.uri}/{name}", "--only-show-errors")
            self.remember({other: stamp for other, stamp in self.synced.items() if other != name})

    def files(self):
        found = {}
        for path in self.folder.rglob("*"):
            try:
                stat = path.stat()
            except FileNotFoundError:  # the job has just removed it
                continue
            if path.is_file() and path.suffix not in (".tmp", ".partial"):
                found[str(path.relative_to(self.folder))] = [stat.st_mtime_ns, stat.st_size]
        return found

    def remember(self, synced):
        self.synced = synced
        self.index.write_text(json.dumps(synced))


def wait_for_nodes():
    """The rendezvous host, once all nodes are there: the world size is fixed, nothing can run before."""
    while True:
        found = nodes()
        if len(found) >= RUN["node_count"]:
            return found[0]
        log(f"{len(found)} of {RUN['node_count']} nodes are there")
        time.sleep(POLL_SECONDS)


def wait_for_uploads(limit_seconds=900):
    """Other nodes may still upload their part of the last checkpoint."""
    until = time.time() + limit_seconds
    while time.time() < until:
        done = {key.rsplit("/", 1)[1] for key in stored("_done/")}
        if all(node["InstanceId"] in done for node in nodes()):
            return
        time.sleep(POLL_SECONDS)


def nodes():
    """Running nodes, by the group's tag. All agree on the first: on-demand before spot, then the oldest."""
    reply = aws(
        *("ec2", "describe-instances", "--filters", "Name=instance-state-name,Values=running"),
        f"Name=tag:aws:autoscaling:groupName,Values={RUN['group']}",
    )
    found = [instance for reservation in reply["Reservations"] for instance in reservation["Instances"]]
    found.sort(key=lambda node: (node["LaunchTime"], node["InstanceId"]))
    return sorted(found, key=lambda node: node.get("InstanceLifecycle") == "spot")


def finished():
    return bool(stored("_SUCCESS"))


def started_at():
    """When the first node of the run started, by S3's clock; the first to ask writes it down."""
    if not stored("_STARTED"):
        put("_STARTED")
    return datetime.fromisoformat(stored("_STARTED")[f"{RUN['run_id']}/_STARTED"]).timestamp()


def stored(name):
    """Key and time of the run's objects that begin with this name (a list: a missing object is no error)."""
    prefix = f"{RUN['run_id']}/{name}"
    reply = aws("s3api", "list-objects-v2", "--bucket", RUN["bucket"], "--prefix", prefix) or {}
    return {item["Key"]: item["LastModified"] for item in reply.get("Contents", [])}


def put(name):
    aws("s3api", "put-object", "--bucket", RUN["bucket"], "--key", f"{RUN['run_id']}/{name}")


def aws(*arguments):
    command = ["aws", "--region", RUN["region"], "--output", "json", *arguments]
    reply = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(reply) if reply.strip() else None


def metadata(path):
    """A value from the instance metadata (version 2), or None where there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    request = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT", headers=ttl)
    token = opener.open(request, timeout=5).read().decode()
    headers = {"X-aws-ec2-metadata-token": token}
    try:
        request = urllib.request.Request(f"{METADATA}/latest/meta-data/{path}", headers=headers)
        return opener.open(request, timeout=5).read().decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def log(message):
    """To the journal, and as far as possible to the run's log group."""
    print(message, flush=True)
    try:
        where = ["--log-group-name", RUN["log_group"], "--log-stream-name", f"{metadata('instance-id')}/node"]
        create = ["aws", "--region", RUN["region"], "logs", "create-log-stream", *where]
        subprocess.run(create, check=False, capture_output=True)  # it may exist
        event = [{"timestamp": int(time.time() * 1000), "message": message}]
        aws("logs", "put-log-events", *where, "--log-events", json.dumps(event))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"not sent to CloudWatch: {error}", flush=True)


if __name__ == "__main__":
    {"train": train, "watch": watch, "deadline": deadline, "stop": stop}[sys.argv[1]]()
