"""What the agent asks of AWS and of the instance: one run, its bucket prefix, its groups.

Needs python3 (3.8 or newer) and the AWS CLI, and nothing else: it runs on whatever the machine image has.
"""
# ruff: noqa: S310, S603

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from datetime import datetime
from http.client import HTTPException
from pathlib import Path

RUN_FILE = Path(os.environ.get("SCAV_RUN_FILE", "/etc/scav/run.json"))
RUN = json.loads(RUN_FILE.read_text(encoding="utf-8"))
RUN["gang"] = RUN["group"]  # whose nodes train: the on-demand group's once its nodes have replaced these (market.py)
NODE_STARTED = RUN_FILE.stat().st_mtime  # when user data ran, which it does once
STATE = Path(os.environ.get("SCAV_STATE_DIR", "/var/lib/scav"))
# In memory: what is counted there is counted on a full disk too. It outlives the services, not the machine.
NOTES = Path(os.environ.get("SCAV_NOTES_DIR", "/run/scav"))
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
POLL_SECONDS = float(os.environ.get("SCAV_POLL_SECONDS", "15"))
# The metadata service and the other nodes are never behind a proxy.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
FAILED = (OSError, HTTPException, subprocess.SubprocessError)


# On-demand nodes take over from these (market.py): the job stops here. No docstring: user data leaves them out.
class TakenOver(Exception):
    pass


def nodes():
    """Running nodes that stay. All agree on the first: on-demand before spot, then the oldest."""
    leaving = marked("_draining")
    found = [node for node in running(RUN["gang"]) if node["InstanceId"] not in leaving]
    return sorted(found, key=lambda node: node.get("InstanceLifecycle") == "spot")


def running(group):
    """Running nodes of a group, oldest first."""
    reply = aws(
        *("ec2", "describe-instances", "--filters", "Name=instance-state-name,Values=running"),
        f"Name=tag:aws:autoscaling:groupName,Values={group}",
    )
    found = [instance for reservation in reply["Reservations"] for instance in reservation["Instances"]]
    return sorted(found, key=lambda node: (node["LaunchTime"], node["InstanceId"]))


def scale_to_zero(group):
    aws(*("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", group, "--desired-capacity", "0"))


def mark_unhealthy(instance):
    """The group ends the node and starts another in its place, without waiting until it finds out itself."""
    words = ("--instance-id", instance, "--health-status", "Unhealthy", "--no-should-respect-grace-period")
    attempt("mark this node unhealthy", aws, "autoscaling", "set-instance-health", *words)


def finished():
    """In success or in failure: nobody starts the job again."""
    return bool(stored("_SUCCESS") or stored("_FAILED"))


def started_at():
    """When all nodes were there for the first time, by S3's clock; None before."""
    return stored("_STARTED").get(f"{RUN['run_id']}/_STARTED")


def newest_checkpoint():
    return max(stored("checkpoints/").values(), default=0)


def marked(name):
    """The instances that left a mark of this name."""
    return {key.rsplit("/", 1)[1] for key in stored(f"{name}/")}


def stored(name):
    """Key and time of the run's objects that begin with this name (a list: a missing object is no error)."""
    prefix = f"{RUN['run_id']}/{name}"
    reply = aws("s3api", "list-objects-v2", "--bucket", RUN["bucket"], "--prefix", prefix) or {}
    return {item["Key"]: seconds(item["LastModified"]) for item in reply.get("Contents", [])}


def seconds(time_text):
    """Version 1 of the AWS CLI writes `Z` for the time zone, which Python before 3.11 does not read."""
    return datetime.fromisoformat(time_text.replace("Z", "+00:00")).timestamp()


def put(name, text=""):
    aws("s3", "cp", "-", f"s3://{RUN['bucket']}/{RUN['run_id']}/{name}", "--only-show-errors", stdin=text)


def aws(*arguments, stdin=None):
    command = ["aws", "--region", RUN["region"], "--output", "json", *arguments]
    reply = subprocess.run(command, check=True, capture_output=True, text=True, input=stdin).stdout
    return json.loads(reply) if reply.strip() else None


def metadata(path):
    """A value from the instance metadata (version 2), or None where there is none."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    request = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT", headers=ttl)
    token = DIRECT.open(request, timeout=5).read().decode()
    headers = {"X-aws-ec2-metadata-token": token}
    try:
        request = urllib.request.Request(f"{METADATA}/latest/meta-data/{path}", headers=headers)
        return DIRECT.open(request, timeout=5).read().decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


class Heartbeat:
    """Tells S3 what this node is doing: at once when that changes, else every heartbeat_seconds."""

    def __init__(self, me):
        self.me = me
        self.last = (None, 0.0)

    def __call__(self, phase, **facts):
        now = time.time()
        if phase == self.last[0] and now - self.last[1] < RUN["heartbeat_seconds"]:
            return
        self.last = (phase, now)
        report = {"instance_id": self.me, "phase": phase, "time": round(now, 3), **facts}
        attempt("write a heartbeat", put, f"heartbeats/{self.me}.json", json.dumps(report))


def log(message):
    """To the journal, and as far as possible to the run's log group."""
    print(message, flush=True)
    try:
        where = ["--log-group-name", RUN["log_group"], "--log-stream-name", f"{metadata('instance-id')}/node"]
        create = ["aws", "--region", RUN["region"], "logs", "create-log-stream", *where]
        subprocess.run(create, check=False, capture_output=True)  # it may exist
        event = [{"timestamp": int(time.time() * 1000), "message": message}]
        aws("logs", "put-log-events", *where, "--log-events", json.dumps(event))
    except FAILED as error:
        print(f"not sent to CloudWatch: {reason(error)}", flush=True)


def attempt(what, call, *arguments):
    """Whether it worked: for what the run can do without."""
    try:
        call(*arguments)
    except FAILED as error:
        print(f"cannot {what}: {reason(error)}", flush=True)
        return False
    return True


def reason(error):
    return str(getattr(error, "stderr", None) or error).strip()
