"""A catalogue as text: JSON with one row per line, so that a diff shows which rows changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from planner.contract import first_fault
from planner.errors import InputError
from planner.inputs.catalog.tables import Catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.contract import Contract


def parse_catalog(text: str, *, file: str) -> Catalog:
    """The catalogue in `text`; `file` is only named in errors."""
    try:
        return Catalog.model_validate_json(text)
    except ValidationError as error:
        fault = first_fault(error, Catalog)
        raise InputError(fault.message, file=file, key=_place(text, fault.path) or None) from None


def format_catalog(catalog: Catalog) -> str:
    """The same text for the same catalogue; `parse_catalog` reads it back unchanged."""
    sources = [f"{json.dumps(name)}: {_row(source)}" for name, source in catalog.sources.items()]
    parts = [
        f'"schema_version": {catalog.schema_version}',
        f'"date": "{catalog.date.isoformat()}"',
        f'"sources": {_block("{", sources, "}")}',
        *(
            f'"{table}": {_block("[", [_row(row) for row in rows], "]")}'
            for table, rows in {
                "gpus": catalog.gpus,
                "instance_types": catalog.instance_types,
                "regions": catalog.regions,
                "offers": catalog.offers,
            }.items()
        ),
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _row(row: Contract) -> str:
    return json.dumps(row.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)


def _block(opening: str, rows: Sequence[str], closing: str) -> str:
    return opening + "".join(f"\n  {row}," for row in rows).removesuffix(",") + "\n" + closing


def _place(text: str, location: Sequence[int | str]) -> str:
    """Where a fault is, as `offers[3] (g5.xlarge in us-east-1).on_demand_usd`."""
    place = ""
    node = _decoded(text)
    for step in location:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            node = None
        if isinstance(step, int):
            place += f"[{step}]{_name_of(node)}"
        else:
            place += f".{step}" if place else step
    return place


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _name_of(row: Any) -> str:
    if not isinstance(row, dict):
        return ""
    if "instance_type" in row:
        return f" ({row['instance_type']} in {row.get('region')})"
    return f" ({row['name']})" if "name" in row else ""
