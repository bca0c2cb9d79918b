"""Whether this node can do its part: GPUs, EFA, the image. One that cannot is replaced; if none can, the run ends."""
# ruff: noqa: S603

import os
import re
import subprocess
import time
from pathlib import Path

from cloud import POLL_SECONDS, RUN, attempt, log, mark_unhealthy, marked, newest_checkpoint, nodes, put, reason, stored
from ending import fail, shut_down

EFA_DEVICES = Path(os.environ.get("SCAV_EFA_DEVICES", "/dev/infiniband"))
# What the driver reports of a GPU that does not come back by itself: memory beyond repair, a link, a lost GPU.
# Others may be the job's own fault (13, 31, 43, 45).
FATAL_XIDS = {48, 62, 64, 74, 79, 95, 119, 120, 140}


def fit(me, heartbeat):
    """Whether the job may start here. If not, this node is about to go, or the run has ended."""
    why = gpu_fault() or efa_fault() or image_fault(heartbeat)
    if why:
        replaced_or_ended(me, why)
        return False
    put(f"_fit/{me}")
    return True


def replaced_or_ended(me, why):
    """What is wrong with every node is wrong with the run: another node would be no better."""
    log(f"this node cannot take part: {why}")
    put(f"_unfit/{me}", why)
    while not stored("_fit/"):
        if not {node["InstanceId"] for node in nodes()} - marked("_unfit"):
            fail(why)
            return
        time.sleep(POLL_SECONDS)
    newest = newest_checkpoint()
    if len([time for time in stored("_unfit/").values() if time > newest]) >= RUN["max_failures"]:
        fail(f"too many unfit nodes without a new checkpoint, the last one: {why}")
        return
    attempt("say that this node leaves", put, f"_draining/{me}")
    mark_unhealthy(me)
    shut_down()


def gpu_fault():
    """None when every GPU answers and the driver has reported nothing fatal."""
    query = ["nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"]
    try:
        rows = command(*query).strip().splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stdout", None) or ""
        return f"nvidia-smi fails: {reason(error)} {told}".strip()
    if len(rows) < RUN["gpus_per_node"]:
        return f"nvidia-smi shows {len(rows)} of {RUN['gpus_per_node']} GPUs"
    broken = [row for row in rows if row.split(",")[-1].strip() not in ("0", "[N/A]", "[Not Supported]", "N/A")]
    if broken:
        return f"GPU with memory errors (index, count): {'; '.join(broken)}"
    return next((line.strip() for line in kernel_log() if int(xid(line) or 0) in FATAL_XIDS), None)


def kernel_log():
    try:
        return command("dmesg").splitlines()
    except (OSError, subprocess.CalledProcessError):  # not to be read here: nvidia-smi has to do
        return []


def xid(line):
    found = re.search(r"NVRM: Xid \(.*?\): (\d+)", line)
    return found and found.group(1)


def efa_devices():
    return sorted(EFA_DEVICES.glob("uverbs*")) if RUN["efa"] else []


def efa_fault():
    """Over TCP the job would run many times slower than planned, and nobody would know why."""
    if RUN["efa"] and not efa_devices():
        return f"EFA was asked for and {EFA_DEVICES} has no device: the machine image needs the EFA driver"
    return None


def image_fault(heartbeat):
    heartbeat("pulling")
    why = None
    for attempts in range(1, RUN["max_failures"] + 1):
        try:
            pull_image()
            return None
        except subprocess.CalledProcessError as error:
            why = f"cannot pull the image: {reason(error)}"
            log(why)
            heartbeat("failed", code=error.returncode, log=reason(error).splitlines()[-40:])
            time.sleep(POLL_SECONDS * attempts)
    return why


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
