"""Two nodes with a link of known bandwidth between them, in namespaces that are gone with this process.

`python two_nodes.py MEGABITS FOLDER WORDS...` gives the words to torchrun on either side of the link, in FOLDER, where
each side leaves a log. To be run under `unshare` (see OWN_NAMESPACES): this process is one side, a child in another
network namespace the other. Nothing of the machine's own network is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LEFT, RIGHT = "10.77.0.1", "10.77.0.2"
LIMIT_SECONDS = 1200
GRACE_SECONDS = 10
PROBE = ("-m", "probes.run", "train.py")
OUTPUT = "probe.json"
# A gradient of 4 MB and hardly any computation that could hide it.
GRADIENT = """
import torch
model = torch.nn.Linear(1024, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 1024)).square().mean().backward()
    optimizer.step()
"""
# Root keeps its user namespace, in which the kernel may load the module that shapes.
OWN_NAMESPACES = [
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
    *("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
]


def why_not() -> str | None:
    """Why this machine cannot have such a link; None when it can."""
    missing = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    command = ["unshare", *OWN_NAMESPACES, sys.executable, __file__, "100"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    return None if tried.returncode == 0 else f"no shaped link here: {tried.stderr.strip().splitlines()[-1:]}"


def link(megabits: int) -> int:
    """The process whose network namespace is the other side; both sides send at most at this rate."""
    other = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{other.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(other.pid))
    for inside, address in (([], LEFT), (on_the_right(other.pid), RIGHT)):
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        shaping = f"rate {megabits}mbit burst 64kb latency 100ms".split()
        run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *shaping)
    return other.pid


def on_the_right(process: int) -> list[str]:
    return ["nsenter", "--target", str(process), "--net"]


def over_a_link(megabits: int, folder: Path, *words: str) -> None:
    """What torchrun does with these words on two nodes; raises with their logs when it failed."""
    command = ["unshare", *OWN_NAMESPACES, sys.executable, __file__, str(megabits), str(folder), *words]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = "\n".join(path.read_text() for path in folder.glob("*.log"))
    assert finished.returncode == 0, finished.stderr + logs


def run_both(folder: Path, words: list[str], other: int) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "SCAV_GPU_BATCH": "8",
        "SCAV_CHECKPOINT_DIR": str(folder),
        "SCAV_PROBE_OUTPUT": str(folder / OUTPUT),
        "SCAV_PROBE_WINDOWS": "2",
        "SCAV_PROBE_WINDOW_STEPS": "5",
        "SCAV_PROBE_NOISE": "0",
    }
    nodes = []
    for rank, (inside, address) in enumerate((([], LEFT), (on_the_right(other), RIGHT))):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        where = [f"--node-rank={rank}", f"--master-addr={LEFT}", "--master-port=29500", f"--local-addr={address}"]
        with (folder / f"node-{rank}.log").open("wb") as log:
            command = [*inside, *torchrun, *where, *words]
            nodes.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(node.poll() is None for node in nodes) and time.monotonic() < deadline:
        if any(node.poll() for node in nodes):  # its launcher would wait minutes for the one that failed
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        time.sleep(0.1)
    # Once the probe has written its record, how the processes part says nothing.
    if not (folder / OUTPUT).exists() and any(node.poll() != 0 for node in nodes):
        sys.exit(f"nodes ended with {[node.poll() for node in nodes]}")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.nice(-10)  # the link is to be measured, not whatever else this machine does meanwhile
    right = link(int(sys.argv[1]))
    if sys.argv[2:]:
        run_both(Path(sys.argv[2]), sys.argv[3:], right)
