"""What surrounds a node, made of files: AWS, docker and systemd as commands, and the instance's metadata service.

A folder (`WORLD`) holds it all: `s3/` is S3, `nodes.json` EC2 (group -> instances), `metadata/` what the instance says
about itself, `job.sh` what the container does, `runs` the argument lists that containers got, `calls` the rest.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

AWS = r"""
import datetime, json, os, pathlib, shutil, sys
world = pathlib.Path(os.environ["WORLD"])
s3 = world / "s3"
words = sys.argv[1:]
for option in ("--region", "--output"):
    if option in words:
        place = words.index(option)
        del words[place : place + 2]
value = lambda name: words[words.index(name) + 1]
inside = lambda uri: s3 / uri.removeprefix("s3://")
if words[:2] == ["s3api", "list-objects-v2"]:
    root = s3 / value("--bucket")
    keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix != ".new")
    stamp = lambda key: datetime.datetime.fromtimestamp((root / key).stat().st_mtime, datetime.timezone.utc).isoformat()
    found = [{"Key": key, "LastModified": stamp(key)} for key in keys if key.startswith(value("--prefix"))]
    print(json.dumps({"Contents": found} if found else {}))
elif words[:2] == ["s3", "cp"]:
    if (world / "s3-refuses").exists() and words[2] != "-":
        sys.exit("SlowDown")
    target = inside(words[3])
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.{os.getpid()}.new")
    new.write_bytes(sys.stdin.buffer.read() if words[2] == "-" else pathlib.Path(words[2]).read_bytes())
    new.replace(target)
    with (world / "copies").open("a") as copies:
        copies.write(f"{words[2]} {words[3]}\n")
elif words[:2] == ["s3", "rm"]:
    inside(words[2]).unlink(missing_ok=True)
elif words[:2] == ["s3", "sync"]:
    for path in inside(words[2]).rglob("*"):
        local = pathlib.Path(words[3]) / path.relative_to(inside(words[2]))
        if path.is_file() and not (local.exists() and abs(local.stat().st_mtime - path.stat().st_mtime) < 0.001):
            local.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, local)
            with (world / "copies").open("a") as copies:
                copies.write(f"{path} {local}\n")
elif words[:2] == ["ec2", "describe-instances"]:
    group = words[-1].rpartition("=")[2]
    nodes = json.loads((world / "nodes.json").read_text())
    print(json.dumps({"Reservations": [{"Instances": nodes.get(group, [])}]}))
elif words[0] == "autoscaling":
    with (world / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    if (world / "aws-refuses").exists():
        sys.exit("AccessDenied")
elif words[0] != "logs":
    sys.exit(f"unexpected: {words}")
"""

# The container is a shell script: it gets the signals, its argument list is written down.
DOCKER = r"""
import json, os, pathlib, signal, sys
world = pathlib.Path(os.environ["WORLD"])
if sys.argv[1] == "run":
    with (world / "runs").open("a") as runs:
        runs.write(json.dumps(sys.argv[1:]) + "\n")
    (world / "pid").write_text(str(os.getpid()))
    os.execv("/bin/sh", ["sh", str(world / "job.sh")])
if sys.argv[1] == "pull" and (world / "registry-refuses").exists():
    sys.exit("manifest unknown")
if sys.argv[1] == "stop":
    try:
        os.kill(int((world / "pid").read_text()), signal.SIGTERM)
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


def write_commands(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in {"aws": AWS, "docker": DOCKER, "systemctl": SYSTEMCTL, "shutdown": SHUTDOWN}.items():
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
        (self.root / "nodes.new").write_text(json.dumps(groups), encoding="utf-8")
        (self.root / "nodes.new").replace(self.root / "nodes.json")

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


def wait_until(condition: Callable[[], object], seconds: float = 30) -> float:
    """Seconds that it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + seconds, "waited in vain"
        time.sleep(0.02)
    return time.monotonic() - start
