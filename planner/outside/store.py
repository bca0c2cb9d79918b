"""Files in and out: the only module that reads inputs from disk and writes results to it.

What is written appears whole or not at all: first beside its place, then renamed into it. What is read is a regular
file of bounded size: a pipe may never end, and a device never does. Whole workspaces are in `workspace_files.py`.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from planner.errors import InputError, StaleWorkspace, one_line
from planner.inputs import (
    Earlier,
    JobFile,
    MeasurementFile,
    Observed,
    Recording,
    Recordings,
    Snapshot,
    Trace,
    is_json,
    parse_catalog,
    parse_job,
    parse_measurements,
    parse_observations,
    parse_trace,
    with_run_last,
)
from planner.outside import assets
from planner.plan import Outcome, Plan, parse_outcomes, parse_plan

JOB_FILE = "scav.yaml"
SPOT_HISTORY_FOLDER = "spot-history"  # beside the job
PLAN_FILE = "scav.plan.json"
MEASUREMENTS_FILE = "measurements.jsonl"
OUTCOMES_FILE = "outcomes.jsonl"  # the ledger of finished jobs
WRITING = ".scav-writing"  # in a workspace: the files that are not in their places yet
MOST_BYTES = 64 << 20  # of any file that is read; the largest real ones have a few MiB
_MOST_COMPRESSED_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_KINDS = {
    stat.S_IFDIR: "is a directory",
    stat.S_IFIFO: "is a pipe, not a file",
    stat.S_IFSOCK: "is a socket, not a file",
}
_CATALOG_FILE = re.compile(r"catalog-\d{4}-\d{2}-\d{2}\.json")


def load_text(path: Path) -> str:
    return _decoded(load_bytes(path), path)


def load_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    with _readable_input(path):
        _refuse_special(path.stat(), path)
        # It may have become a pipe since: opening that would wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:  # noqa: PTH123 (a number)
            _refuse_special(os.fstat(stream.fileno()), path)
            return read_bounded(stream, str(path), most_bytes)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_bounded(stream: Readable, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Piece by piece, so that a small file takes little memory and an endless one not much more than its bound."""
    content = bytearray()
    while piece := stream.read(_PIECE_BYTES):
        content += piece
        if len(content) > most_bytes:
            raise InputError(f"more than {most_bytes >> 20} MiB", file=name)
    return bytes(content)


def _refuse_special(found: os.stat_result, path: Path) -> None:
    """Neither read, nor replaced: for root, renaming a file to /dev/full would take that device away."""
    if not stat.S_ISREG(found.st_mode):
        raise InputError(_KINDS.get(stat.S_IFMT(found.st_mode), "is a device, not a file"), file=str(path))


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


def move_to_the_end(path: Path, run_key: str) -> None:
    """The rows of a run that something else was measured after, so that they count again; else nothing is written."""
    if exists(path):
        text = load_text(path)
        rows = parse_measurements(text, file=str(path)).rows
        if (moved := with_run_last(text, rows, run_key)) != text:
            write_text_atomically(path, moved)


def load_history(folder: Path | None, *, but: Path) -> tuple[list[Earlier], str | None]:
    """Other jobs in and below the folder that were measured, with the hash of all that was read."""
    if folder is None:
        return [], None
    if not _is_folder(folder):
        raise InputError("no such folder", file=str(folder))
    found = sorted(path for path in folder.rglob(MEASUREMENTS_FILE) if path.parent.resolve() != but.resolve())
    jobs, texts = [], []
    for path in found:
        text = load_text(path)
        texts.append(text)
        job_file = load_job(path.parent, {}) if exists(path.parent / JOB_FILE) else None
        texts += [] if job_file is None else [job_file.job.model_dump_json()]
        name = str(path.parent.relative_to(folder))
        jobs.append(Earlier(name, job_file, parse_measurements(text, file=str(path)).rows))
    return jobs, sha256("".join(texts)) if texts else None


