"""Files in and out: the only module that reads inputs from disk and writes results to it.

What is written appears whole or not at all: first beside its place, then renamed into it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import InputError, one_line
from planner.inputs import (
    JobFile,
    Measurement,
    MeasurementFile,
    Recording,
    Recordings,
    Snapshot,
    Trace,
    is_json,
    parse_catalog,
    parse_job,
    parse_measurements,
    parse_trace,
)
from planner.outside import assets
from planner.plan import POLICY_FILE, Plan, parse_plan

JOB_FILE = "scav.yaml"
PLAN_FILE = "scav.plan.json"
MEASUREMENTS_FILE = "measurements.jsonl"
_MOST_RECORDED_BYTES = 64 << 20
_CATALOG_FILE = re.compile(r"catalog-\d{4}-\d{2}-\d{2}\.json")


def load_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(_reason(error), file=str(path)) from None
    return _decoded(content, path)


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text (byte {error.start})", file=str(path)) from None


def load_job(path: Path, overrides: Mapping[str, Any]) -> JobFile:
    """`path` is the file, or the folder that holds a scav.yaml."""
    file = path / JOB_FILE if _is_folder(path) else path
    if _is_folder(path) and not exists(file, or_hidden=True):
        where = "" if path == Path() else f" {path}"
        raise InputError(f"no {JOB_FILE} here; `scav init{where}` writes one to start from", file=str(path))
    return parse_job(load_text(file), file=str(file), overrides=dict(overrides))


def load_measurements(path: Path) -> tuple[MeasurementFile, str | None]:
    """With the text's hash; no file is no measurements."""
    if not exists(path):
        return MeasurementFile(()), None
    text = load_text(path)
    return parse_measurements(text, file=str(path)), sha256(text)


def load_history(folder: Path | None, *, but: Path) -> tuple[list[tuple[Measurement, ...]], str | None]:
    """Measurements of other jobs in and below the folder, job by job, with the hash of all their text."""
    if folder is None:
        return [], None
    if not _is_folder(folder):
        raise InputError("no such folder", file=str(folder))
    found = sorted(path for path in folder.rglob(MEASUREMENTS_FILE) if path.parent.resolve() != but.resolve())
    texts = [load_text(path) for path in found]
    rows = [parse_measurements(text, file=str(path)).rows for path, text in zip(found, texts, strict=True)]
    return rows, sha256("".join(texts)) if texts else None


def load_trace(file: Path) -> Trace:
    return _trace(file, _recording_text(file))


def _trace(file: Path, text: str) -> Trace:
    return parse_trace(one_line(file.name), _json(text, file), file=str(file))


