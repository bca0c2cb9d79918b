"""What can be rented, as Terraform's values: the rows of `scav catalog list`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.inputs import checked_regions, list_machines, select_instance_types
from planner.outside.store import load_catalog
from planner.provider.schema import OFFER


def offered(said: Mapping[str, Any]) -> dict[str, Any]:
    catalog, name, _ = load_catalog(Path(said["catalog"]) if said["catalog"] else None, beside=Path())
    with _said_by("queries"):
        machines = select_instance_types(catalog, said["queries"] or ())
    with _said_by("regions"):
        regions = checked_regions(catalog, said["regions"]) if said["regions"] else None
    listings = list_machines(catalog, machines, regions, precision="bf16", on_spot=False)
    rows = [{column: getattr(listing, column) for column in OFFER} for listing in listings if listing.offered]
    return {"catalog_name": name, "offers": rows}


@contextlib.contextmanager
def _said_by(attribute: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(error.message, key=attribute) from None
