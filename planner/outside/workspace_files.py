"""A workspace folder as a whole: which files in it are scav's, and how they are replaced, all of them or none.

    scav.files.json   the files that scav wrote, each with its hash: nothing else in the folder is ever removed
    .scav-staging/    the next version, while it is written; what a killed scav left of it is removed
    .scav-writing/    the next version, complete, while its files are moved into their places

Between the last two stands one rename. So a killed scav leaves the old workspace, or one with `.scav-writing`, which
every reader refuses and the next `scav plan` finishes. The folder itself may be a symbolic link; nothing that scav
writes inside it may be reached through one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from planner.errors import InputError, ScavError
from planner.outside.store import PLAN_FILE, WRITING, load_bytes, load_text, made_or_removed, readable_errors
from planner.plan import MANIFEST_FILE, POLICY_FILE, format_manifest, parse_manifest, sha256_of

_STAGING = ".scav-staging"


def write_workspace(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Replaces scav's own files only: state, lock file and backend settings in the folder stay as they are.

    What is in the way is met before anything is replaced. Returns what lies among scav's files and is not scav's.
    """
    whole = _with_manifest(files)
    with readable_errors(folder):
        _remove_dead_staging(folder)
        if not folder.is_dir():
            _create(folder, whole)
            return []
        with _only_writer(folder):
            _tidy(folder)
            if any(folder.iterdir()) and not (folder / PLAN_FILE).exists():
                raise InputError(f"not empty and without a {PLAN_FILE}; choose another folder", file=str(folder))
            _replace(folder, whole)
        return foreign_files(folder, whole)


def finish_interrupted(folder: Path) -> None:
    """What a killed scav had decided is written to its end; what it had only begun is removed."""
    with readable_errors(folder):
        if any(os.path.lexists(folder / name) for name in (_STAGING, WRITING)):
            with _only_writer(folder):
                _tidy(folder)


def stale_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Which of the files differ from, are missing from, or should no longer be in the folder."""
    whole = _with_manifest(files)
    return sorted([*differing_files(folder, whole), *_no_longer_written(folder, whole)])


def differing_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Which of the files are not there, or not with this very text, or only through a link."""
    return sorted(name for name, text in files.items() if _digest(folder, name) != sha256_of(text))


def changed_files(folder: Path) -> list[str]:
    """Which files are not as scav wrote them, by the list it left; nothing where it left none."""
    return sorted(name for name, digest in (load_manifest(folder) or {}).items() if _digest(folder, name) != digest)


