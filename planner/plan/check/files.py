"""Which files of a workspace change what Terraform builds: scav's, a few that users may add, and none beside these.

An override, a second provider or a value in another file changes the cluster without a line of scav's being edited.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from planner.plan.check.comparison import Difference, Unasked, difference, unasked
from planner.plan.check.hcl import Statement, statements

# Where the state is: a `terraform` block with these and nothing else.
SETTINGS_FILES = ("backend.tf", "cloud.tf")
SETTINGS = {"backend", "cloud", "encryption", "required_version"}
# Answers to what the plan left open, and what a platform team demands.
VALUES_FILES = ("site.auto.tfvars", "site.auto.tfvars.json")
_CODE = (".tf", ".tf.json", ".tofu", ".tofu.json")
_VALUES = (".auto.tfvars", ".auto.tfvars.json")


def is_read_by_terraform(name: str) -> bool:
    """Of a file in the folder in which Terraform runs, or OpenTofu."""
    code = name.endswith(_CODE) and not name.startswith(".")
    return code or name.endswith(_VALUES) or name in ("terraform.tfvars", "terraform.tfvars.json")


def unknown_files(added: Mapping[str, str | None], allowed: Collection[str]) -> Iterator[Unasked]:
    """`added`: what Terraform reads and scav did not write, with its text; None where it cannot be read."""
    for name, text in sorted(added.items()):
        if name in SETTINGS_FILES and name not in allowed:
            yield from (unasked(name, what) for what in _beyond_settings(text))
        elif name not in (*VALUES_FILES, *allowed):
            yield unasked(name, "Terraform reads it, and scav did not write it; --allow it if it is yours")


def decided_elsewhere(added: Mapping[str, str | None], decided: Mapping[str, object]) -> Iterator[Difference]:
    """Values of scav's that another file replaces."""
    for name, text in sorted(added.items()):
        if not name.endswith(_VALUES):
            continue
        try:
            names = _assigned(name, text)
        except ValueError as error:
            yield difference(f"file {name}", "values that can be read", str(error))
            continue
        for variable in names:
            if variable in decided:
                yield difference(f"variable {variable}", decided[variable], f"set again in {name}")


def _assigned(name: str, text: str | None) -> list[str]:
    """The variables that a file of values sets."""
    if text is None:
        raise ValueError("not a text file")
    if not name.endswith(".json"):
        return [found.name for found in statements(text)]
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return list(values)


def _beyond_settings(text: str | None) -> Iterator[str]:
    try:
        if text is None:
            raise ValueError("not a text file")
        found = statements(text)
    except ValueError as error:
        yield f"cannot be read as a backend alone: {error}"
        return
    yield from (f"declares {item.name}, and not a backend alone" for item in found if not _is_setting(item))


def _is_setting(item: Statement) -> bool:
    if not item.inside:
        return item.is_block and item.name == "terraform"
    return len(item.inside) > 1 or item.name in SETTINGS
