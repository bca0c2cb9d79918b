"""What the job reads: copied from S3, mounted from FSx for Lustre, or on a volume that came with the node."""
# ruff: noqa: S603

import os
import shutil
import subprocess
import time
from pathlib import Path

from cloud import POLL_SECONDS, RUN, STATE, aws, log, put, running

DATA = STATE / "data"
BY_ID = Path(os.environ.get("SCAV_DISKS", "/dev/disk/by-id"))


def fetch(me, heartbeat):
    """All of it, and the mark by which the other nodes know."""
    heartbeat("fetching")
    left = sum(source["gib"] for source in RUN["data"] if not (DATA / source["name"]).exists()) << 30
    DATA.mkdir(exist_ok=True)
    if (free := shutil.disk_usage(DATA).free) < left:
        raise ValueError(f"the data needs {left >> 30} GiB and this node's disk has {free >> 30} left")
    for source in RUN["data"]:
        folder = DATA / source["name"]
        folder.mkdir(exist_ok=True)
        log(f"fetching {source['copy'] or source['mount'] or source['volume']}")
        if source["copy"]:
            aws("s3", "sync", source["copy"], str(folder), "--only-show-errors")
            if next(folder.iterdir(), None) is None:
                raise ValueError(f"{source['copy']} has no files")
        elif not os.path.ismount(folder):
            mount(source, me, folder)
    put(f"_data/{me}")


def mount(source, me, folder):
    if source["mount"]:
        command("mount", "-t", "lustre", "-o", "ro,flock", source["mount"], folder)
    else:
        command("mount", "-o", "ro", device(source["volume"], me), folder)


def device(name, me):
    """The volume behind this name of the launch template: Nitro calls it by its ID, older machines xvdf."""
    mine = next(node for node in running(RUN["group"]) if node["InstanceId"] == me)
    volume = next(disk["Ebs"]["VolumeId"] for disk in mine["BlockDeviceMappings"] if disk["DeviceName"] == name)
    disk = BY_ID / f"nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    choices = [Path(f"{disk}-part1"), disk, Path(name.replace("/sd", "/xvd")), Path(name)]
    for _ in range(40):  # it is attached while the machine boots
        found = next((path for path in choices if path.exists()), None)
        if found:
            return found
        time.sleep(POLL_SECONDS)
    raise ValueError(f"the volume {volume} ({name}) is not there")


def command(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
