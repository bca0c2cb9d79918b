"""What Terraform asks, answered: a function for each method of the protocol, from its message to the answer's.

`scav_plan` owns nothing in the world: reading gives back what is in the state, and deleting forgets it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from planner.errors import InputError
from planner.provider import schema
from planner.provider.diagnostics import diagnosed, warned
from planner.provider.schema import COMPUTED, DATA_SOURCES, INPUTS, RESOURCE, STATE_VERSION, TYPE_NAME
from planner.provider.values import UNKNOWN, decoded, encoded, is_known
from planner.provider.wire import MESSAGES, METHODS

_INPUTS = tuple(row.name for row in INPUTS)
_COMPUTED = tuple(row.name for row in COMPUTED)


def answer(method: str, request: Any) -> Any:
    """Whatever goes wrong becomes a diagnostic: Terraform shows a broken connection as a crash of the provider."""
    found: list[Any] = []
    reply = MESSAGES[METHODS[method][1]]
    try:
        fields = _ANSWERS[method](request, found)
    except Exception as error:
        fields = {}
        found.append(diagnosed(error, _said(request)))
    return reply(**fields, diagnostics=found) if found else reply(**fields)


def _said(request: Any) -> dict[str, Any] | None:
    if "config" not in request.DESCRIPTOR.fields_by_name or "type_name" not in request.DESCRIPTOR.fields_by_name:
        return None
    said: dict[str, Any] | None = decoded(request.config)
    return said


def _metadata(_request: Any, _found: list[Any]) -> dict[str, Any]:
    sources = [MESSAGES["TypeName"](type_name=name) for name in DATA_SOURCES]
    return {"resources": [MESSAGES["TypeName"](type_name=TYPE_NAME)], "data_sources": sources}


def _schemas(_request: Any, _found: list[Any]) -> dict[str, Any]:
    return {
        "provider": _schema(()),
        "resource_schemas": [_named(TYPE_NAME, RESOURCE)],
        "data_source_schemas": [_named(name, rows) for name, rows in DATA_SOURCES.items()],
    }


def _named(name: str, rows: Iterable[schema.AttributeSpec]) -> Any:
    return MESSAGES["NamedSchema"](key=name, value=_schema(rows))


def _schema(rows: Iterable[schema.AttributeSpec]) -> Any:
    attributes = [
        MESSAGES["Attribute"](
            name=row.name, type=json.dumps(row.type).encode(), description=row.description, **{row.use: True}
        )
        for row in sorted(rows, key=lambda row: row.name)
    ]
    return MESSAGES["Schema"](version=STATE_VERSION, block=MESSAGES["Block"](attributes=attributes))


def _nothing(_request: Any, _found: list[Any]) -> dict[str, Any]:
    return {}


def _validate(request: Any, _found: list[Any]) -> dict[str, Any]:
    """The job's text and what replaces parts of it; files are looked at when they are used."""
    if request.type_name != TYPE_NAME:
        return {}
    said = decoded(request.config)
    words = {name: said[name] for name in (schema.JOB, *(row.name for row in schema.OVERRIDES))}
    if is_known(words):
        from planner.provider.decision import parsed_job

        parsed_job(words)
    return {}


def _plan(request: Any, found: list[Any]) -> dict[str, Any]:
    said, before = decoded(request.config), decoded(request.prior_state)
    if decoded(request.proposed_new_state) is None:  # to be deleted
        return {"planned_state": encoded(None)}
    inputs = {name: said[name] for name in _INPUTS}
    if not is_known(inputs):
        return _changed(inputs | dict.fromkeys(_COMPUTED, UNKNOWN), request.prior_private)
    from planner.provider.kept import is_kept, refuse_beyond_limits

    if before is not None and is_kept(said, before, json.loads(request.prior_private or b"{}")):
        computed, private = {name: before[name] for name in _COMPUTED}, request.prior_private
    else:
        computed, private = _decided(inputs, found)
    refuse_beyond_limits(said, computed)
    return _changed(inputs | computed, private)


def _changed(state: dict[str, Any], private: bytes) -> dict[str, Any]:
    return {"planned_state": encoded(state), "planned_private": private}


def _decided(inputs: dict[str, Any], found: list[Any]) -> tuple[dict[str, Any], bytes]:
    from planner.provider.decision import decide

    decision = decide(inputs)
    found += warned(decision.warnings)
    return decision.computed, json.dumps(decision.followed_from, sort_keys=True).encode()


def _apply(request: Any, found: list[Any]) -> dict[str, Any]:
    """What was planned, except where the inputs had to wait for other resources."""
    planned = decoded(request.planned_state)
    if planned is None or is_known(planned):
        return {"new_state": encoded(planned), "private": request.planned_private}
    from planner.provider.kept import refuse_beyond_limits

    inputs = {name: decoded(request.config)[name] for name in _INPUTS}
    computed, private = _decided(inputs, found)
    refuse_beyond_limits(inputs, computed)
    return {"new_state": encoded(inputs | computed), "private": private}


def _read_data(request: Any, found: list[Any]) -> dict[str, Any]:
    """Anew at every plan of Terraform's; it asks once everything is known."""
    said = decoded(request.config)
    if request.type_name == TYPE_NAME:
        from planner.provider.kept import refuse_beyond_limits

        computed, _ = _decided(said, found)
        refuse_beyond_limits(said, computed)
    else:
        from planner.provider.offers import offered

        computed = offered(said)
    return {"state": encoded(said | computed)}


def _read(request: Any, _found: list[Any]) -> dict[str, Any]:
    return {"new_state": request.current_state, "private": request.private}


def _upgrade(request: Any, _found: list[Any]) -> dict[str, Any]:
    """What an earlier version did not know is null, what this one does not know is left out."""
    if request.version > STATE_VERSION:
        raise InputError("the state is of a newer scav: run `scav provider install` of that version")
    state = json.loads(request.raw_state.json)
    return {"upgraded_state": encoded({row.name: state.get(row.name) for row in RESOURCE})}


def _import(request: Any, _found: list[Any]) -> dict[str, Any]:
    """Of a workspace that `scav plan` wrote: its decision is taken over, and kept while the job means the same."""
    from pathlib import Path

    from planner.outside import store
    from planner.provider.decision import followed_from, planned_values

    plan = store.load_plan(Path(request.id))
    state = dict.fromkeys(_INPUTS) | planned_values(plan)
    private = json.dumps(followed_from(plan.inputs), sort_keys=True).encode()
    imported = MESSAGES["Imported"](type_name=request.type_name, state=encoded(state), private=private)
    return {"imported_resources": [imported]}


_ANSWERS: dict[str, Callable[[Any, list[Any]], dict[str, Any]]] = {
    "GetMetadata": _metadata,
    "GetProviderSchema": _schemas,
    "ValidateProviderConfig": _nothing,
    "ConfigureProvider": _nothing,
    "ValidateResourceConfig": _validate,
    "UpgradeResourceState": _upgrade,
    "ReadResource": _read,
    "PlanResourceChange": _plan,
    "ApplyResourceChange": _apply,
    "ImportResourceState": _import,
    "ValidateDataResourceConfig": _validate,
    "ReadDataSource": _read_data,
    "GetFunctions": _nothing,
    "StopProvider": _nothing,
}
