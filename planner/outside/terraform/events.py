"""What Terraform's `-json` event stream says: how far it is, and what is wrong, in its own words."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import one_line

Event = Mapping[str, Any]
OPERATIONS = {"create": 1, "update": 1, "delete": 1, "replace": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many operations on resources are done, of how many, and the one that began or ended last."""

    done: int = 0
    total: int = 0
    current: str = ""

    def after(self, event: Event) -> Progress:
        kind = event.get("type")
        if kind == "planned_change":
            return dataclasses.replace(self, total=self.total + OPERATIONS.get(_action(event, "change"), 0))
        if kind in ("apply_start", "apply_progress", "apply_complete", "apply_errored"):
            counted = kind == "apply_complete" and _action(event, "hook") in OPERATIONS
            return dataclasses.replace(self, done=self.done + counted, current=one_line(str(event.get("@message", ""))))
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A warning or an error, whole."""

    severity: str
    summary: str
    detail: str = ""
    address: str = ""
    place: str = ""
    code: str = ""

    def __str__(self) -> str:
        """Laid out as Terraform does on a terminal without its frame."""
        where = [f"  with {self.address}," if self.address else "", self.place, self.code]
        blocks = [f"{self.severity.capitalize()}: {self.summary}", "\n".join(line for line in where if line)]
        return "\n\n".join(block for block in (*blocks, self.detail.strip("\n")) if block)


def parse_event(line: str) -> Event:
    """A line that is no JSON object is text that Terraform printed past its own format."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    return event if isinstance(event, dict) else {"type": "text", "@message": line.rstrip("\n")}


def parse_diagnostic(found: object) -> Diagnostic:
    found = _mapping(found)
    area, snippet = _mapping(found.get("range")), _mapping(found.get("snippet"))
    context = f", in {snippet['context']}" if snippet.get("context") else ""
    line = _mapping(area.get("start")).get("line")
    return Diagnostic(
        severity=str(found.get("severity", "error")),
        summary=str(found.get("summary", "")),
        detail=str(found.get("detail", "")),
        address=str(found.get("address", "")),
        place=f"  on {area['filename']} line {line}{context}:" if area.get("filename") else "",
        code=f"  {snippet.get('start_line', line)}: {snippet['code']}" if snippet.get("code") else "",
    )


def diagnostics(events: Iterable[Event]) -> tuple[Diagnostic, ...]:
    return tuple(parse_diagnostic(event.get("diagnostic")) for event in events if event.get("type") == "diagnostic")


def texts(events: Iterable[Event]) -> list[str]:
    return [str(event.get("@message", "")) for event in events if event.get("type") == "text"]


@contextlib.contextmanager
def shown_progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr if somebody watches: a terminal, and not a pipeline that records what it sees."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    step = TextColumn("{task.fields[current]}", markup=False)
    hidden = not console.is_terminal or bool(os.environ.get("CI"))
    bars = Bars(*columns, step, console=console, transient=True, disable=hidden)
    task = bars.add_task(title, total=None, current="")
    with contextlib.suppress(OSError):  # a terminal that was closed is no reason to stop half way
        bars.start()
    try:
        yield lambda now: bars.update(task, completed=now.done, total=now.total or None, current=now.current)
    finally:
        with contextlib.suppress(OSError):
            bars.stop()


def change_counts(events: Iterable[Event], operation: str) -> dict[str, int]:
    """Of the last summary that Terraform gave of this operation."""
    found = [_mapping(event.get("changes")) for event in events if event.get("type") == "change_summary"]
    counts: Event = next((item for item in reversed(found) if item.get("operation") == operation), {})
    names = {"added": "add", "changed": "change", "removed": "remove"}
    return {name: int(value) if isinstance(value := counts.get(key), int) else 0 for name, key in names.items()}


def _action(event: Event, key: str) -> str:
    return str(_mapping(event.get(key)).get("action", ""))


def _mapping(value: object) -> Event:
    """What Terraform sends is not ours: anything may stand where an object should."""
    return value if isinstance(value, dict) else {}
