"""What `scav spot record` noted of a type in a zone: placement scores, prices, and what became of the account's nodes.

One JSON object a line, in the order in which it was noted. Own launches are strong evidence of capacity, scores weak.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, PositiveFloat, PositiveInt, ValidationError

from planner.contract import Contract, first_fault
from planner.errors import InputError

Kind = Literal["score", "price", "launched", "refused", "taken_back", "ended"]
_VALUED: tuple[Kind, ...] = ("score", "price")
_MOST_SCORE = 10


class Observation(Contract):
    """A score or a price has a `value`; what happened to a node has a moment and the ID of the scaling activity."""

    noted: AwareDatetime
    kind: Kind
    value: PositiveFloat | None = Field(default=None, description="score from 1 to 10, or USD per node and hour")
    nodes: PositiveInt = Field(default=1, description="that the score is for")
    happened: AwareDatetime | None = None
    activity: Annotated[str, Field(max_length=200)] | None = None
    instance: Annotated[str, Field(max_length=100)] | None = None

    @property
    def fault(self) -> str | None:
        """What its kind lacks."""
        if self.kind in _VALUED and self.value is None:
            return f"a {self.kind} needs a value"
        if self.kind == "score" and self.value is not None and self.value > _MOST_SCORE:
            return f"a score of {self.value:g} is above {_MOST_SCORE}"
        if self.kind not in _VALUED and (self.happened is None or self.activity is None):
            return f"{self.kind} needs the moment it happened and its activity"
        if self.happened is not None and self.happened > self.noted:
            return "happened after it was noted"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that was noted of one instance type in one zone; it ended `age_hours` before the run starts."""

    place: str  # the file
    rows: tuple[Observation, ...]
    age_hours: float = 0.0

    @property
    def newest(self) -> datetime.datetime:
        return self.rows[-1].noted

    def count(self, kind: Kind) -> int:
        return sum(row.kind == kind for row in self.rows)

    @property
    def score(self) -> float | None:
        """The newest."""
        return next((row.value for row in reversed(self.rows) if row.kind == "score"), None)

    @property
    def node_hours(self) -> float:
        """From launch to end of each node; of those that still run, to the last note."""
        begun = {row.instance: row.happened for row in self.rows if row.kind == "launched"}
        gone = {row.instance: row.happened for row in self.rows if row.kind in ("taken_back", "ended")}
        spans = [(gone.get(name) or self.newest) - start for name, start in begun.items() if start is not None]
        return sum(max(span.total_seconds(), 0.0) for span in spans) / 3600


def parse_observations(text: str, *, file: str, now: datetime.datetime, age_hours: float = 0.0) -> Observed:
    """`now`: nobody can have noted anything later."""
    rows: list[Observation] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = Observation.model_validate_json(line)
        except ValidationError as error:
            fault = first_fault(error, Observation)
            raise InputError(fault.message, file=file, line=number, key=fault.key) from None
        if message := row.fault or _out_of_order(rows, row, now):
            raise InputError(message, file=file, line=number)
        rows.append(row)
    if not rows:
        raise InputError("nothing was noted in it", file=file)
    return Observed(place=file, rows=tuple(rows), age_hours=age_hours)


def _out_of_order(rows: Sequence[Observation], row: Observation, now: datetime.datetime) -> str | None:
    if row.noted > now + datetime.timedelta(days=1):  # for clocks that are ahead
        return f"noted on {row.noted.date()}, which is in the future (today is {now.date()})"
    if rows and row.noted < rows[-1].noted:
        return f"noted before the line above it ({row.noted.date()}): two recordings overlap here; keep one of them"
    if row.activity is not None and any(row.activity == other.activity for other in rows):
        return f"activity {row.activity} is there twice: two recordings overlap; keep one of them"
    return None
