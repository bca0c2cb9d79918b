"""The files of `run.source`, as they travel with a plan: text in the workspace, where a pull request shows changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from planner.errors import InputError
from planner.outside import store

SOURCE_FOLDER = "source"
_MOST_FILES = 500
_MOST_BYTES = 1 << 20  # of one file: what is larger is data
_MOST_BYTES_IN_ALL = 4 << 20
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "venv"})
_NOT_SOURCE_ENDS = (".pyc", ".pyo", ".tfstate", ".tfplan")
_ELSEWHERE = "put it into an image (run.image) or into S3, or name a folder without it"


def load_source(folder: Path) -> dict[str, str]:
    """Name in the workspace -> text. Hidden files, caches and workspaces of scav are no source."""
    if not folder.is_dir():
        raise InputError("run.source names no folder", file=str(folder))
    files: dict[str, str] = {}
    for path in _files_below(folder):
        files[f"{SOURCE_FOLDER}/{path.relative_to(folder).as_posix()}"] = _text(path)
        if len(files) > _MOST_FILES:
            raise InputError(f"run.source holds more than {_MOST_FILES} files; {_ELSEWHERE}", file=str(folder))
    if not files:
        raise InputError("run.source holds no files", file=str(folder))
    if sum(len(text.encode()) for text in files.values()) > _MOST_BYTES_IN_ALL:
        raise InputError(f"run.source holds more than {_MOST_BYTES_IN_ALL >> 20} MiB; {_ELSEWHERE}", file=str(folder))
    return dict(sorted(files.items()))


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        if Path(parent) != folder and store.PLAN_FILE in names:  # a workspace
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _NOT_SOURCE and not name.startswith("."))
        yield from (
            Path(parent, name)
            for name in sorted(names)
            if not name.startswith(".") and not name.endswith(_NOT_SOURCE_ENDS) and Path(parent, name).is_file()
        )


def _text(path: Path) -> str:
    try:
        return store.load_bytes(path, _MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise InputError(f"is in run.source and no text; {_ELSEWHERE}", file=str(path)) from None
