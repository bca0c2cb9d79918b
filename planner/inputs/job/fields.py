"""Field types of the job file: human units in the file, plain numbers in the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from planner import units

LARGEST_BATCH = 2**24


class CountRange(NamedTuple):
    """Both ends belong to it."""

    low: int
    high: int


def _count_range(value: object) -> CountRange:
    return value if isinstance(value, CountRange) else CountRange(*units.parse_count_range(value))


def _human(parser: Callable[[object], Any], *examples: str) -> tuple[BeforeValidator, WithJsonSchema]:
    schema = {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": list(examples)}
    return BeforeValidator(parser), WithJsonSchema(schema, mode="validation")


Hours = Annotated[float, *_human(units.parse_hours, "24h", "90min", "1d12h")]
Seconds = Annotated[float, Field(le=1e5), *_human(units.parse_seconds, "8.5ms", "0.0085")]
Usd = Annotated[float, *_human(units.parse_usd, "$400")]
Count = Annotated[int, *_human(units.parse_count, "1281167", "25.6M")]
Samples = Annotated[float, *_human(units.parse_samples, "115M")]
Bytes = Annotated[float, *_human(units.parse_bytes, "98MiB", "102MB")]
BytesOrZero = Annotated[float, *_human(units.parse_bytes_or_zero, "98MiB", "0")]
Flop = Annotated[float, *_human(units.parse_flop, "24.6 GFLOP")]
Range = Annotated[CountRange, *_human(_count_range, "1..16", "8")]