def _recording_text(file: Path) -> str:
    """Recordings are long and mostly the same number, so they are often kept compressed."""
    if file.suffix != ".gz":
        return load_text(file)
    try:
        with gzip.open(file) as compressed:
            content = compressed.read(_MOST_RECORDED_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("not a gzip file, or cut off", file=str(file)) from None
    except (OSError, ValueError) as error:
        raise InputError(_reason(error), file=str(file)) from None
    if len(content) > _MOST_RECORDED_BYTES:
        raise InputError(f"more than {_MOST_RECORDED_BYTES >> 20} MiB once unpacked", file=str(file))
    return _decoded(content, file)


def load_recordings(folder: Path | None, *, age_hours: float) -> tuple[Recordings, str | None]:
    """Recordings of spot capacity, one for an instance type and zone, named `g5.xlarge@use1-az4.json`."""
    if folder is None:
        return {}, None
    if not _is_folder(folder):
        raise InputError("no such folder", file=str(folder))
    recordings, texts = {}, []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")]):
        instance_type, at, zone = path.name.removesuffix(".gz").removesuffix(".json").partition("@")
        if not at:
            raise InputError("is named for no instance type and zone ID, as g5.xlarge@use1-az4.json is", file=str(path))
        if (instance_type, zone) in recordings:
            raise InputError("is there twice, compressed and not", file=str(path))
        text = _recording_text(path)
        recordings[instance_type, zone] = Recording(_trace(path, text), age_hours)
        texts.append(path.name + text)
    if not recordings:
        raise InputError("holds no recording such as g5.xlarge@use1-az4.json", file=str(folder))
    return recordings, sha256(f"{age_hours}" + "".join(texts))


def load_catalog(file: Path | None, *, beside: Path) -> Snapshot:
    """The snapshot, its display name and its hash: the given file, the newest beside the job, or the embedded one."""
    path = file or max(_snapshots(beside), default=assets.embedded_catalog())
    text = load_text(path)
    catalog = parse_catalog(text, file=str(path))
    name = f"embedded {catalog.date}" if path == assets.embedded_catalog() else one_line(path.name)
    return Snapshot(catalog, name, sha256(text))


def load_catalog_by_hash(digest: str, *, beside: Path) -> Snapshot | None:
    """The very snapshot that an earlier plan used, if it is still here."""
    for path in (*_snapshots(beside), assets.embedded_catalog()):
        if sha256(load_text(path)) == digest:
            return load_catalog(path, beside=beside)
    return None


def _snapshots(folder: Path) -> list[Path]:
    if not _is_folder(folder):
        return []
    try:
        return sorted(path for path in folder.iterdir() if _CATALOG_FILE.fullmatch(path.name))
    except OSError as error:
        raise InputError(f"cannot look for catalogues: {_reason(error)}", file=str(folder)) from None


def load_plan(folder: Path) -> Plan:
    path = folder / PLAN_FILE
    if _is_folder(folder) and not exists(path, or_hidden=True):
        raise InputError(f"no {PLAN_FILE} here; `scav plan --out {folder}` writes one", file=str(folder))
    return parse_plan(load_text(path), file=str(path))


def stale_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Which of the files differ from, are missing from, or should no longer be in the folder."""
    differing = [name for name, text in files.items() if not _holds(folder / name, text)]
    return sorted([*differing, *_left_over(folder, files)])


def write_workspace(folder: Path, files: Mapping[str, str]) -> None:
    """Replaces scav's own files only: state, lock file and backend settings in the folder stay as they are."""
    with _readable_errors(folder):
        if folder.is_dir() and any(folder.iterdir()) and not (folder / PLAN_FILE).exists():
            raise InputError(f"not empty and without a {PLAN_FILE}; choose another folder", file=str(folder))
        with _made_or_removed(folder.parent):
            staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                _write_files(staging / "new", files)
                if folder.exists():
                    _move_files(staging / "new", folder, files)
                else:
                    (staging / "new").rename(folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)


def append_line(path: Path, line: str) -> None:
    """After the last line, which is ended first if it is whole and dropped if a killed writer left it torn."""
    with _readable_errors(path), path.open("ab+") as stream:
        stream.seek(0)
        before, newline, last = stream.read().rpartition(b"\n")
        if last and not is_json(last.decode(errors="replace")):
            stream.truncate(len(before + newline))
        elif last:
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def write_text_atomically(path: Path, text: str) -> None:
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    with _readable_errors(path), _made_or_removed(path.parent):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def exists(path: Path, *, or_hidden: bool = False) -> bool:
    """`or_hidden` is the answer where nothing may be looked at: reading or writing there then says why."""
    try:
        return path.exists()
    except OSError:
        return or_hidden


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _json(text: str, file: Path) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", file=str(file)) from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


def _move_files(source: Path, folder: Path, files: Mapping[str, str]) -> None:
    """What could stand in the way is met before anything is replaced."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir():
            raise InputError("is a folder, but scav writes a file of this name", file=str(folder / name))
    for name in files:
        (source / name).replace(folder / name)
    for name in _left_over(folder, files):
        (folder / name).unlink()


@contextlib.contextmanager
def _made_or_removed(folder: Path) -> Iterator[None]:
    """The folder with its parents; those that were not there go again when the work in it fails."""
    missing = [path for path in (folder, *folder.parents) if not exists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _left_over(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Files of a module copy that the module no longer has, and a policy without a deadline to keep.

    Everything else in the folder is the user's.
    """
    modules = {Path(name).parts[:2] for name in files if name.startswith("modules/")}
    found = (path.relative_to(folder) for root in sorted(modules) for path in folder.joinpath(*root).rglob("*"))
    return sorted(
        path.as_posix()
        for path in (*found, Path(POLICY_FILE))
        if path.as_posix() not in files
        and (folder / path).is_file()
        and not any(part.startswith(".terraform") for part in path.parts)
    )


@contextlib.contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write: {_reason(error)}", file=str(path)) from None


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
