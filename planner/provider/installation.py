"""Where Terraform finds the provider without any configuration, and what is put there."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

from planner import __version__
from planner.errors import InputError, ScavError
from planner.outside import store
from planner.outside.doctor import Finding
from planner.provider import launcher

SOURCE = "terraform.local/scav/scav"  # no registry has this host: Terraform asks none for it
NEEDED = {"grpc": "grpcio", "google.protobuf": "protobuf", "cryptography": "cryptography", "msgpack": "msgpack"}
# A launcher is the same text for all of them, so that one hash in a lock file serves them all.
PLATFORMS = ("darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64")
_PACKAGE = Path(__file__).parents[1]
# The shell starts the interpreter, whose path may be longer than a first line may be; for Python it is a text.
_START = """#!/bin/sh
'''exec' "{python}" -EP "$0" "$@"
' '''
"""


class Installed(NamedTuple):
    executables: tuple[Path, ...]
    sha256: str


def plugin_folder() -> Path:
    """One that Terraform and OpenTofu look into on every Unix, whatever their configuration."""
    home = os.environ.get("HOME")
    if not home:
        raise InputError("HOME is not set; name Terraform's plug-in folder with --dir")
    return Path(home) / ".terraform.d" / "plugins"


def missing_packages() -> list[str]:
    return [name for module, name in NEEDED.items() if not _is_there(module)]


def install(folder: Path) -> Installed:
    """Replaces this version's launchers, if there are any."""
    if missing := missing_packages():
        raise ScavError(f"{', '.join(missing)} missing: pip install 'scav-planner[provider]'")
    text = launcher_text()
    paths = tuple(folder / SOURCE / __version__ / platform / executable_name() for platform in PLATFORMS)
    for path in paths:
        store.write_text_atomically(path, text)
        path.chmod(0o755)
    return Installed(paths, store.sha256(text))


def state_of_installation() -> Finding:
    """Whether Terraform would find the code that is here."""
    name, again = "Terraform provider", "to plan inside Terraform: scav provider install"
    if missing := missing_packages():
        to_do = "to plan inside Terraform: pip install 'scav-planner[provider]'"
        return Finding(name=name, ok=False, found=f"{', '.join(missing)} missing", to_do=to_do)
    try:
        path = plugin_folder() / SOURCE / __version__ / PLATFORMS[0] / executable_name()
        same = store.exists(path) and store.load_text(path) == launcher_text()
    except ScavError as error:
        return Finding(name=name, ok=False, found=str(error), to_do=again)
    if same:
        return Finding(name=name, ok=True, found=f"{__version__} in {path.parents[1]}")
    found = "is of other code than this" if store.exists(path) else "not installed"
    return Finding(name=name, ok=False, found=found, to_do=again)


def executable_name() -> str:
    return f"terraform-provider-scav_v{__version__}"


def launcher_text() -> str:
    python = Path(sys.executable).absolute()
    if not set("\"$`\\\n'").isdisjoint(f"{python}{_PACKAGE}"):
        raise InputError("a launcher cannot name a path with quotes, $, ` or \\ in it", file=str(python))
    call = {
        "package": str(_PACKAGE),
        "sha256": launcher.code_sha256(_PACKAGE),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in call.items())
    return f"{_START.format(python=python)}{Path(launcher.__file__).read_text('utf-8')}\n\nstart(\n{arguments})\n"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
