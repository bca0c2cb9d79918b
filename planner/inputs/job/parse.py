"""From the text of a job file to a Job, or to one sentence with file, line and key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from planner.contract import KeyPath, dotted, first_fault
from planner.errors import InputError
from planner.inputs.job.schema import Job

_LARGEST_FILE = 1 << 18  # characters; YAML is read slowly enough that more would look like a hang
_NULLS = {"", "~", "null", "Null", "NULL"}


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job and where its keys stand, for errors that only show later (an unknown region)."""

    job: Job
    file: str
    lines: dict[KeyPath, int]
    overridden: frozenset[KeyPath] = frozenset()

    def error(self, path: KeyPath, message: str) -> InputError:
        return _error(message, path, self.file, self.lines, self.overridden)


def parse_job(text: str, *, file: str, overrides: dict[str, Any] | None = None) -> JobFile:
    """`overrides` replace keys of `constraints` and `objective`, as the command line's options do."""
    tree, lines = _read_yaml(text, file)
    overridden = frozenset((key,) if key == "objective" else ("constraints", key) for key in overrides or {})
    if overrides:
        tree = _with_overrides(tree, overrides)
    try:
        return JobFile(job=Job.model_validate(tree), file=file, lines=lines, overridden=overridden)
    except ValidationError as error:
        fault = first_fault(error, Job)
        raise _error(fault.message, fault.path, file, lines, overridden) from None


def _with_overrides(tree: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    constraints = tree.get("constraints") or {}
    if not isinstance(constraints, dict):
        return tree  # validation will say so
    objective = {key: value for key, value in overrides.items() if key == "objective"}
    others = {key: value for key, value in overrides.items() if key != "objective"}
    return {**tree, **objective, "constraints": {**constraints, **others}}


def _read_yaml(text: str, file: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    if len(text) > _LARGEST_FILE:
        raise InputError("larger than 256 KiB: this is not a job file", file=file)
    try:
        root = yaml.compose(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"not valid YAML: {error.problem}", file=file, line=line) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {str(error).splitlines()[0]}", file=file) from None
    except (ValueError, OverflowError) as error:  # PyYAML on "\U00110000" and on a version of thousands of digits
        raise InputError(f"not valid YAML: {error}", file=file) from None
    except RecursionError:
        raise InputError("nested too deeply to be a job file", file=file) from None
    if root is None:
        raise InputError("the file is empty; `scav init` writes one to start from", file=file)
    if not isinstance(root, yaml.MappingNode):
        raise InputError("must be a list of `key: value` lines", file=file, line=1)
    lines: dict[KeyPath, int] = {}
    return _plain(root, (), lines, file), lines


class _PlainLoader(yaml.SafeLoader):
    """Aliases are refused: a job file needs none, and a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not supported", mark)
        return super().compose_node(parent, index)


def _plain(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], file: str) -> Any:
    """Text, lists and mappings only: no tag can make anything else."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, index), lines, file) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        pairs = _pairs(node, path, lines, file)
        return {key: value for key, value in pairs if value is not None}  # `key:` alone says nothing
    quoted = isinstance(node, yaml.ScalarNode) and node.style
    return node.value if quoted else _scalar(node.value)


def _pairs(node: yaml.MappingNode, path: KeyPath, lines: dict[KeyPath, int], file: str) -> Iterator[tuple[str, Any]]:
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError("a key must be a word", file=file, line=line)
        child = (*path, key_node.value)
        if child in lines:
            raise InputError("this key stands here twice", file=file, line=line, key=dotted(child))
        lines[child] = line
        yield key_node.value, _plain(value_node, child, lines, file)


def _scalar(text: str) -> str | None:
    """Text until its field reads it: YAML takes `24.6e9` for a word, `1:30` for a number and `true` for 1.0."""
    return None if text in _NULLS else text


def _error(
    message: str, path: KeyPath, file: str, lines: dict[KeyPath, int], overridden: frozenset[KeyPath]
) -> InputError:
    if path[:1] in overridden or path[:2] in overridden:
        return InputError(message, file="command line", key=dotted(path))
    return InputError(message, file=file, line=_line(lines, path), key=dotted(path))


def _line(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """The line of the key, or of the nearest group around it when the key itself is missing."""
    return next((lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines), None)
