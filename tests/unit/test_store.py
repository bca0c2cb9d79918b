"""Files in and out: what is written appears whole or not at all, and what is the user's stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.outside import assets, store
from planner.plan.schema import parse_plan

FILES = {"main.tf": "a\n", "scav.plan.json": "{}\n", "modules/gpu-cluster/main.tf": "m\n"}


def tree(folder):
    """Every file and folder below, with the content of the files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_workspace_is_written_with_folders_and_without_a_trace_of_the_staging(tmp_path):
    store.write_workspace(tmp_path / "a" / "b", FILES)
    assert sorted(name for name, content in tree(tmp_path / "a" / "b").items() if content) == sorted(FILES)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert (tmp_path / "a" / "b" / "main.tf").read_bytes() == b"a\n"


def test_a_new_workspace_has_the_permissions_of_any_other_folder(tmp_path):
    store.write_workspace(tmp_path / "plan", FILES)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert (tmp_path / "plan").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert (tmp_path / "plan" / "main.tf").stat().st_mode == (tmp_path / "other" / "file").stat().st_mode


def test_an_empty_folder_is_filled(tmp_path):
    store.write_workspace(tmp_path, FILES)
    assert (tmp_path / "main.tf").exists()


def test_a_replan_keeps_state_backend_and_provider_and_removes_what_the_module_lost(tmp_path):
    store.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/old/gone.tf": "x"})
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
    store.write_workspace(tmp_path, {**FILES, "main.tf": "new\n"})
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in own} == own
    assert (tmp_path / "main.tf").read_text(encoding="utf-8") == "new\n"
    assert not (tmp_path / "modules/gpu-cluster/old/gone.tf").exists()


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(InputError, match=r"not empty and without a scav\.plan\.json; choose another folder"):
        store.write_workspace(tmp_path, FILES)
    assert tree(tmp_path) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named_and_left_alone(tmp_path, place):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write"):
        store.write_workspace(tmp_path / place, FILES)
    assert tree(tmp_path) == {"file": b"mine"}


def test_a_folder_where_a_file_should_go_stops_everything_before_anything_changes(tmp_path):
    store.write_workspace(tmp_path, FILES)
    (tmp_path / "main.tf").unlink()
    (tmp_path / "main.tf").mkdir()
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"main\.tf: is a folder"):
        store.write_workspace(tmp_path, dict.fromkeys(FILES, "new"))
    assert tree(tmp_path) == before


def test_a_full_disk_leaves_no_new_workspace_and_no_new_parents(full_disk, tmp_path):
    folder = tmp_path / "new" / "deep" / "plan"
    with full_disk(100), pytest.raises(InputError) as refused:
        store.write_workspace(folder, {"small.tf": "a", "modules/m/large.tf": "x" * 1000})
    assert str(refused.value) == f"{folder}: cannot write: file too large"
    assert tree(tmp_path) == {}


def test_a_full_disk_leaves_an_old_workspace_as_it_was(full_disk, tmp_path):
    store.write_workspace(tmp_path / "plan", FILES)
    before = tree(tmp_path)
    with full_disk(100), pytest.raises(InputError, match="cannot write"):
        store.write_workspace(tmp_path / "plan", {"main.tf": "new", "scav.plan.json": "x" * 1000})
    assert tree(tmp_path) == before


def test_a_full_disk_leaves_a_single_file_as_it_was(full_disk, tmp_path):
    (tmp_path / "file").write_text("old", encoding="utf-8")
    for place in (tmp_path / "file", tmp_path / "new" / "file"):
        with full_disk(100), pytest.raises(InputError, match="cannot write: file too large"):
            store.write_text_atomically(place, "x" * 1000)
    assert tree(tmp_path) == {"file": b"old"}


def test_a_single_file_is_replaced_whole(tmp_path):
    store.write_text_atomically(tmp_path / "new" / "file", "one\n")
    store.write_text_atomically(tmp_path / "new" / "file", "two·\n")
    assert tree(tmp_path) == {"new": None, "new/file": "two·\n".encode()}


