"""From the text of a job file to a Job, or to one sentence with file, line and key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from planner.errors import InputError
from planner.inputs.job.schema import FORMS, Job

KeyPath = tuple[str | int, ...]
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
        path, message = _first_fault(error)
        raise _error(message, path, file, lines, overridden) from None


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
            raise InputError("this key stands here twice", file=file, line=line, key=_dotted(child))
        lines[child] = line
        yield key_node.value, _plain(value_node, child, lines, file)


def _scalar(text: str) -> str | None:
    """Text until its field reads it: YAML takes `24.6e9` for a word, `1:30` for a number and `true` for 1.0."""
    return None if text in _NULLS else text


def _error(
    message: str, path: KeyPath, file: str, lines: dict[KeyPath, int], overridden: frozenset[KeyPath]
) -> InputError:
    if path[:1] in overridden or path[:2] in overridden:
        return InputError(message, file="command line", key=_dotted(path))
    return InputError(message, file=file, line=_line(lines, path), key=_dotted(path))


def _first_fault(error: ValidationError) -> tuple[KeyPath, str]:
    details = error.errors(include_url=False)
    # A mistyped key also leaves its right spelling missing: naming the typo explains both.
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    path = tuple(first["loc"])
    message = _sentence(first, path)
    if len(details) > 1:
        message += f" (and {len(details) - 1} more)"
    return path, message


def _sentence(detail: ErrorDetails, path: KeyPath) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    match kind:
        case "extra_forbidden":
            return _unknown_key(path)
        case "missing":
            return "this key is required"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return f"{shown} is not one of {context['expected']}"
        case "string_pattern_mismatch":
            return f"{shown} is not {FORMS[context['pattern']]}"
        case "tuple_type":
            return f"{shown} must be a list; write [a, b]"
        case "model_type" | "model_attributes_type":
            return f"{shown} must be a group of `key: value` lines"
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {shown}"


def _unknown_key(path: KeyPath) -> str:
    known = _known_keys(path[:-1])
    near = difflib.get_close_matches(str(path[-1]).lower(), known, n=1, cutoff=0.5)
    return f"unknown key; did you mean `{near[0]}`?" if near else f"unknown key; known here: {', '.join(known)}"


def _known_keys(path: KeyPath) -> list[str]:
    model: type[BaseModel] = Job
    for key in path:
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == key), None)
        if field is not None:
            model = _model_inside(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_inside(part))), None)


def _line(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """The line of the key, or of the nearest group around it when the key itself is missing."""
    return next((lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines), None)


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)
