"""The base of every file format that scav reads or writes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

Share = Annotated[float, Field(ge=0, le=1)]


class Contract(BaseModel):
    """Immutable and closed: a key that nobody knows is a mistake, not an extension."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Interval(Contract):
    """The middle, and what 5 % of runs stay below and above."""

    p05: NonNegativeFloat
    p50: NonNegativeFloat
    p95: NonNegativeFloat


def six_digits(value: object) -> object:
    """Of every number in it."""
    if isinstance(value, dict):
        return {key: six_digits(item) for key, item in value.items()}
    if isinstance(value, list):
        return [six_digits(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