def overwritten_edits(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Which files somebody changed since scav wrote them, and would find replaced by another text.

    What is reached through a link is left out: `write_workspace` refuses it, whatever the answer.
    """
    changed = [name for name in changed_files(folder) if _digest(folder, name) is not None]
    return [name for name in changed if name in files and _digest(folder, name) != sha256_of(files[name])]


def foreign_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Files in the module copies and in the job's source, and a policy, that scav does not write there now."""
    known = set(names)
    copies = {Path(name).parts[:2] for name in known if name.startswith("modules/")} | {("source",)}
    found = (path.relative_to(folder) for root in sorted(copies) for path in _below(folder.joinpath(*root)))
    return sorted(
        path.as_posix()
        for path in (*found, Path(POLICY_FILE))
        if path.as_posix() not in known
        and os.path.lexists(folder / path)
        and not any(part.startswith(".terraform") for part in path.parts)
    )


def load_manifest(folder: Path) -> Mapping[str, str] | None:
    """Name -> hash; None where there is no list that can be trusted, as before scav wrote one."""
    try:
        return parse_manifest(load_text(folder / MANIFEST_FILE))
    except InputError:
        return None


def _with_manifest(files: Mapping[str, str]) -> dict[str, str]:
    """The list comes last: where it is, everything is."""
    return {**files, MANIFEST_FILE: format_manifest(files)}


def _create(folder: Path, whole: Mapping[str, str]) -> None:
    """Beside its place, then renamed into it."""
    with made_or_removed(folder.parent):
        staging = Path(tempfile.mkdtemp(prefix=_staging_prefix(folder), dir=folder.parent))
        try:
            with _only_writer(staging):
                _write_files(staging / "new", whole)
                (staging / "new").rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _staging_prefix(folder: Path) -> str:
    return f".{folder.name}{_STAGING}-"


def _remove_dead_staging(folder: Path) -> None:
    """Whoever writes holds a lock on its folder, which dies with it."""
    prefix = _staging_prefix(folder)
    with contextlib.suppress(OSError):
        for path in [path for path in folder.parent.iterdir() if path.name.startswith(prefix)]:
            with contextlib.suppress(ScavError), _only_writer(path):
                shutil.rmtree(path, ignore_errors=True)


def _replace(folder: Path, whole: Mapping[str, str]) -> None:
    _refuse_obstacles(folder, whole)
    staging = folder / _STAGING
    try:
        _write_files(staging, whole)
        staging.rename(folder / WRITING)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Afterwards the folder is one version and holds nothing half done."""
    for name in (_STAGING, WRITING, MANIFEST_FILE):
        _refuse_links(folder, name)
    shutil.rmtree(folder / _STAGING, ignore_errors=True)
    writing = folder / WRITING
    if not writing.is_dir():
        return
    staged = load_manifest(writing)
    if staged is not None:  # else its list, which goes last, is in its place already
        _move_files(writing, folder, staged)
    shutil.rmtree(writing)


def _move_files(writing: Path, folder: Path, staged: Mapping[str, str]) -> None:
    for name in staged:
        _refuse_links(folder, name)
        _refuse_links(writing, name)
    for name in staged:
        if (writing / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (writing / name).replace(folder / name)
    for name in _no_longer_written(folder, {*staged, MANIFEST_FILE}):
        (folder / name).unlink()
        _remove_empty_parents(folder, name)
    (writing / MANIFEST_FILE).replace(folder / MANIFEST_FILE)


def _no_longer_written(folder: Path, names: Iterable[str]) -> list[str]:
    """What scav wrote earlier, nobody changed since, and scav does not write any more."""
    known = set(names)
    earlier = load_manifest(folder) or {}
    return sorted(name for name, digest in earlier.items() if name not in known and _digest(folder, name) == digest)


def _remove_empty_parents(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        for parent in list(Path(name).parents)[:-1]:
            (folder / parent).rmdir()


def _refuse_obstacles(folder: Path, whole: Mapping[str, str]) -> None:
    earlier = load_manifest(folder)
    for name, text in whole.items():
        _refuse_links(folder, name)
        path = folder / name
        if path.is_dir():
            raise InputError("is a folder, but scav writes a file of this name", file=str(path))
        for parent in list(Path(name).parents)[:-1]:
            if (folder / parent).exists() and not (folder / parent).is_dir():
                raise InputError("is a file, but scav writes a folder of this name", file=str(folder / parent))
        mine = earlier is None or name in earlier or name == MANIFEST_FILE
        if not mine and path.exists() and _digest(folder, name) != sha256_of(text):
            message = f"is not in {MANIFEST_FILE}, so it is yours, but scav writes a file of this name: rename yours"
            raise InputError(message, file=str(path))


def _refuse_links(folder: Path, name: str) -> None:
    if link := _link_on_the_way(folder, name):
        raise InputError("is a symbolic link; scav writes only inside the workspace: replace it", file=str(link))


def _link_on_the_way(folder: Path, name: str) -> Path | None:
    ways = [folder / name, *(folder / parent for parent in list(Path(name).parents)[:-1])]
    return next((way for way in reversed(ways) if way.is_symlink()), None)


def _digest(folder: Path, name: str) -> str | None:
    """Of a file that is inside the folder; None of anything else."""
    if _link_on_the_way(folder, name):
        return None
    try:
        return sha256_of(load_bytes(folder / name))
    except InputError:
        return None


def _below(folder: Path) -> Iterator[Path]:
    """Everything but folders; links are not followed."""
    if folder.is_symlink():
        yield folder
        return
    for parent, folders, files in os.walk(folder):
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in (*files, *linked))


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """One scav at a time; the lock dies with its holder. Some network file systems have no locks: then without."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScavError(f"another scav is writing {folder}: wait for it") from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)
