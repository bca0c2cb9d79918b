"""Processes that have imported PyTorch before they are asked for: a stretch of a run then begins almost at once.

`python -m probes.warm` imports, says `ready` on stdout, and reads orders from stdin, one JSON object per line: how many
workers, their arguments, folder, environment and log. A leader with a process group of its own starts them as torchrun
would; if one of them fails it ends the others. Its process number is answered at once, its exit code when it is over.

Workers are copies (fork) of this process, which has touched no GPU. The end of stdin is the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

_BEGAN = time.time()

import torch  # noqa: E402 - imports take what is timed here
import torch.distributed as dist  # noqa: E402

from probes import run  # noqa: E402
from probes.ending import end  # noqa: E402

torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first optimizer imports more than all before it

_IMPORT_SECONDS = time.time() - _BEGAN
_GRACE_SECONDS = 30.0  # torchrun's, for those whose neighbour failed
_POLL_SECONDS = 0.02


def serve() -> list[str]:
    """Comes back in workers alone, with their arguments."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        leader = os.fork()
        if not leader:
            return _lead(order)
        print(leader, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1]), flush=True)
    sys.exit(0)


def _lead(order: dict[str, Any]) -> list[str]:
    """Comes back in workers alone, too."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the whole group hears it, and the workers decide
    _redirect(order["log"])
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    told, tell = os.pipe()
    workers: list[int] = []
    for rank in range(order["workers"]):
        worker = os.fork()
        if not worker:
            os.close(tell)
            _become(rank, order["workers"], told)
            return list(order["arguments"])
        workers.append(worker)
    os.close(told)
    # Its threads begin here, after the last fork. Nobody else can have taken the port by the time workers want it.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    os.write(tell, f"{store.port}\n".encode() * len(workers))
    os.close(tell)
    return _wait(workers)


def _redirect(log: str) -> None:
    nothing, written = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number, file in ((0, nothing), (1, written), (2, written)):
        os.dup2(file, number)


def _become(rank: int, count: int, told: int) -> None:
    """What torchrun says to a worker. What the copy has of this process's chance is drawn anew."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    digits = b""
    while not digits.endswith(b"\n"):
        digits += os.read(told, 1) or b"0\n"
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
    sizes = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_WORLD_SIZE": 1}
    store = {"MASTER_ADDR": "localhost", "MASTER_PORT": int(digits)}
    torchrun = {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
    os.environ.update({name: str(value) for name, value in (ranks | sizes | store | torchrun).items()})
    # A probe says how long starting takes where nothing was imported before.
    asked = float(os.environ.get("SCAV_PROBE_STARTED", time.time()))
    os.environ["SCAV_PROBE_STARTED"] = repr(asked - _IMPORT_SECONDS)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _wait(workers: list[int]) -> NoReturn:
    """For all of them; the code of the first that failed."""
    failed, left, deadline = 0, set(workers), float("inf")
    while left:
        worker, status = os.waitpid(-1, os.WNOHANG if failed else 0)
        if worker:
            left.discard(worker)
            code = os.waitstatus_to_exitcode(status)
            if code and not failed:
                failed, deadline = code, time.monotonic() + _GRACE_SECONDS
                _signal(left, signal.SIGTERM)
        elif time.monotonic() > deadline:
            _signal(left, signal.SIGKILL)
            deadline = float("inf")
        else:
            time.sleep(_POLL_SECONDS)
    os._exit(failed if failed >= 0 else 128 - failed)


def _signal(workers: set[int], number: signal.Signals) -> None:
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, number)


if __name__ == "__main__":
    end(run.main(serve()))
