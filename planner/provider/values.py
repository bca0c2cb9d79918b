"""Terraform's values as Python's: text, numbers, lists and dicts, None for null, and one that is not known yet."""

from __future__ import annotations

import json
from typing import Any

import msgpack

from planner.provider.wire import MESSAGES


class UnknownValue:
    """Stands where Terraform will only know while it applies."""


UNKNOWN = UnknownValue()
_LARGEST_EXACT = 2**53  # of a number with a fraction, as a whole one
_UNKNOWN_CODES = {0, 12}  # of msgpack's extensions, as cty uses them: nothing known, something known of it


def decoded(value: Any) -> Any:
    if value.msgpack:
        return msgpack.unpackb(value.msgpack, ext_hook=_extension)
    return json.loads(value.json) if value.json else None


def encoded(value: Any) -> Any:
    return MESSAGES["Value"](msgpack=msgpack.packb(_written(value)))


def is_known(value: Any) -> bool:
    """Whether nothing in it waits for the apply."""
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    return all(map(is_known, value)) if isinstance(value, list) else value is not UNKNOWN


def _extension(code: int, _data: bytes) -> Any:
    if code not in _UNKNOWN_CODES:
        raise ValueError(f"Terraform sent a value of an unknown kind ({code})")
    return UNKNOWN


def _written(value: Any) -> Any:
    """Numbers with a fraction as decimals: Terraform keeps these, and compares them with what it read from its state.

    As binary ones they would differ from it, and every plan would show 210.44 -> 210.44.
    """
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else repr(value)
    return msgpack.ExtType(0, b"\0") if value is UNKNOWN else value
