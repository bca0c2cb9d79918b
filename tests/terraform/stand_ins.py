"""What surrounds a node, made of files: AWS, docker and systemd as commands, and the instance's metadata service.

A folder (`WORLD`) holds it all: `s3/` is S3, `nodes/` what EC2 answers for each group, `metadata/` what the instance
says about itself, `job.sh` what the container does, `runs` the argument lists that containers got, `looks` which groups
were listed, `calls` the rest. Files that exist make things fail: `no-route` everything of AWS, `s3-denied` S3,
`s3-refuses` its uploads, `aws-refuses` scaling, `disk-full` downloads, `registry-refuses` the image, `gpu-lost`
nvidia-smi; `s3-is-silent` keeps AWS from telling the deadline when the run started; `dmesg` is the kernel's log.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Minutes, because a busy machine is late with everything: only what never comes is a failure.
PATIENCE_SECONDS = 600

# There are dozens of calls in a test, so it imports nothing that takes longer than Python itself, not even json.
AWS = r"""
import os, sys, time
words, world = sys.argv[1:], os.environ["WORLD"]
for option in ("--region", "--output"):
    if option in words:
        place = words.index(option)
        del words[place : place + 2]
value = lambda name: words[words.index(name) + 1]
inside = lambda uri: f"{world}/s3/" + uri.removeprefix("s3://")
exists = lambda name: os.path.exists(f"{world}/{name}")
quoted = lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

def note(name, line):
    with open(f"{world}/{name}", "a") as file:
        file.write(f"{line}\n")

def read(path):
    with open(path, "rb") as file:
        return file.read()

def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.{os.getpid()}.new"
    with open(new, "wb") as file:
        file.write(content)
    os.replace(new, path)

def below(root):
    return [f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names if not name.endswith(".new")]

def stamp(path):
    microseconds = os.stat(path).st_mtime_ns // 1000
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(microseconds // 10**6))
    return f"{whole}.{microseconds % 10**6:06d}+00:00"

if exists("no-route"):
    sys.exit("Could not connect to the endpoint URL")
if words[0].startswith("s3") and exists("s3-denied"):
    sys.exit("AccessDenied")
if words[:2] == ["s3api", "list-objects-v2"]:
    asked_by = read(f"/proc/{os.getppid()}/cmdline").split(b"\0")
    while exists("s3-is-silent") and value("--prefix").endswith("_STARTED") and b"deadline" in asked_by:
        time.sleep(0.05)
    root = inside(value("--bucket")) + "/"
    keys = sorted(path.removeprefix(root) for path in below(root.rstrip("/")))
    found = [key for key in keys if key.startswith(value("--prefix"))]
    rows = ", ".join(f'{{"Key": {quoted(key)}, "LastModified": {quoted(stamp(root + key))}}}' for key in found)
    print(f'{{"Contents": [{rows}]}}' if rows else "{}")
elif words[:2] == ["s3", "cp"]:
    if exists("s3-refuses") and words[2] != "-":
        sys.exit("SlowDown")
    if words[2].startswith("s3://"):
        write(words[3], read(inside(words[2])))
        sys.exit()
    write(inside(words[3]), sys.stdin.buffer.read() if words[2] == "-" else read(words[2]))
    note("copies", f"{words[2]} {words[3]}")
elif words[:2] == ["s3", "rm"]:
    if os.path.exists(inside(words[2])):
        os.remove(inside(words[2]))
elif words[:2] == ["s3", "sync"]:
    import fnmatch
    if exists("disk-full"):
        sys.exit("[Errno 28] No space left on device")
    root = inside(words[2])
    chosen = [words[place + 1] for place, word in enumerate(words) if word == "--include"]
    for path in below(root):
        name = path.removeprefix(root + "/")
        if "--exclude" in words and not any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen):
            continue
        local, modified = words[3] + path.removeprefix(root), os.stat(path).st_mtime_ns
        if not os.path.exists(local) or abs(os.stat(local).st_mtime_ns - modified) >= 1_000_000:
            write(local, read(path))
            os.utime(local, ns=(modified, modified))
            note("copies", f"{path} {local}")
elif words[:2] == ["ec2", "describe-instances"]:
    group = words[-1].rpartition("=")[2]
    print(read(f"{world}/nodes/{group}").decode() if exists(f"nodes/{group}") else '{"Reservations": []}')
    note("looks", group)
elif words[0] == "autoscaling":
    note("calls", " ".join(words))
    if exists("aws-refuses"):
        sys.exit("AccessDenied")
elif words[0] == "sns":
    note("calls", " ".join(words))
elif words[0] != "logs":
    sys.exit(f"unexpected: {words}")
"""

# The container is a shell script: it gets the signals, its argument list is written down.
DOCKER = r"""
import os, sys
world, verb = os.environ["WORLD"], sys.argv[1]
if verb == "run":
    import json
    with open(f"{world}/runs", "a") as runs:
        runs.write(json.dumps(sys.argv[1:]) + "\n")
    with open(f"{world}/pid", "w") as pid:
        pid.write(str(os.getpid()))
    os.execv("/bin/sh", ["sh", f"{world}/job.sh"])
