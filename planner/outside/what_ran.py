"""The key of what a probe runs: the script with what it imports, its arguments, and the image or the software here.

Of the script's folder only what the script reaches is hashed: itself, the modules beside it that it imports, theirs in
turn, and configuration files that its arguments name. The whole folder would measure again, at a price, after an edit
of a notebook or of a test. Data is not looked at, nor what a script imports by a name that it computes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from planner.errors import ScavError
from planner.inputs import Ran, digest_of
from planner.outside import store

_CONFIGURATION = frozenset({".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"})
_MOST_BYTES = 1 << 20  # of one file: what is larger is data
_MOST_FILES = 2000
_LONGEST_COMMAND = 400
_VERSION = re.compile(r"\d+\.\d+")


def ran_here(folder: Path, command: Sequence[str], *, in_python: bool, image: str | None = None) -> Ran:
    """`in_python`: under this Python, whose versions count. In containers the digest of the image stands for them."""
    software = _software() if in_python and image is None else {}
    return _ran(command, script_sha256(folder, command), image, software)


def ran_elsewhere(folder: Path, command: Sequence[str], software: Mapping[str, str], machines: Sequence[str]) -> Ran:
    """With this script on machines of somebody's, whose software and kinds count."""
    known = {name: _minor(software[name]) for name in ("python", "torch")}
    return _ran(command, script_sha256(folder, command), None, {**known, "machines": ", ".join(machines)})


def ran_in_image(command: Sequence[str], image: str | None) -> Ran:
    """On rented nodes, which find the script in their image: whatever lies here did not run."""
    return _ran(command, None, digest_of(image) if image else None, {})


def _ran(command: Sequence[str], script: str | None, image: str | None, software: dict[str, str]) -> Ran:
    command = [*map(os.path.normpath, command[:1]), *command[1:]]  # ./train.py is train.py
    what = json.dumps([script, command, image, software], sort_keys=True)
    return Ran(store.sha256(what)[:12], shlex.join(command)[:_LONGEST_COMMAND], script)


def _software() -> dict[str, str]:
    """Major and minor: between these, kernels and communication become faster or slower."""
    versions = {"python": platform.python_version()}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # the runner says so
        versions["torch"] = importlib.metadata.version("torch")
    return {name: _minor(text) for name, text in versions.items()}


def _minor(version: str) -> str:
    found = _VERSION.match(version)
    return found[0] if found else version


def script_sha256(folder: Path, command: Sequence[str]) -> str | None:
    """Of every file that the command reaches in the folder, under its name; None where it names none."""
    total = hashlib.sha256()
    contents = _reached(folder, command)
    for name in sorted(contents):
        total.update(f"{name}\0{hashlib.sha256(contents[name]).hexdigest()}\n".encode())
    return total.hexdigest() if contents else None


def _reached(folder: Path, command: Sequence[str]) -> dict[str, bytes]:
    folder = _absolute(folder)
    script = _absolute(folder.joinpath(*command[:1]))
    home = folder if script.is_relative_to(folder) else script.parent  # elsewhere, its modules lie beside it
    words = [name for word in command for name in (word, word.partition("=")[2])]
    pending = [_absolute(folder / name) for name in words if _is_named(folder, name)]
    pending += [script] if script.is_file() else []
    contents: dict[str, bytes] = {}
    while pending and len(contents) < _MOST_FILES:
        path = pending.pop()
        root = next((root for root in (folder, home) if path.is_relative_to(root)), None)
        if root is None or (name := f"{'../' * (root != folder)}{path.relative_to(root).as_posix()}") in contents:
            continue
        try:
            contents[name] = store.load_bytes(path, _MOST_BYTES)
        except ScavError:  # a data set, or not to be read: then the script will say so
            continue
        if path.suffix == ".py":
            pending += _imported(contents[name], path, root)
    return contents


def _absolute(path: Path) -> Path:
    """Without following links: what a name means here, not where its content lies."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute keeps `..`)


def _is_named(folder: Path, name: str) -> bool:
    """A program without a suffix may be what runs; files elsewhere are not the job's."""
    try:
        inside = name != "" and _absolute(folder / name).is_relative_to(folder)
        return inside and Path(name).suffix in {*_CONFIGURATION, ""} and (folder / name).is_file()
    except (OSError, ValueError):
        return False


def _imported(source: bytes, path: Path, folder: Path) -> Iterator[Path]:
    """Modules beside the script, where Python looks first; those of a package also in the folders above."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(_roots(path, folder), alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            above = path.parents[node.level - 1 : node.level] if node.level else _roots(path, folder)
            for alias in node.names:
                yield from _module_files(above, [*parts, alias.name])


def _roots(path: Path, folder: Path) -> Sequence[Path]:
    """The file's folder, and as long as that is a package inside of the job's the one above."""
    roots = [path.parent]
    while roots[-1] != folder and (roots[-1] / "__init__.py").is_file():
        roots.append(roots[-1].parent)
    return roots


def _module_files(roots: Sequence[Path], parts: Sequence[str]) -> Iterator[Path]:
    """`a.b.c` runs a/__init__.py, a/b/__init__.py and a/b/c.py, as far as they are there."""
    for root in roots:
        for length in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:length])
            yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())
