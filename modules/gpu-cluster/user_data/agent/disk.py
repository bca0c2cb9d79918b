"""The node's own NVMe disks, where they hold as much as the root volume would: faster, paid for anyway, and its own."""
# ruff: noqa: S603

import os
import shutil
import subprocess
from pathlib import Path

from cloud import RUN, STATE, log, reason

DISKS = Path(os.environ.get("SCAV_DISKS", "/dev/disk/by-id"))
# Where AWS's machine images have mounted them already.
MOUNTED = Path(os.environ.get("SCAV_MOUNTED_DISKS", "/opt/dlami/nvme"))
JOINED = "/dev/md/scav"


def use_own_disks():
    """Put STATE on them; on the root volume otherwise. After a restart of the node as well."""
    if not os.path.ismount(STATE):
        try:
            mount_own_disks()
        except (OSError, subprocess.CalledProcessError) as error:
            log(f"the local disks are not used: {reason(error)}")
    for folder in ("checkpoints", "results"):
        (STATE / folder).mkdir(parents=True, exist_ok=True)
        (STATE / folder).chmod(0o777)  # whoever the container's user is


def mount_own_disks():
    needed = RUN["root_volume_gib"] << 30
    if os.path.ismount(MOUNTED):
        if shutil.disk_usage(MOUNTED).total >= needed:
            (MOUNTED / "scav").mkdir(exist_ok=True)
            command("mount", "--bind", MOUNTED / "scav", STATE)
        return
    # Each has two names, the second of which ends in its namespace; partitions are nobody's here.
    names = DISKS.glob("nvme-Amazon_EC2_NVMe_Instance_Storage_*")
    disks = sorted({path.resolve() for path in names if "-part" not in path.name})
    if sum(int(command("blockdev", "--getsize64", disk)) for disk in disks) < needed:
        return
    device = disks[0]
    if len(disks) > 1:
        device = JOINED
        command("mdadm", "--create", device, "--run", "--level=0", f"--raid-devices={len(disks)}", *disks)
    command("mkfs.ext4", "-q", "-F", "-E", "nodiscard", device)
    command("mount", "-o", "noatime", device, STATE)
    log(f"{len(disks)} local disks hold the node's work")


def command(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout
