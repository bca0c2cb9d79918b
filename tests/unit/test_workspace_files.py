"""A workspace is written whole or not at all, wherever scav is killed; what is the user's stays."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from planner.errors import InputError
from planner.outside import assets, workspace_files
from planner.outside.render import MODULE
from planner.plan import MANIFEST_FILE, sha256_of
from planner.plan.manifest import format_manifest, parse_manifest

FILES = {"main.tf": "a\n", "scav.plan.json": "{}\n", "modules/gpu-cluster/main.tf": "m\n"}


def tree(folder):
    """Every file and folder below, with the content of the files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def on_a_full_disk(code, *arguments):
    """Runs Python code whose files may not grow beyond 1000 bytes: a real OSError, as late as a full disk's."""
    preamble = """
        import resource, signal, sys
        from pathlib import Path
        from planner.outside import workspace_files
        from planner.errors import InputError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        path = Path(sys.argv[1])
    """
    script = textwrap.dedent(preamble) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-B", "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_workspace_is_written_with_folders_and_without_a_trace_of_the_staging(tmp_path):
    workspace_files.write_workspace(tmp_path / "a" / "b", FILES)
    assert sorted(name for name, content in tree(tmp_path / "a" / "b").items() if content) == sorted(
        [*FILES, MANIFEST_FILE]
    )
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert (tmp_path / "a" / "b" / "main.tf").read_bytes() == b"a\n"


def test_a_new_workspace_has_the_permissions_of_any_other_folder(tmp_path):
    workspace_files.write_workspace(tmp_path / "plan", FILES)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert (tmp_path / "plan").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert (tmp_path / "plan" / "main.tf").stat().st_mode == (tmp_path / "other" / "file").stat().st_mode


def test_an_empty_folder_is_filled(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    assert (tmp_path / "main.tf").exists()


def test_a_replan_keeps_state_backend_and_provider_and_removes_what_the_module_lost(tmp_path):
    workspace_files.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/old/gone.tf": "x"})
    own = {
        "terraform.tfstate": "state",
        "terraform.tfstate.backup": "state",
        "backend.tf": "mine",
        "override.tf": "mine",
        ".terraform.lock.hcl": "lock",
        ".terraform/providers/aws": "provider",
        "modules/gpu-cluster/.terraform/cache": "cache",
        "modules/mine/main.tf": "mine",
        "notes/why.md": "mine",
    }
    for name, text in own.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    workspace_files.write_workspace(tmp_path, {**FILES, "main.tf": "new\n"})
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in own} == own
    assert (tmp_path / "main.tf").read_text(encoding="utf-8") == "new\n"
    assert not (tmp_path / "modules/gpu-cluster/old/gone.tf").exists()


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(InputError, match=r"not empty and without a scav\.plan\.json; choose another folder"):
        workspace_files.write_workspace(tmp_path, FILES)
    assert tree(tmp_path) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named_and_left_alone(tmp_path, place):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write"):
        workspace_files.write_workspace(tmp_path / place, FILES)
    assert tree(tmp_path) == {"file": b"mine"}


def test_a_folder_where_a_file_should_go_stops_everything_before_anything_changes(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    (tmp_path / "main.tf").unlink()
    (tmp_path / "main.tf").mkdir()
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"main\.tf: is a folder"):
        workspace_files.write_workspace(tmp_path, dict.fromkeys(FILES, "new"))
    assert tree(tmp_path) == before


def test_a_full_disk_leaves_no_new_workspace_and_no_new_parents(tmp_path):
    code = """
        try:
            workspace_files.write_workspace(path, {"small.tf": "a", "modules/m/large.tf": "x" * 10000})
        except InputError as error:
            print(error)
    """
    result = on_a_full_disk(code, tmp_path / "new" / "deep" / "plan")
    assert result.stdout == f"{tmp_path / 'new' / 'deep' / 'plan'}: cannot write: file too large\n", result.stderr
    assert tree(tmp_path) == {}


