"""`scav.files.json`: which files of a workspace scav wrote, each with the hash of its text.

It is committed with the rest, so its names are checked before anybody acts on them: inside the folder, and never
Terraform's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints, ValidationError

from planner.contract import Contract, first_fault
from planner.errors import InputError

MANIFEST_FILE = "scav.files.json"
_HIDDEN = ".gitattributes"  # the one such file that scav writes


def _inside(name: str) -> str:
    if name == _HIDDEN:
        return name
    parts = name.split("/")
    if any(part.strip() == "" or part.startswith(".") for part in parts) or "\\" in name or not name.isprintable():
        raise ValueError("names no file inside a workspace")
    if "tfstate" in name.lower():
        raise ValueError("is Terraform's")
    return name


Name = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_inside)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Contract):
    schema_version: Literal[1] = 1
    files: dict[Name, Sha256]


def format_manifest(files: Mapping[str, str]) -> str:
    """Sorted, so that a new plan changes only the lines of the files that changed."""
    manifest = Manifest(files={name: sha256_of(text) for name, text in sorted(files.items())})
    return json.dumps(manifest.model_dump(mode="json"), indent=2) + "\n"


def parse_manifest(text: str) -> Mapping[str, str]:
    """Name -> hash."""
    try:
        return Manifest.model_validate_json(text).files
    except ValidationError as error:
        fault = first_fault(error, Manifest)
        raise InputError(
            f"not a list of files that scav wrote: {fault.message}", file=MANIFEST_FILE, key=fault.key
        ) from None


def sha256_of(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
