"""`scav external`: the plan for `data "external"`, whose program takes and gives one JSON object of texts.

For machines on which no provider can be installed. What is no text (a list, numbers of variables) is JSON in a text.
"""

from __future__ import annotations

import json
from typing import Any

from planner.errors import InputError, did_you_mean, one_line
from planner.provider.decision import decide
from planner.provider.kept import refuse_beyond_limits
from planner.provider.schema import INPUTS, JOB


def answered(query: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """What Terraform is answered, and warnings."""
    said = _said(query)
    decision = decide(said)
    refuse_beyond_limits(said, decision.computed)
    return {name: _text(value) for name, value in decision.computed.items() if value is not None}, decision.warnings


def _said(query: str) -> dict[str, Any]:
    kinds = {row.name: row.type for row in INPUTS if row.name != "keepers"}
    texts = _object(query)
    for name, value in texts.items():
        if name not in kinds:
            raise InputError(f"unknown key{did_you_mean(name, kinds)}", file="query", key=name)
        if not isinstance(value, str):
            raise InputError("must be a text, as all values of data external are", file="query", key=name)
    if not texts.get(JOB):
        raise InputError('this key is required: job = file("scav.yaml")', file="query", key=JOB)
    return {name: _value(name, texts.get(name, ""), kind) for name, kind in kinds.items()}


def _object(query: str) -> dict[str, Any]:
    try:
        found = json.loads(query)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {one_line(str(error))}", file="query") from None
    if not isinstance(found, dict):
        raise InputError("must be a JSON object of texts", file="query")
    return found


def _value(name: str, text: str, kind: Any) -> Any:
    """An empty text says nothing: `data "external"` knows no null."""
    if not text or kind == "string":
        return text or None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if kind != "number" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    wanted = "a number" if kind == "number" else 'a JSON list of texts: jsonencode(["us-east-1"])'
    raise InputError(f"{one_line(text, 60)!r} is not {wanted}", file="query", key=name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