def test_a_full_disk_leaves_an_old_workspace_as_it_was(tmp_path):
    workspace_files.write_workspace(tmp_path / "plan", FILES)
    before = tree(tmp_path)
    code = """
        try:
            workspace_files.write_workspace(path, {"main.tf": "new", "scav.plan.json": "x" * 10000})
        except InputError as error:
            print(error)
    """
    result = on_a_full_disk(code, tmp_path / "plan")
    assert "cannot write" in result.stdout, result.stderr
    assert tree(tmp_path) == before


def test_stale_files_are_those_that_differ_are_missing_or_left_over(tmp_path):
    workspace_files.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/gone.tf": "x"})
    (tmp_path / "backend.tf").write_text("mine", encoding="utf-8")
    wanted = {**FILES, "main.tf": "changed\n", "new.tf": "n"}
    assert workspace_files.stale_files(tmp_path, wanted) == [
        *("main.tf", "modules/gpu-cluster/gone.tf", "new.tf", MANIFEST_FILE)
    ]
    workspace_files.write_workspace(tmp_path, wanted)
    assert workspace_files.stale_files(tmp_path, wanted) == []
    assert workspace_files.stale_files(tmp_path / "nowhere", {"a.tf": ""}) == ["a.tf", MANIFEST_FILE]


# The list of what scav wrote


def test_every_file_that_scav_writes_can_be_listed():
    module = {f"modules/{MODULE}/{name}": text for name, text in assets.load_module(MODULE).items()}
    assert parse_manifest(format_manifest(module)) == {name: sha256_of(text) for name, text in module.items()}


def test_a_list_that_scav_did_not_write_says_which_name_is_wrong():
    with pytest.raises(InputError, match=r"^scav\.files\.json: files\.\.\./main\.tf.*: not a list of files .* inside"):
        parse_manifest('{"schema_version": 1, "files": {"../main.tf": "' + "0" * 64 + '"}}')


def test_the_list_does_not_change_when_nothing_does(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    before = tree(tmp_path)
    workspace_files.write_workspace(tmp_path, dict(reversed(FILES.items())))
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "name",
    [
        *("../outside.tf", "/etc/passwd", "a/../../b", "a//b", "", ".", ".terraform/x", "a/.hidden", "a\\b", "a\nb"),
        *("terraform.tfstate", "terraform.tfstate.backup", "x" * 256),
    ],
)
def test_a_list_that_names_what_scav_never_writes_counts_as_none(tmp_path, name):
    """Anybody can commit one: it must not make scav remove a state, or a file outside."""
    workspace_files.write_workspace(tmp_path / "run", FILES)
    (tmp_path / "outside.tf").write_text("mine")
    (tmp_path / "run" / "terraform.tfstate").write_text("mine")
    listed = {name: sha256_of("mine"), "modules/gpu-cluster/mine.tf": sha256_of("mine")}
    (tmp_path / "run" / MANIFEST_FILE).write_text(json.dumps({"schema_version": 1, "files": listed}))
    (tmp_path / "run" / "modules/gpu-cluster/mine.tf").write_text("mine")
    assert workspace_files.load_manifest(tmp_path / "run") is None
    assert workspace_files.write_workspace(tmp_path / "run", FILES) == ["modules/gpu-cluster/mine.tf"]
    assert (tmp_path / "outside.tf").read_text() == "mine"
    assert (tmp_path / "run" / "terraform.tfstate").read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"files": {"a": "b"}}', '{"schema_version": 2, "files": {}}', "[" * 9999]
)
def test_a_list_that_cannot_be_read_counts_as_none(tmp_path, text):
    workspace_files.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/old.tf": "x"})
    (tmp_path / MANIFEST_FILE).write_text(text)
    assert workspace_files.write_workspace(tmp_path, FILES) == ["modules/gpu-cluster/old.tf"]
    assert workspace_files.stale_files(tmp_path, FILES) == []


def test_without_a_list_files_are_replaced_and_nothing_is_removed(tmp_path):
    """As a version of scav left it that wrote none."""
    workspace_files.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/old.tf": "x", "scav.policy.json": "{}"})
    (tmp_path / MANIFEST_FILE).unlink()
    left = workspace_files.write_workspace(tmp_path, {**FILES, "main.tf": "new"})
    assert left == ["modules/gpu-cluster/old.tf", "scav.policy.json"]
    assert (tmp_path / "modules/gpu-cluster/old.tf").read_text() == "x"
    assert (tmp_path / "main.tf").read_text() == "new"


def test_a_file_of_the_users_among_scavs_is_kept_and_named(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    (tmp_path / "modules/gpu-cluster/notes.txt").write_text("mine")
    (tmp_path / "modules/gpu-cluster/deep").mkdir()
    (tmp_path / "modules/gpu-cluster/deep/mine.tf").write_text("mine")
    left = workspace_files.write_workspace(tmp_path, FILES)
    assert left == ["modules/gpu-cluster/deep/mine.tf", "modules/gpu-cluster/notes.txt"]
    assert (tmp_path / "modules/gpu-cluster/notes.txt").read_text() == "mine"


def test_what_scav_wrote_and_somebody_changed_is_kept_and_named(tmp_path):
    workspace_files.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/old.tf": "x"})
    (tmp_path / "modules/gpu-cluster/old.tf").write_text("x and mine")
    assert workspace_files.write_workspace(tmp_path, FILES) == ["modules/gpu-cluster/old.tf"]
    assert (tmp_path / "modules/gpu-cluster/old.tf").read_text() == "x and mine"


def test_a_file_of_the_users_where_a_new_version_writes_one_stops_everything(tmp_path):
    workspace_files.write_workspace(tmp_path, FILES)
    (tmp_path / "extra.tf").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"extra\.tf: is not in scav\.files\.json, so it is yours"):
        workspace_files.write_workspace(tmp_path, {**FILES, "main.tf": "new", "extra.tf": "scav's"})
    assert tree(tmp_path) == before


# Links


@pytest.mark.parametrize(
    "link", ["main.tf", "modules", "modules/gpu-cluster", "modules/gpu-cluster/main.tf", MANIFEST_FILE]
)
def test_nothing_is_written_or_removed_through_a_link(tmp_path, link):
    run, outside = tmp_path / "run", tmp_path / "outside"
    workspace_files.write_workspace(run, {**FILES, "modules/gpu-cluster/old.tf": "x"})
    (run / link).rename(outside)
    (run / link).symlink_to(outside)
    before = tree(tmp_path)
    with pytest.raises(InputError, match=f"{link}: is a symbolic link"):
        workspace_files.write_workspace(run, dict.fromkeys(FILES, "new"))
    assert tree(tmp_path) == before
    assert (run / link).is_symlink()


@pytest.mark.parametrize("name", [".scav-staging", ".scav-writing"])
def test_a_link_in_place_of_scavs_own_folders_is_not_followed(tmp_path, name):
    run, outside = tmp_path / "run", tmp_path / "outside"
    workspace_files.write_workspace(run, FILES)
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (run / name).symlink_to(outside)
    with pytest.raises(InputError, match=f"{name}: is a symbolic link"):
        workspace_files.write_workspace(run, FILES)
    assert (outside / "mine").read_text() == "mine"


def test_the_workspace_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    workspace_files.write_workspace(tmp_path / "run", FILES)
    assert (tmp_path / "real" / "main.tf").read_text() == "a\n"
    assert workspace_files.stale_files(tmp_path / "run", FILES) == []


def test_a_link_is_not_the_file_that_scav_wrote(tmp_path):
    workspace_files.write_workspace(tmp_path / "run", FILES)
    (tmp_path / "run" / "main.tf").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "main.tf").symlink_to(tmp_path / "elsewhere")
    assert workspace_files.stale_files(tmp_path / "run", FILES) == ["main.tf"]
    assert workspace_files.changed_files(tmp_path / "run") == ["main.tf"]
