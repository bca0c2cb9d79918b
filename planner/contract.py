"""The base of every file format that scav reads or writes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """Immutable and closed: a key that nobody knows is a mistake, not an extension."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
