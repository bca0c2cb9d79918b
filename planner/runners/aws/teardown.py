"""Destroying what a probe created: at its end, and what an earlier one left behind.

A workspace folder exists exactly as long as something of it may exist in AWS: it is written before the first
resource and removed after the last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from planner import store
from planner.adopt import adopting_plan, was_killed
from planner.errors import ScavError
from planner.render import VARIABLES_FILE
from planner.terraform import Workspace

PROBES_FOLDER = "scav-probes"
PLAN_FILE = "probe.tfplan"
_LOCK_FILE = ".lock"
_PLUGIN_CACHE = ".plugins"
_LOCK_TIMEOUT = "600s"
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Client = Callable[[str], Any]
ClientOfRegion = Callable[[str], Client]


@contextlib.contextmanager
def probing(folder: Path) -> Iterator[None]:
    """One scav at a time in a job's folder: another's cluster is not a leftover. The lock dies with its holder."""
    folder.mkdir(exist_ok=True)
    with (folder / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScavError(f"another scav is probing in {folder.parent}: wait for it or stop it") from None
        try:
            yield
        finally:
            if not leftovers(folder):
                shutil.rmtree(folder)


def leftovers(folder: Path) -> list[Path]:
    """Workspaces of probes that were not torn down."""
    return sorted(path for path in folder.glob("[!.]*") if path.is_dir()) if folder.is_dir() else []


def open_workspace(folder: Path) -> Workspace:
    """With one copy of the provider, which is large, for all clusters of a job; it goes with the last of them."""
    cache = folder.parent / _PLUGIN_CACHE
    cache.mkdir(exist_ok=True)
    shared = {"TF_PLUGIN_CACHE_DIR": str(cache.resolve()), "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE": "1"}
    # Killed, scav leaves a Terraform behind that finishes what it has begun: whoever comes next waits for it.
    return Workspace(folder, environment=shared | os.environ, lock_timeout=_LOCK_TIMEOUT)


def tear_down(folder: Path, clients: ClientOfRegion, *, say: Callable[[str], None]) -> None:
    """Deaf to Ctrl-C: half destroyed is what costs money."""
    with _deaf():
        if _may_have_created(folder):
            say(f"Destroying {folder.name}")
            terraform = open_workspace(folder)
            try:
                terraform.init()
                if was_killed(folder):
                    _adopt(terraform, clients(str(workspace_values(folder)["region"])))
                terraform.destroy()
            except ScavError as error:
                advice = f"{folder.name} is NOT destroyed and may cost money; try again: scav probe --cleanup"
                raise ScavError(f"{advice}\n{error}") from None
        shutil.rmtree(folder)


def _may_have_created(folder: Path) -> bool:
    """Terraform writes its state with the first resource, and locks it before that."""
    return was_killed(folder) or any(folder.glob("terraform.tfstate*"))


def _adopt(terraform: Workspace, client: Client) -> None:
    """What a killed Terraform created and did not write down; nothing else is created."""
    with adopting_plan(terraform, terraform.folder / PLAN_FILE, client, only_found=True) as adoption:
        if adoption.found:
            terraform.apply(adoption.plan)


def workspace_values(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(store.load_text(folder / VARIABLES_FILE))
    return values


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
