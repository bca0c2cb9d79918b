"""Logs of training runs, as other tools leave them on disk: which format it is, and what it holds.

TensorBoard's and W&B's own files are read by their own libraries, if these are here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError, ScavError, one_line
from planner.inputs import (
    ImportedFrom,
    LoggedProgress,
    LoggedRun,
    is_trainer_state,
    logged_progress,
    logged_runs,
    parse_csv,
    trainer_state_progress,
    trainer_state_run,
)
from planner.outside import store

_MOST_FILES = 2000  # of one MLflow run: metrics and parameters
_IN_FOLDERS = ("trainer_state.json", "metrics.csv", "*tfevents*", "*.wandb")


class Log(NamedTuple):
    """The runs in one log, and where it comes from."""

    runs: Sequence[LoggedRun]
    source: ImportedFrom


class Followed(NamedTuple):
    """How far the run of a log got, and where it comes from."""

    progress: LoggedProgress
    source: ImportedFrom


class _Content(NamedTuple):
    """What was read: records with named columns, what the tool kept of the run's settings, and all of it as bytes.

    `metrics` are the records with the values that were logged, where `records` have no more than when they were.
    """

    format: str
    records: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    content: bytes
    metrics: Sequence[Mapping[str, Any]] | None = None


class _TrainerState(NamedTuple):
    text: str


def load_log(path: Path, columns: Mapping[str, str]) -> Log:
    """`columns`: what is meant -> the name of its column, where the user says so."""
    file = _log_in(path)
    found = _read(file)
    if isinstance(found, _TrainerState):
        return Log([trainer_state_run(found.text, file=str(file))], _source_of(found, file))
    runs = logged_runs(found.records, columns=columns, settings=found.settings, file=str(file))
    return Log(runs, _source_of(found, file))


def load_progress(path: Path, columns: Mapping[str, str]) -> Followed:
    """Of the same logs, also of a run that goes on."""
    file = _log_in(path)
    found = _read(file)
    if isinstance(found, _TrainerState):
        return Followed(trainer_state_progress(found.text, file=str(file)), _source_of(found, file))
    records = found.records if found.metrics is None else found.metrics
    return Followed(logged_progress(records, columns=columns, file=str(file)), _source_of(found, file))


def _read(file: Path) -> _Content | _TrainerState:
    if (file / "metrics").is_dir():
        return _mlflow(file)
    if "tfevents" in file.name:
        return _with_library("tensorboard", _tensorboard, file)
    if file.suffix == ".wandb":
        return _with_library("wandb", _wandb, file)
    text = store.load_text(file)
    if file.suffix not in (".json", ".jsonl", ".ndjson"):
        records = parse_csv(text, file=str(file))
        return _Content(_kind_of_csv(records[0]), records, {}, text.encode())
    parsed = _json(text, file)
    if is_trainer_state(parsed):
        return _TrainerState(text)
    if isinstance(parsed, list) and all(isinstance(record, dict) for record in parsed):
        return _Content("W&B history", parsed, {}, text.encode())
    raise InputError("is neither a trainer_state.json nor a list of logged records", file=str(file))


def _log_in(path: Path) -> Path:
    """A folder stands for the one log in it."""
    if not path.is_dir() or (path / "metrics").is_dir():
        return path
    found = sorted(file for pattern in _IN_FOLDERS for file in path.glob(pattern))
    if len(found) != 1:
        what = f"{len(found)} logs, {', '.join(file.name for file in found[:4])}: name one" if found else "no log"
        raise InputError(f"holds {what}", file=str(path))
    return found[0]


def _source_of(found: _Content | _TrainerState, file: Path) -> ImportedFrom:
    if isinstance(found, _TrainerState):
        kind, content = "Hugging Face trainer_state", found.text.encode()
    else:
        kind, content = found.format, found.content
    return ImportedFrom(format=kind, file=one_line(file.name), sha256=hashlib.sha256(content).hexdigest())


def _kind_of_csv(record: Mapping[str, Any]) -> str:
    names = {name.lower() for name in record}
    if names & {"_step", "_runtime", "_timestamp"} or any(name.endswith("__max") for name in names):
        return "W&B CSV"
    return "Lightning CSV" if {"epoch", "step"} <= names else "CSV"


def _json(text: str, file: Path) -> object:
    """One value, or one on every line."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            raise InputError(f"is no JSON: {error}", file=str(file)) from None


def _mlflow(folder: Path) -> _Content:
    """A run of its file store: a file for every parameter, and for every metric, of lines `milliseconds value step`."""
    contents = {path: store.load_bytes(path) for path in _files(folder / "metrics")}
    records, metrics = [], []
    for path, content in contents.items():
        name = path.relative_to(folder / "metrics").as_posix()
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
            words = line.split()
            if len(words) < 3:
                raise InputError("is no line of a metric: milliseconds value step", file=str(path), line=number)
            records.append({"timestamp": words[0], "step": words[2]})
            metrics.append({**records[-1], name: words[1]})
    if not records:
        raise InputError("holds no metrics", file=str(folder))
    parameters = {
        path.name: store.load_bytes(path).decode("utf-8", errors="replace") for path in _files(folder / "params")
    }
    return _Content("MLflow", records, parameters, b"".join(contents.values()), metrics)


def _files(folder: Path) -> list[Path]:
    """Metrics have names with slashes in them."""
    found = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    if len(found) > _MOST_FILES:
        raise InputError(f"more than {_MOST_FILES} files", file=str(folder))
    return found


def _with_library(name: str, read: Callable[[Path], _Content], file: Path) -> _Content:
    """Whatever another library says about a file that it cannot read, in one line.

    It gets a copy: W&B's opens files for writing, and the training may still be adding to the one here.
    """
    content = store.load_bytes(file)
    try:
        importlib.import_module(name)
    except ImportError:
        raise ScavError(f"{file.name} is read by {name}: pip install 'scav-planner[import]'") from None
    try:
        with contextlib.redirect_stdout(None), tempfile.TemporaryDirectory(prefix="scav-import-") as folder:
            copy = Path(folder) / file.name
            copy.write_bytes(content)
            found = read(copy)
    except Exception as error:
        raise InputError(f"{name} cannot read it: {one_line(str(error))}", file=str(file)) from None
    if not found.records:
        raise InputError(f"{name} finds nothing logged in it", file=str(file))
    return found


def _tensorboard(file: Path) -> _Content:
    """Every scalar with its step and time. Hugging Face's callback also writes its arguments, as text."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    records, metrics, settings = [], [], {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                records.append({"step": event.step, "wall_time": event.wall_time})
                metrics.append({**records[-1], value.tag: float(make_ndarray(value.tensor))})
            elif value.tag == "args/text_summary":
                settings = json.loads(value.tensor.string_val[0])
    settings = settings if isinstance(settings, dict) else {}
    return _Content("TensorBoard", records, settings, file.read_bytes(), metrics)


def _wandb(file: Path) -> _Content:
    """The file of an offline run, or of one that was not synchronised yet."""
    records: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    for record in _wandb_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            records.append({_wandb_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind in ("config", "run"):
            update = record.config.update if kind == "config" else record.run.config.update
            settings |= {_wandb_key(item): json.loads(item.value_json) for item in update}
    return _Content("W&B", records, settings, file.read_bytes())


def _wandb_records(file: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    with contextlib.closing(DataStore()) as data_store:
        scan: Any = data_store
        scan.open_for_scan(str(file))
        while (data := scan.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            yield record


def _wandb_key(item: Any) -> str:
    return item.key or "/".join(item.nested_key)
