"""What Terraform starts: it looks whether scav's code is still the code that was installed, then runs it.

This file's text becomes the launcher, with a call of `start` at its end. So Terraform's lock file, which holds a hash
of the launcher, covers the code behind it, too. It needs the standard library alone until that was looked at.
"""

import hashlib
import os
import sys
from io import FileIO
from pathlib import Path
from typing import NoReturn


def code_sha256(package: Path) -> str:
    """Of every file in the package by its name, but for what Python itself keeps beside them."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            with FileIO(f"{folder}/{name}") as file:
                content = file.readall()
            found.update(f"{folder.removeprefix(str(package))}/{name}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()


def start(*, package: str, sha256: str, version: str, python: str) -> NoReturn:
    """Before the handshake Terraform shows the first line on stdout, whatever it is: so a refusal is such a line."""
    again = "run `scav provider install` again, and then `terraform init -upgrade`"
    running = ".".join(map(str, sys.version_info[:2]))
    if running != python:
        refuse(f"was installed with Python {python}, and this is {running}; {again}")
    folder = Path(package)
    if not folder.is_dir():
        refuse(f"was removed from {folder}; {again}")
    if code_sha256(folder) != sha256:
        refuse(f"the code in {folder} is not what scav provider install saw of {version}; {again}")
    sys.path.insert(0, str(folder.parent))
    from planner.provider.__main__ import run

    sys.exit(run())


def refuse(reason: str) -> NoReturn:
    print(f"scav: {reason}")
    sys.exit(1)
