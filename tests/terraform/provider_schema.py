"""The modules' HCL against the names of a provider: unknown and missing arguments, blocks and attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2

FIXTURE = Path(__file__).with_name("provider_schema.json")
MODULES = Path(__file__).resolve().parents[2] / "modules"
META_ARGUMENTS = {"count", "depends_on", "for_each", "lifecycle", "provider"}
# aws_x.name or data.aws_x.name, perhaps with an index, and the attribute that is read from it.
REFERENCE = re.compile(r"\b((?:data\.)?aws_\w+)\.\w+(?:\[(?:[^\[\]]|\[[^\]]*\])*\])?\.(\w+)")


def load_schema() -> dict[str, Any]:
    return json.loads(FIXTURE.read_text(encoding="utf-8"))["types"]


def sources() -> dict[str, str]:
    return {str(path.relative_to(MODULES)): path.read_text(encoding="utf-8") for path in sorted(MODULES.glob("*/*.tf"))}


def used_types() -> set[str]:
    return {kind for text in sources().values() for kind, _, _ in declarations(text)}


def problems(files: dict[str, str], schema: dict[str, Any]) -> list[str]:
    """What provider and files disagree about, one line each."""
    found = []
    for file, text in files.items():
        for kind, name, body in declarations(text):
            place = f"{file}: {kind}.{name}"
            if kind in schema:
                found += list(_body_problems(place, body, schema[kind]["arguments"]))
            else:
                found.append(f"{place}: the provider has no such type, or the fixture is out of date")
        for kind, attribute in REFERENCE.findall(text):
            if kind in schema and attribute not in schema[kind]["attributes"]:
                found.append(f"{file}: {kind} has no attribute {attribute}")
    return found


def declarations(text: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type, name and body of each resource and data source of AWS, those inside checks too."""
    parsed = hcl2.loads(text)
    checks = [body for check in parsed.get("check", []) for body in check.values()]
    for container in (parsed, *checks):
        for section, prefix in (("resource", ""), ("data", "data.")):
            for declaration in container.get(section, []):
                for kind, named in ((kind, named) for kind, named in _real(declaration) if "aws_" in kind):
                    for name, body in _real(named):
                        yield prefix + _plain(kind), _plain(name), body


def _body_problems(place: str, body: dict[str, Any], arguments: dict[str, Any]) -> Iterator[str]:
    present = set()
    for name, value in _parts(body):
        present.add(name)
        if name in META_ARGUMENTS:
            continue
        if name not in arguments:
            yield f"{place}: unknown argument {name}"
        elif "block" in arguments[name]:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    yield from _body_problems(f"{place}.{name}", inner, arguments[name]["block"])
    yield from (
        f"{place}: {name} is missing"
        for name, facts in arguments.items()
        if facts.get("required") and name not in present
    )


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arguments and blocks; a dynamic block counts as the block that it makes."""
    for name, value in _real(body):
        if name == "dynamic":
            for dynamic in value:
                for label, inner in _real(dynamic):
                    yield _plain(label), inner["content"]
        else:
            yield name, value


def _real(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Without what the parser adds about lines and comments."""
    return ((name, value) for name, value in body.items() if not name.startswith("__"))


def _plain(label: str) -> str:
    return label.strip('"')
