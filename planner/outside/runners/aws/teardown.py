"""Destroying what a probe created: at its end, and what an earlier one left behind.

A workspace folder exists exactly as long as something of it may exist in AWS: it is written before the first
resource and removed after the last.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from planner.errors import InputError, ScavError
from planner.outside.aws import Access, aws_errors
from planner.outside.terraform.adopt import adopting_plan
from planner.outside.terraform.workspace import Workspace

PROBES_FOLDER = "scav-probes"
PLAN_FILE = "probe.tfplan"
_LOCK_FILE = ".lock"
_PLUGIN_CACHE = ".plugins"
APPLYING_MARK = ".applying"
_UNSAVED_STATE = "errored.tfstate"
_LOCK_TIMEOUT = "600s"


@contextlib.contextmanager
def probing(folder: Path) -> Iterator[None]:
    """One scav at a time in a job's folder: another's cluster is not a leftover. The lock dies with its holder."""
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / _LOCK_FILE).open("w")
    except OSError as error:
        raise InputError(f"cannot keep the state of probes here: {error.strerror}", file=str(folder)) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScavError(f"another scav is probing in {folder.parent}: wait for it or stop it") from None
        try:
            yield
        finally:
            if not leftovers(folder):
                shutil.rmtree(folder, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """Workspaces of probes that were not torn down."""
    return sorted(path for path in folder.glob("[!.]*") if path.is_dir()) if folder.is_dir() else []


def open_workspace(folder: Path, access: Access, *, interruptible: bool = True) -> Workspace:
    """With one copy of the provider, which is large, for all clusters of a job; it goes with the last of them."""
    cache = folder.parent / _PLUGIN_CACHE
    cache.mkdir(exist_ok=True)
    shared = {"TF_PLUGIN_CACHE_DIR": str(cache.resolve()), "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE": "1"}
    # Killed, scav leaves a Terraform behind that finishes what it has begun: whoever comes next waits for it.
    return Workspace(
        folder, environment=shared | access.environment, lock_timeout=_LOCK_TIMEOUT, interruptible=interruptible
    )


def tear_down(folder: Path, access: Access, region: str, *, say: Callable[[str], None]) -> None:
    """Raises when something may be left; the folder then stays, for the next attempt."""
    if not folder.exists():
        return
    if _may_have_created(folder):
        say(f"Destroying {folder.name}")
        try:
            _destroy(open_workspace(folder, access, interruptible=False), access, region)
        except ScavError as error:
            advice = f"{folder.name} is NOT destroyed and may cost money; try again: "
            raise ScavError(f"{advice}scav probe {folder.parent.parent} --cleanup\n{error}") from None
    gone = folder.rename(folder.with_name(f".gone-{folder.name}"))  # at once, so that no half of it is taken for one
    shutil.rmtree(gone, ignore_errors=True)


def _may_have_created(folder: Path) -> bool:
    """Terraform writes its state with the first resource; what it was creating when it was stopped is not in it."""
    signs = (APPLYING_MARK, _UNSAVED_STATE)
    return any(folder.glob("terraform.tfstate*")) or any((folder / sign).exists() for sign in signs)


def _destroy(terraform: Workspace, access: Access, region: str) -> None:
    folder = terraform.folder
    terraform.init()
    if (folder / _UNSAVED_STATE).exists():  # where Terraform leaves what it could not write to its place
        terraform.push_state(folder / _UNSAVED_STATE)
        (folder / _UNSAVED_STATE).unlink()
    if (folder / APPLYING_MARK).exists():
        with aws_errors(region):
            _adopt(terraform, access, region)
        (folder / APPLYING_MARK).unlink()
    terraform.destroy()


def _adopt(terraform: Workspace, access: Access, region: str) -> None:
    """What Terraform created and did not write down; nothing else is created.

    It does not when it is killed, and neither when it is interrupted while AWS is answering.
    """
    with adopting_plan(terraform, terraform.folder / PLAN_FILE, access.clients(region), only_found=True) as adoption:
        if adoption.found:
            terraform.apply(adoption.plan)