if verb == "pull" and os.path.exists(f"{world}/registry-refuses"):
    sys.exit("manifest unknown")
if verb == "stop":
    with open(f"{world}/pid") as pid:
        try:
            os.kill(int(pid.read()), 15)
        except ProcessLookupError:
            pass
"""

# Starts what a unit's ExecStart says, and stops it with SIGTERM; a unit that nobody started is only written down.
SYSTEMCTL = r"""
import os, pathlib, re, shlex, signal, subprocess, sys
world = pathlib.Path(os.environ["WORLD"])
with (world / "calls").open("a") as calls:
    calls.write("systemctl " + " ".join(sys.argv[1:]) + "\n")
verb, units = sys.argv[1], [word for word in sys.argv[2:] if not word.startswith("-")]
for unit in units:
    pid = world / f"{unit}.pid"
    if verb == "enable":
        text = pathlib.Path("/etc/systemd/system", unit).read_text()
        command = shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1])
        log = (world / f"{unit}.log").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        pid.write_text(str(process.pid))
    elif verb == "stop" and pid.exists():
        os.kill(int(pid.read_text()), signal.SIGTERM)
"""

SHUTDOWN = r"""
import os, pathlib, sys
with (pathlib.Path(os.environ["WORLD"]) / "calls").open("a") as calls:
    calls.write("shutdown " + " ".join(sys.argv[1:]) + "\n")
"""


# Eight sound GPUs, unless they are lost; and the kernel's log.
NVIDIA_SMI = r"""
import os, sys
if os.path.exists(os.environ["WORLD"] + "/gpu-lost"):
    sys.exit("Unable to determine the device handle for GPU0000:00:1E.0: GPU is lost. Reboot the system to recover")
print("\n".join(f"{index}, 0" for index in range(8)))
"""
DMESG = r"""
import os
if os.path.exists(os.environ["WORLD"] + "/dmesg"):
    with open(os.environ["WORLD"] + "/dmesg") as log:
        print(log.read())
"""
COMMANDS = {
    "aws": AWS,
    "docker": DOCKER,
    "systemctl": SYSTEMCTL,
    "shutdown": SHUTDOWN,
    "nvidia-smi": NVIDIA_SMI,
    "dmesg": DMESG,
}


def no_disks(root: Path) -> dict[str, str]:
    """A node formats what it takes for its own disks: never those of the machine that runs the tests."""
    return {"SCAV_DISKS": str(root / "disks"), "SCAV_MOUNTED_DISKS": str(root / "mounted-disks")}


def write_commands(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!{sys.executable} -ES\n{text}", encoding="utf-8")
        (folder / name).chmod(0o755)
    if not (folder / "python3").exists():
        (folder / "python3").symlink_to(sys.executable)


def metadata_server(folder: Path, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Version 2 of the instance metadata: a token first, then values, each a file of the folder."""

    class Metadata(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.answer(200, "token")

        def do_GET(self) -> None:
            value = folder / self.path.removeprefix("/latest/meta-data/")
            if self.headers.get("X-aws-ec2-metadata-token") != "token":
                self.answer(401, "")
            elif value.is_file():
                self.answer(200, value.read_text(encoding="utf-8"))
            else:
                self.answer(404, "")

        def answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer(address, Metadata)


class World:
    """The folder of one node, or of several that share S3."""

    def __init__(self, root: Path, me: dict[str, str], *, s3: Path | None = None) -> None:
        self.root = root
        for name in ("metadata", "work"):
            (root / name).mkdir(parents=True, exist_ok=True)
        if s3 is None:
            (root / "s3").mkdir()
        else:
            (root / "s3").symlink_to(s3)
        write_commands(root / "bin")
        self.tell("instance-id", me["InstanceId"])
        self.tell("local-ipv4", me["PrivateIpAddress"])
        self.set_job("exit 0")

    def tell(self, path: str, value: str) -> None:
        """What the metadata service answers from now on."""
        file = self.root / "metadata" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value, encoding="utf-8")

    def set_groups(self, groups: dict[str, list[dict[str, str]]]) -> None:
        (self.root / "nodes").mkdir(exist_ok=True)
        for group, nodes in groups.items():
            answer = {"Reservations": [{"Instances": nodes}]}
            (self.root / "nodes.new").write_text(json.dumps(answer), encoding="utf-8")
            (self.root / "nodes.new").replace(self.root / "nodes" / group)

    def set_job(self, script: str) -> None:
        (self.root / "job.sh").write_text(f"{script}\n", encoding="utf-8")

    @property
    def containers(self) -> list[list[str]]:
        return [json.loads(line) for line in self.lines("runs")]

    @property
    def calls(self) -> list[str]:
        return self.lines("calls")

    @property
    def groups_scaled_to_zero(self) -> list[str]:
        words = [call.split() for call in self.calls if call.startswith("autoscaling set-desired-capacity ")]
        return [call[call.index("--auto-scaling-group-name") + 1] for call in words if call[-1] == "0"]

    def lines(self, name: str) -> list[str]:
        file = self.root / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
