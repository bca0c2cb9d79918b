"""Files in and out: what is written appears whole or not at all, and what is the user's stays."""

from __future__ import annotations

import subprocess
import sys
import textwrap
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


def on_a_full_disk(code, *arguments):
    """Runs Python code whose files may not grow beyond 100 bytes: a real OSError, as late as a full disk's."""
    preamble = """
        import resource, signal, sys
        from pathlib import Path
        from planner.outside import store
        from planner.errors import InputError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        path = Path(sys.argv[1])
    """
    script = textwrap.dedent(preamble) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-B", "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_full_disk_leaves_a_single_file_as_it_was(tmp_path):
    (tmp_path / "file").write_text("old", encoding="utf-8")
    code = """
        for place in (path / "file", path / "new" / "file"):
            try:
                store.write_text_atomically(place, "x" * 1000)
            except InputError as error:
                print(error)
    """
    result = on_a_full_disk(code, tmp_path)
    assert result.stdout.count("cannot write: file too large") == 2, result.stderr
    assert tree(tmp_path) == {"file": b"old"}


def test_a_single_file_is_replaced_whole(tmp_path):
    store.write_text_atomically(tmp_path / "new" / "file", "one\n")
    store.write_text_atomically(tmp_path / "new" / "file", "two·\n")
    assert tree(tmp_path) == {"new": None, "new/file": "two·\n".encode()}


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
