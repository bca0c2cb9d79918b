"""The machine of a played node: its first process, and the commands that user data and the agent find on it.

`python played_machine.py WORLD` covers /etc, /opt and /var/lib with folders of its own, serves the instance's metadata
on its address, runs WORLD/user-data as cloud-init would, and lives until killed, or until its standard input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

# Both ends of the line to AWS (see played_aws.py): one line of JSON each way. Files are read and written here, since
# they are the machine's own. A Unix socket, because the machine has no network to the outside.
AWS = r"""
import json, os, socket, sys  # no more than every call needs: there are several a second
LINE = socket.socket(socket.AF_UNIX)
LINE.connect(os.environ["AWS_SOCKET"])
stream = LINE.makefile("rwb")
words = [word for word in sys.argv[1:] if word not in ("--only-show-errors", "--exact-timestamps")]
for option in ("--region", "--output"):
    if option in words:
        place = words.index(option)
        del words[place : place + 2]
def ask(**more):
    stream.write(json.dumps({"instance": os.environ["INSTANCE"], "words": words, **more}).encode() + b"\n")
    stream.flush()
    reply = json.loads(stream.readline() or '{"code": 255, "error": "the connection was lost"}')
    if reply["code"]:
        print(reply["error"], file=sys.stderr)
        sys.exit(reply["code"])
    return reply
if words[:2] == ["s3", "cp"] and words[2].startswith("s3://"):
    import base64
    with open(words[3], "wb") as file:
        file.write(base64.b64decode(ask()["body"]))
elif words[:2] == ["s3", "cp"]:
    import base64
    with sys.stdin.buffer if words[2] == "-" else open(words[2], "rb") as file:
        body = file.read()
    ask(body=base64.b64encode(body).decode())
elif words[:2] == ["s3", "sync"]:
    import base64, pathlib
    folder = pathlib.Path(words[3])
    stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if path.is_file()}
    reply = ask(have={name: [stat.st_size, stat.st_mtime] for name, stat in stats.items()})
    for name, file in reply["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(file["body"]))
        os.utime(path, (file["modified"], file["modified"]))
else:
    print(ask()["out"], end="")
"""

# `run` becomes the container's process: in a root of its own, which has what this machine has, and the volumes.
DOCKER = r"""
import json, os, pathlib, signal, sys, time
world = pathlib.Path(os.environ["WORLD"])
played = json.loads((world / "played.json").read_text())
verb, words = sys.argv[1], sys.argv[2:]
WITH_VALUE = {"--name", "--gpus", "--network", "--ipc", "--ulimit", "--log-driver", "--log-opt", "--shm-size",
              "--volume", "--env", "--entrypoint", "--workdir"}
WITHOUT_VALUE = {"--rm", "--init"}

def alive():
    try:
        stat = pathlib.Path("/proc", (world / "pid").read_text(), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"

def end(seconds):
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10)):
        until = time.monotonic() + patience
        if patience and alive():
            os.kill(int((world / "pid").read_text()), number)
            while alive() and time.monotonic() < until:
                time.sleep(0.05)

def run():
    with (world / "runs").open("a") as runs:
        runs.write(json.dumps(sys.argv[1:]) + "\n")
    rest, given = list(words), []
    while rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option in WITHOUT_VALUE or option == "--device":
            continue
        if option not in WITH_VALUE:
            sys.exit(f"docker: unknown flag: {option}")
        given.append((option, value if equals else rest.pop(0)))
    values = lambda name: [value for option, value in given if option == name]
    environment = {**played["environment"], **dict(pair.split("=", 1) for pair in values("--env"))}
    volumes = [volume.split(":")[:2] for volume in values("--volume")]
    if played["script"] is not None:
        command = ["sh", "-c", played["script"]]
    else:
        command = [*values("--entrypoint"), *rest[1:]]
    folder = (values("--workdir") or ["/workspace"])[-1]
    (world / "container").mkdir(exist_ok=True)
    (world / "pid").write_text(str(os.getpid()))
    mounts = [word for volume in [[played["folder"], "/workspace"], *volumes] for word in volume]
    words_of_shell = ["bash", "-c", CONTAINER, str(world / "container"), folder, str(len(mounts)), *mounts, *command]
    os.execvpe("unshare", ["unshare", "--mount", *words_of_shell], environment)

CONTAINER = '''
set -e
folder=$1 count=$2
shift 2
mount -t tmpfs tmpfs "$0"
for place in /*; do
  if [ -L "$place" ]; then cp -P "$place" "$0/"
  elif [ -d "$place" ]; then mkdir "$0$place"; mount --rbind "$place" "$0$place"; fi
done
while [ "$count" -gt 0 ]; do
  mkdir -p "$0$2"
  mount --bind "$1" "$0$2"
  shift 2
  count=$((count - 2))
done
exec chroot "$0" sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
'''

if verb == "run":
    run()
elif verb == "pull":
    sys.exit(played["pull_error"] or 0)
elif verb == "stop":
    end(int(words[words.index("-t") + 1]) if "-t" in words else 10)
elif verb == "rm":
    end(0)
elif verb != "login":
    sys.exit(f"docker: '{verb}' is not a docker command.")
"""

# A node that shuts down is terminated, as its launch template says.
SHUTDOWN = r"""
import os, pathlib, subprocess, sys
with (pathlib.Path(os.environ["WORLD"]) / "calls").open("a") as calls:
    calls.write("shutdown " + " ".join(sys.argv[1:]) + "\n")
if sys.argv[-1] == "now":
    subprocess.run(["aws", "machine", "shutdown"], check=True)
"""


def write_commands(folder: Path) -> None:
    for name, text in {"aws": AWS, "docker": DOCKER, "shutdown": SHUTDOWN}.items():
        (folder / name).write_text(f"#!{sys.executable} -ES\n{text}", encoding="utf-8")
        (folder / name).chmod(0o755)


def boot(root: Path) -> None:
    from namespace_node import cover, run
    from stand_ins import metadata_server

    for folder in ("/etc", "/opt", "/var/lib"):
        own = root / "machine" / folder.strip("/").replace("/", "-")
        cover(Path(folder), own)
        (own / "now" / "scav").unlink(missing_ok=True)  # the host's, if it has one
    run("ip", "address", "replace", f"{os.environ['ADDRESS']}/32", "dev", "lo")
    server = metadata_server(root / "metadata", (os.environ["ADDRESS"], 80))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    script = root / "user-data"
    script.chmod(0o755)
    first = os.spawnl(os.P_NOWAIT, str(script), str(script))  # noqa: S606 - as cloud-init does, by its first line
    while True:  # the first process of a machine buries the dead
        try:
            pid, status = os.wait()
        except ChildProcessError:
            signal.pause()
        if pid == first:
            (root / "user-data-exit-code").write_text(str(os.waitstatus_to_exitcode(status)))


def end_with_the_tests() -> None:
    """Nothing is ever said there: it ends when whoever started the machine does, even by a kill."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    boot(Path(sys.argv[1]))
