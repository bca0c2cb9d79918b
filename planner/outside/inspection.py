"""The files of a workspace, held against those that scav writes for its plan."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner import __version__
from planner.errors import InputError
from planner.outside import assets, store, workspace_files
from planner.outside.render import MODULE, VARIABLES_FILE, WORKSPACE, render_code, render_policy
from planner.plan import (
    MANIFEST_FILE,
    Difference,
    Plan,
    Unasked,
    compare_values,
    decided_elsewhere,
    declared_resources,
    difference,
    is_read_by_terraform,
    unknown_files,
    workspace_variables,
)


class Findings(NamedTuple):
    differences: tuple[Difference, ...]
    unasked: tuple[Unasked, ...]


def inspect_files(folder: Path, plan: Plan, allowed: Collection[str], module_source: str | None = None) -> Findings:
    """`allowed`: files of the user's, beside those that anybody may add. `module_source`: as `scav plan` was told."""
    code = _code(plan, module_source)
    listed = workspace_files.load_manifest(folder) or {}
    # The job's own files are not scav's to know: `scav plan --check` holds them against the job.
    source = {name: digest for name, digest in listed.items() if name.startswith("source/")}
    written = {**code, **source} if code else listed  # nothing: another scav, which left no list
    edited = {*workspace_files.differing_files(folder, code or {}), *workspace_files.changed_files(folder)}
    foreign = [name for name in workspace_files.foreign_files(folder, written) if written and name not in allowed]
    added = _added(folder, {*(written or _code_of_this_version(module_source)), VARIABLES_FILE})
    return Findings(
        (
            *(
                difference(f"file {name}", "as scav wrote it", "edited, missing or added")
                for name in sorted({*edited, *foreign})
                # Words may be anybody's, and the values are compared one by one.
                if not name.endswith(".md") and name != VARIABLES_FILE
            ),
            *decided_elsewhere(added, workspace_variables(plan)),
        ),
        tuple(unknown_files(added, allowed)),
    )


def refuse_edited(folder: Path, plan: Plan) -> None:
    """Before anybody relies on a plan file: a workspace of two plans, or with edits, is not what was planned.

    Variables are compared with the plan itself: who edits them may edit the list of hashes, too.
    """
    if plan.scav_version == __version__:
        found = compare_values(plan, _values(folder)).differences
        words = [f"{item.name.removeprefix('variable ')} is {item.found} and not {item.planned}" for item in found]
        if words:
            store.refuse_stale(folder, f"has values in {VARIABLES_FILE} that no longer follow from its plan", words)
    edited = [name for name in workspace_files.changed_files(folder) if not name.endswith(".md")]
    if edited:
        store.refuse_stale(folder, f"is not as {MANIFEST_FILE} says that scav wrote it", edited)


def module_resources(folder: Path, plan: Plan) -> tuple[frozenset[str], list[str]]:
    """The module's resources as scav wrote them: an edited copy in the workspace is no authority.

    With what could not be checked, where it has to be one.
    """
    if plan.scav_version == __version__:
        return declared_resources(assets.load_module(MODULE)), []
    module = folder / "modules" / MODULE
    texts = {path.name: store.load_text(path) for path in sorted(module.glob("*.tf"))}
    note = f"resources added to {module}: scav {plan.scav_version} wrote it and this is scav {__version__}"
    return declared_resources(texts), [note]


def _code(plan: Plan, module_source: str | None) -> dict[str, str] | None:
    """The code around the values: an edited module may leave out what stops a run. None where another scav wrote it."""
    return _code_of_this_version(module_source) | render_policy(plan) if plan.scav_version == __version__ else None


def _code_of_this_version(module_source: str | None) -> dict[str, str]:
    templates, module = assets.load_templates(WORKSPACE), assets.load_module(MODULE)
    return render_code(__version__, templates=templates, module=module, module_source=module_source)


def _added(folder: Path, written: Collection[str]) -> Mapping[str, str | None]:
    """What Terraform reads beside scav's files, with its text."""
    names = (entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False))
    return {name: _text(folder / name) for name in names if is_read_by_terraform(name) and name not in written}


def _values(folder: Path) -> Mapping[str, Any]:
    """None at all where the file holds none."""
    try:
        values = json.loads(_text(folder / VARIABLES_FILE) or "")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _text(path: Path) -> str | None:
    try:
        return store.load_text(path)
    except InputError:
        return None
