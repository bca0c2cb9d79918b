"""A base image of this machine's own Python and PyTorch, without a registry: seconds instead of a download.

Only what a Debian base would have is taken: a shell and a few programs, the C library, Python. With torch it stands for
a deep learning container, without it for a plain Python image.
"""

from __future__ import annotations

import importlib.metadata
import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PROGRAMS = ("sh", "cat", "chmod", "id", "ls", "mkdir", "rm", "sleep")
PREFIX = Path("usr/local")
# Neither is needed to run: headers, torch's own C++ tests and tools, Python's tests and what it was built with.
LEFT_OUT = {"include", "test", "tests", "idlelib", "tkinter", "site-packages", "dist-packages"}

TORCH_LEFT_OUT = {("torch", "bin"), ("torch", "include"), ("torch", "test")}


def write_base(archive: io.BufferedIOBase, *, with_torch: bool) -> None:
    """A root file system as a tar stream, for `podman import`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installation = Path(sys.base_prefix)
    files: dict[Path, Path] = {PREFIX / "bin/python3": Path(sys.executable).resolve()}
    for library in installation.glob("lib/libpython3*.so*"):
        files[PREFIX / "lib" / library.name] = library
    standard_library = installation / "lib" / version
    files |= tree(standard_library, PREFIX / "lib" / version)
    site = PREFIX / "lib" / version / "site-packages"
    for name in [*(dependencies("torch", "numpy") if with_torch else ()), "pip"]:
        files |= {site / path: source for path, source in installed(name)}
    for program in PROGRAMS:
        files[Path("usr/bin") / program] = Path(shutil.which(program) or program).resolve()
    for library in shared_libraries(files.values()):
        files[merged(library)] = library
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        for folder, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            link = tarfile.TarInfo(folder)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for folder, mode in (("etc", 0o755), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for path, text in (("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("etc/group", "root:x:0:\n")):
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        for path, source in sorted(files.items()):
            add(tar, path, source)


def add(tar: tarfile.TarFile, path: Path, source: Path) -> None:
    entry = tarfile.TarInfo(path.as_posix())
    status = source.stat()
    entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
    entry.mtime = int(status.st_mtime)  # or compiled files do not fit their sources, and importing torch takes a minute
    with source.open("rb") as content:
        tar.addfile(entry, content)


def tree(folder: Path, target: Path) -> dict[Path, Path]:
    found = {}
    for source in folder.rglob("*"):
        part = source.relative_to(folder)
        if source.is_file() and not LEFT_OUT & set(part.parts) and not part.parts[0].startswith("config-"):
            found[target / part] = source
    return found


def dependencies(*names: str) -> list[str]:
    """The packages and all that they need here, by name."""
    found: list[str] = []
    pending = [*names]
    while pending:
        current = pending.pop()
        try:
            needs = importlib.metadata.requires(current) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system or an extra
        if current not in found:
            found.append(current)
            pending += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need]
    return found


def installed(name: str) -> Iterator[tuple[Path, Path]]:
    for file in importlib.metadata.files(name) or []:
        path, source = Path(str(file)), Path(str(file.locate()))
        heavy = path.parts[:2] in TORCH_LEFT_OUT and path.name != "torch_shm_manager"
        if ".." not in path.parts and not heavy and source.is_file():
            yield path, source


def shared_libraries(files: Iterable[Path]) -> set[Path]:
    """What the loader would take from the system for these programs and libraries."""
    binary = [str(file) for file in files if file.suffix == "" or ".so" in file.name]
    printed = subprocess.run(["ldd", *binary], capture_output=True, text=True, check=False).stdout
    found = {Path(path) for path in re.findall(r"(?:=>\s|^\s+)(/\S+) \(0x", printed, flags=re.MULTILINE)}
    own = (Path(sys.base_prefix), Path(sys.prefix))
    return {path for path in found if not any(path.is_relative_to(folder) for folder in own)}


def merged(library: Path) -> Path:
    """/lib is /usr/lib in Debian."""
    path = library.relative_to("/")
    return path if path.parts[0] == "usr" else Path("usr") / path


def import_base(engine: str, name: str, *, with_torch: bool) -> str:
    """The image's name, made from this machine's files."""
    environment = f"ENV LD_LIBRARY_PATH=/{PREFIX}/lib"
    process = subprocess.Popen(
        [engine, "import", "--change", environment, "-", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    with process.stdin:
        write_base(process.stdin, with_torch=with_torch)
    assert process.wait() == 0, f"{engine} import failed on {platform.system()}"
    return name
