"""docs/job-file.md lists exactly the keys that the job file has, with their descriptions from the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.inputs.job.schema import Job

PAGE = Path(__file__).parents[2] / "docs" / "job-file.md"
START = "<!-- keys: written by `pytest --update-golden` -->\n"


def test_the_page_lists_every_key(update_golden: bool) -> None:
    before, _, listed = PAGE.read_text(encoding="utf-8").partition(START)
    expected = "\n" + "\n".join(tables())
    if update_golden:
        PAGE.write_text(before + START + expected, encoding="utf-8")
        listed = expected
    assert listed == expected


def tables() -> Iterator[str]:
    schema = Job.model_json_schema()
    yield from table("Top level", schema, schema)
    for name, part in schema["properties"].items():
        yield from nested(name, part, schema)


def nested(path: str, part: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    target = group_of(part, schema)
    if target is None:
        return
    yield from table(f"`{path}`", target, schema)
    for name, inner in target["properties"].items():
        yield from nested(f"{path}.{name}", inner, schema)


def group_of(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    """The keys below a key: directly, of each item of a list, or of a group that may be left out."""
    options = (part, part.get("items", {}), *part.get("anyOf", ()))
    reference = next((option["$ref"] for option in options if "$ref" in option), None)
    found = schema["$defs"][reference.rpartition("/")[2]] if reference else None
    return found if found and "properties" in found else None


def table(heading: str, group: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {heading}", "", group.get("description", ""), "", "| key | default | meaning |", "|---|---|---|")
    for name, part in group["properties"].items():
        default = "**required**" if name in group.get("required", ()) else shown(part.get("default"))
        below = group_of(part, schema)
        meaning = part.get("description") or (below or {}).get("description", "")
        examples = next((option["examples"] for option in (part, *part.get("anyOf", ())) if "examples" in option), ())
        values = next((option["enum"] for option in (part, *part.get("anyOf", ())) if "enum" in option), ())
        extra = ", ".join(f"`{example}`" for example in (*values, *examples))
        yield f"| `{name}` | {default} | {meaning}{': ' if meaning and extra else ''}{extra} |"
    yield ""


def shown(default: Any) -> str:
    if default in (None, [], {}) or isinstance(default, dict):
        return ""
    if isinstance(default, list):
        numbers = all(isinstance(item, int) for item in default)
        return f"`{default[0]}..{default[1]}`" if numbers else ", ".join(f"`{item}`" for item in default)
    return f"`{default}`"
