"""Killed at any moment, `scav plan` leaves the old workspace, the new one, or one that everybody refuses."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys

import pytest

from planner.errors import ScavError, StaleWorkspace
from planner.outside import store, workspace_files

FILES = {"main.tf": "a\n", "scav.plan.json": "{}\n", "modules/gpu-cluster/main.tf": "m\n"}

KILLED_AT_EVERY_MOMENT = """
import json, os, shutil, sys
from pathlib import Path
from planner.errors import StaleWorkspace
from planner.outside import store, workspace_files

MOMENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}
OLD, NEW = json.loads(sys.argv[2])
root = Path(sys.argv[1])

def dying_at(moment):
    seen = 0
    def hook(event, _arguments):
        nonlocal seen
        if event in MOMENTS:
            seen += 1
            if seen == moment:
                os._exit(9)
    return hook

def tree(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}

def visible(found):
    return {name: text for name, text in found.items() if not name.startswith(".scav-staging")}

def state(folder, old, new):
    try:
        store.refuse_half_written(folder)
    except StaleWorkspace:
        return "refused"
    found = visible(tree(folder)) if folder.exists() else {}
    return {json.dumps(old): "old", json.dumps(new): "new"}.get(json.dumps(found), f"mixed: {sorted(found)}")

def prepared(name, files):
    folder = root / name
    if files:
        workspace_files.write_workspace(folder, files)
        (folder / "terraform.tfstate").write_text("state")
        (folder / "modules" / "gpu-cluster" / "mine.tf").write_text("mine")
    return folder

old = tree(prepared("reference", OLD)) if OLD else {}
workspace_files.write_workspace(root / "reference", NEW)
new = tree(root / "reference")
outcomes, moment = [], 0
while True:
    moment += 1
    folder = prepared(f"case-{moment}/run", OLD)
    child = os.fork()
    if child == 0:
        sys.addaudithook(dying_at(moment))
        workspace_files.write_workspace(folder, NEW)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    after = state(folder, old, new)
    workspace_files.write_workspace(folder, NEW)
    everything = tree(root / f"case-{moment}")
    clean = everything == {f"run/{name}": text for name, text in new.items()}
    empty = [str(path) for path in root.joinpath(f"case-{moment}").rglob(".*")]
    outcomes.append([after, clean and not empty])
    if os.waitstatus_to_exitcode(status) == 0:
        break
print(json.dumps(outcomes))
"""

KEPT = ("COST.md", "main.tf", "modules/gpu-cluster/main.tf", "scav.plan.json")
OLD = dict.fromkeys((*KEPT, "modules/gpu-cluster/gone/gone.tf", "scav.policy.json"), "old")
NEW = dict.fromkeys((*KEPT, "modules/gpu-cluster/more/more.tf"), "new")


@pytest.mark.parametrize("old", [OLD, {}], ids=["over an old workspace", "where there was none"])
def test_killed_at_any_moment_it_is_old_or_new_or_refused_and_the_next_plan_mends_it(tmp_path, old):
    result = subprocess.run(
        [sys.executable, "-B", "-c", KILLED_AT_EVERY_MOMENT, str(tmp_path), json.dumps([old, NEW])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    outcomes = json.loads(result.stdout)
    states = [state for state, _ in outcomes]
    assert all(mended for _, mended in outcomes)
    order = ["old", "refused", "new"] if old else ["old", "new"]
    assert sorted(set(states), key=order.index) == order
    assert states == sorted(states, key=order.index)
    assert len(states) > 20


def test_a_half_written_workspace_is_refused_until_it_is_finished(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    (tmp_path / ".scav-writing").mkdir()
    with pytest.raises(StaleWorkspace, match="was not written to its end; run scav plan again"):
        store.load_plan(tmp_path)
    workspace_files.finish_interrupted(tmp_path)
    store.refuse_half_written(tmp_path)
    assert not (tmp_path / ".scav-writing").exists()


def test_what_another_scav_is_writing_is_left_to_it(tmp_path):
    workspace_files.write_workspace(tmp_path / "run", FILES)
    staging = tmp_path / ".new.scav-staging-alive"
    staging.mkdir()
    for folder in (tmp_path / "run", staging):
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            with (
                pytest.raises(ScavError, match="another scav is writing")
                if folder != staging
                else contextlib.nullcontext()
            ):
                workspace_files.write_workspace(folder if folder != staging else tmp_path / "new", FILES)
            assert staging.exists()
        finally:
            os.close(handle)
    workspace_files.write_workspace(tmp_path / "newer", FILES)
    (tmp_path / ".dead.scav-staging-1").mkdir()
    workspace_files.write_workspace(tmp_path / "dead", FILES)
    assert not (tmp_path / ".dead.scav-staging-1").exists()
