"""What a new plan over a workspace would take away: machines that its state stands for, and edits by hand.

Nothing is asked of AWS or of a remote backend: this says what the folder itself shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError, one_line
from planner.outside import store, workspace_files
from planner.plan import is_read_by_terraform

# Beside Terraform's own place of a local state: those of its workspaces, and what it could not hand to a backend.
_STATES = ("terraform.tfstate", "errored.tfstate", "terraform.tfstate.d/*/terraform.tfstate")
_INITIALISED = ".terraform/terraform.tfstate"  # which backend `terraform init` was given
_SETTINGS = ("backend.tf", "cloud.tf")
_NAMED_FILES = 5


class InUse(NamedTuple):
    questions: list[str]
    warnings: list[str]


def what_is_in_use(folder: Path, files: Mapping[str, str]) -> InUse:
    """`files`: the new plan. Questions are to be answered before it is written; warnings are what cannot be known."""
    if not os.path.isdir(folder):  # noqa: PTH112 (any name, also one that is too long)
        return InUse([], [])
    questions = []
    if edited := workspace_files.overwritten_edits(folder, files):
        questions.append(f"{_names(edited)} would lose what was edited by hand")
    if not any(_changes_what_is_built(name) for name in workspace_files.stale_files(folder, files)):
        return InUse(questions, [])
    backend = _initialised_backend(folder)
    states = {path: _count_resources(path) for path in _state_files(folder, backend)}
    questions += [_what_a_state_holds(path.name, count) for path, count in states.items() if count != 0]
    place = _remote_place(folder, backend)
    warning = f"the state is elsewhere ({place}) and was not read: if a run is in it, the next apply may replace that"
    return InUse(questions, [warning] if place else [])


def _changes_what_is_built(name: str) -> bool:
    """The root module, its values, the modules and the job's source; not the words and figures beside them."""
    return "/" in name or is_read_by_terraform(name)


def _what_a_state_holds(name: str, count: int | None) -> str:
    if count is None:
        return f"{name} cannot be read, so it may stand for a run that the next apply replaces"
    return f"{name} has {count} resource{'s' * (count > 1)}, which the next apply changes or replaces"


def _names(names: list[str]) -> str:
    more = len(names) - _NAMED_FILES
    return ", ".join(names[:_NAMED_FILES]) + (f" and {more} more files" if more > 0 else "")


def _state_files(folder: Path, backend: Mapping[str, Any]) -> list[Path]:
    found = [path for pattern in _STATES for path in sorted(folder.glob(pattern)) if path.is_file()]
    settings = backend.get("config")
    if isinstance(settings, dict) and isinstance(path := settings.get("path"), str) and (folder / path).is_file():
        found.append(folder / path)  # backend "local" with a path
    return list(dict.fromkeys(found))


def _count_resources(state: Path) -> int | None:
    """None where it is no state that can be read, as one that OpenTofu encrypted."""
    content = _load_object(state)
    resources = content.get("resources", []) if content is not None and "encrypted_data" not in content else None
    if not isinstance(resources, list):
        return None
    return len([item for item in resources if isinstance(item, dict) and item.get("mode") == "managed"])


def _initialised_backend(folder: Path) -> Mapping[str, Any]:
    """As `terraform init` noted it; empty where it noted none."""
    noted = (_load_object(folder / _INITIALISED) or {}).get("backend")
    return noted if isinstance(noted, dict) else {}


def _remote_place(folder: Path, backend: Mapping[str, Any]) -> str | None:
    """None where the state is on this machine."""
    if backend:
        kind = str(backend.get("type"))
        return None if kind == "local" else f"backend {one_line(kind, 20)}"
    return next((name for name in _SETTINGS if (folder / name).exists()), None)


def _load_object(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(store.load_text(path))
    except (InputError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