def data_folder() -> Path:
    """What scav keeps between jobs, where the platform keeps data of programs."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "scav"
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "share") / "scav"


def load_outcomes(path: Path) -> list[Outcome]:
    """Of the ledger; no file is no finished jobs."""
    return parse_outcomes(load_text(path), file=str(path)) if exists(path) else []


def append_outcome(path: Path, outcome: Outcome) -> None:
    with readable_errors(path), made_or_removed(path.parent):
        append_line(path, outcome.model_dump_json())


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    write_text_atomically(path, "".join(f"{outcome.model_dump_json()}\n" for outcome in outcomes))


def load_trace(file: Path) -> Trace:
    return _trace(file, _recording_text(file))


def _trace(file: Path, text: str) -> Trace:
    return parse_trace(one_line(file.name), _json(text, file), file=str(file))


def _recording_text(file: Path) -> str:
    """Recordings are long and mostly the same number, so they are often kept compressed."""
    if file.suffix != ".gz":
        return load_text(file)
    try:
        with gzip.GzipFile(fileobj=BytesIO(load_bytes(file, _MOST_COMPRESSED_BYTES))) as compressed:
            content = read_bounded(compressed, f"{file}, unpacked,")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("not a gzip file, or cut off", file=str(file)) from None
    return _decoded(content, file)


def load_recordings(folder: Path | None, *, age_hours: float) -> tuple[Recordings, str | None]:
    """Recordings of spot capacity, one for an instance type and zone, named `g5.xlarge@use1-az4.json`.

    `.jsonl` is what `scav spot record` wrote.
    """
    if folder is None:
        return {}, None
    if not _is_folder(folder):
        raise InputError("no such folder", file=str(folder))
    recordings: dict[tuple[str, str], Recording | Observed] = {}
    texts = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.json.gz"), *folder.glob("*.jsonl")]):
        bare = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
        instance_type, at, zone = bare.partition("@")
        if not at:
            raise InputError("is named for no instance type and zone ID, as g5.xlarge@use1-az4.json is", file=str(path))
        if (instance_type, zone) in recordings:
            raise InputError("is there twice: keep one of .json, .json.gz and .jsonl", file=str(path))
        text = _recording_text(path)
        if path.suffix == ".jsonl":
            recordings[instance_type, zone] = load_observed(path, age_hours=age_hours)
        else:
            recordings[instance_type, zone] = Recording(_trace(path, text), age_hours)
        texts.append(path.name + text)
    if not recordings:
        raise InputError("holds no recording such as g5.xlarge@use1-az4.json", file=str(folder))
    return recordings, sha256(f"{age_hours}" + "".join(texts))


def load_every_observed(folder: Path) -> dict[tuple[str, str], Observed]:
    """What `scav spot record` wrote so far; the folder is made if it is not there."""
    with readable_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for path in sorted(folder.glob("*@*.jsonl")):
        instance_type, _, zone = path.name.removesuffix(".jsonl").partition("@")
        found[instance_type, zone] = load_observed(path)
    return found


def load_observed(path: Path, *, age_hours: float = 0.0) -> Observed:
    now = datetime.datetime.now(datetime.UTC)
    return parse_observations(load_text(path), file=str(path), now=now, age_hours=age_hours)


def load_catalog(file: Path | None, *, beside: Path) -> Snapshot:
    """The snapshot, its display name and its hash: the given file, the newest beside the job, or the embedded one."""
    path = file or max(_snapshots(beside), default=assets.embedded_catalog())
    text = load_text(path)
    catalog = parse_catalog(text, file=str(path))
    if path == assets.embedded_catalog():
        return Snapshot(catalog, f"embedded {catalog.date}", sha256(text))
    refuse_future(catalog.date, file=str(path), key="date")
    for name, source in catalog.sources.items():
        refuse_future(source.date, file=str(path), key=f"sources.{name}.date")
    return Snapshot(catalog, one_line(path.name), sha256(text))


def refuse_future(date: datetime.date, *, file: str, key: str) -> None:
    """Nobody knows the prices of a day to come. One day is for clocks and for those who are ahead of UTC."""
    now = today()
    if date > now + datetime.timedelta(days=1):
        raise InputError(f"{date} is in the future (today is {now})", file=file, key=key)


def today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def load_catalog_by_hash(digest: str, *, beside: Path, name: str | None = None) -> Snapshot | None:
    """The very snapshot that an earlier plan used, if it is still here, possibly under a `name` of the user's."""
    named = [beside / name] if name and Path(name).name == name and exists(beside / name) else []
    for path in (*named, *_snapshots(beside), assets.embedded_catalog()):
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
    refuse_half_written(folder)
    path = folder / PLAN_FILE
    if _is_folder(folder) and not exists(path, or_hidden=True):
        raise InputError(f"no {PLAN_FILE} here; `scav plan --out {folder}` writes one", file=str(folder))
    return parse_plan(load_text(path), file=str(path))


def refuse_half_written(folder: Path) -> None:
    """Some files may be of one plan and some of another: `workspace_files` has the whole story."""
    if exists(folder / WRITING):
        message = f"{one_line(str(folder))} was not written to its end; run scav plan again, which finishes it"
        raise StaleWorkspace(message)


def refuse_stale(folder: Path, what: str, files: Sequence[str]) -> NoReturn:
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    named = one_line(f"{folder} {what} ({', '.join(files[:5])}{more})")
    raise StaleWorkspace(f"{named}; run scav plan and commit the result")


def append_line(path: Path, line: str) -> None:
    """After the last line, which is ended first if it is whole and dropped if a killed writer left it torn."""
    with readable_errors(path), _opened_to_append(path) as stream:
        stream.seek(0)
        before, newline, last = stream.read().rpartition(b"\n")
        if last and not is_json(last.decode(errors="replace")):
            stream.truncate(len(before + newline))
        elif last:
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _opened_to_append(path: Path) -> IO[bytes]:
    if path.exists():
        _refuse_special(path.stat(), path)
    return path.open("ab+")


def write_text_atomically(path: Path, text: str) -> None:
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    with readable_errors(path), made_or_removed(path.parent):
        if path.exists():
            _refuse_special(path.stat(), path)
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


@contextlib.contextmanager
def made_or_removed(folder: Path) -> Iterator[None]:
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


@contextlib.contextmanager
def _readable_input(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(_reason(error), file=str(path)) from None


@contextlib.contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """An OSError while something is written here, in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write: {_reason(error)}", file=str(path)) from None


def _reason(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