def test_stale_files_are_those_that_differ_are_missing_or_left_over(tmp_path):
    store.write_workspace(tmp_path, {**FILES, "modules/gpu-cluster/gone.tf": "x"})
    (tmp_path / "backend.tf").write_text("mine", encoding="utf-8")
    wanted = {**FILES, "main.tf": "changed\n", "new.tf": "n"}
    assert store.stale_files(tmp_path, wanted) == ["main.tf", "modules/gpu-cluster/gone.tf", "new.tf"]
    store.write_workspace(tmp_path, wanted)
    assert store.stale_files(tmp_path, wanted) == []
    assert store.stale_files(tmp_path / "nowhere", {"a.tf": ""}) == ["a.tf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"name: \xff\xfe", "not UTF-8 text (byte 6)"), (b"\xff\xfen\0a\0", "not UTF-8 text (byte 0)")],
)
def test_what_is_not_utf8_is_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError) as caught:
        store.load_text(tmp_path / "file")
    assert str(caught.value) == f"{tmp_path / 'file'}: {message}"


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    (tmp_path / "file").write_bytes("\ufefftext".encode())
    assert store.load_text(tmp_path / "file") == "text"


@pytest.mark.parametrize("name", ["missing", "x" * 5000, "nul\0", "file/below"])
def test_a_path_that_cannot_be_is_named(tmp_path, name):
    (tmp_path / "file").touch()
    for load in (store.load_text, lambda path: store.load_job(path, {}), store.load_plan):
        with pytest.raises(InputError):
            load(tmp_path / name)


def test_a_job_is_found_in_its_folder(write_job):
    path = write_job()
    assert store.load_job(path.parent, {}).file == str(path)
    assert store.load_job(path, {}).job == store.load_job(path.parent, {}).job


def test_no_measurements_file_is_no_measurements(tmp_path):
    found, digest = store.load_measurements(tmp_path / "measurements.jsonl")
    assert (found.rows, digest) == ((), None)


def test_the_newest_catalogue_beside_the_job_is_taken_and_found_again_by_its_hash(tmp_path):
    text = assets.embedded_catalog().read_text(encoding="utf-8")
    for date in ("2026-09-01", "2026-10-01"):
        later = text.replace('"date": "2026-08-01"', f'"date": "{date}"', 1)
        (tmp_path / f"catalog-{date}.json").write_text(later, encoding="utf-8")
    (tmp_path / "catalog-latest.json").write_text("not one of them", encoding="utf-8")
    catalog, name, _ = store.load_catalog(None, beside=tmp_path)
    assert (name, str(catalog.date)) == ("catalog-2026-10-01.json", "2026-10-01")
    _, name, digest = store.load_catalog(tmp_path / "catalog-2026-09-01.json", beside=tmp_path)
    found = store.load_catalog_by_hash(digest, beside=tmp_path)
    assert found is not None
    assert found[1] == name == "catalog-2026-09-01.json"
    assert store.load_catalog_by_hash("0" * 64, beside=tmp_path) is None


def test_without_one_the_embedded_catalogue_serves(tmp_path):
    catalog, name, digest = store.load_catalog(None, beside=tmp_path)
    assert name == f"embedded {catalog.date}"
    assert store.load_catalog_by_hash(digest, beside=tmp_path) is not None


def test_a_folder_without_a_plan_says_how_to_get_one(tmp_path):
    with pytest.raises(InputError, match=r"no scav\.plan\.json here; `scav plan --out .*` writes one"):
        store.load_plan(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 2}', "[" * 100_000])
def test_a_plan_that_scav_did_not_write_is_refused(text):
    with pytest.raises(InputError, match="not a plan that this version of scav wrote"):
        parse_plan(text, file="scav.plan.json")


@pytest.mark.parametrize(
    ("before", "after"),
    [("", '{"n": 1}\n'), ('{"n": 0}\n', '{"n": 0}\n{"n": 1}\n'), ('{"n": 0}', '{"n": 0}\n{"n": 1}\n')],
    ids=["no file", "whole lines", "a whole last line without its end"],
)
def test_appending_keeps_every_whole_line(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "measurements.jsonl"
    if before:
        file.write_text(before)
    store.append_line(file, '{"n": 1}')
    assert file.read_text() == after


def test_appending_drops_what_a_killed_writer_left_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    file.write_text('{"n": 0}\n{"n": ')
    store.append_line(file, '{"n": 1}')
    assert file.read_text() == '{"n": 0}\n{"n": 1}\n'
