"""Recorded spot capacity: how many nodes a zone gave at every tick, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints
from planner.errors import InputError

# Beyond any cloud, far inside what overflows.
_MOST_NODES, _MOST_USD, _LONGEST_TICK_SECONDS = 1_000_000, 1_000_000, 1_000_000


class Stretches(NamedTuple):
    """Stretches with and without the whole gang, in order; the first and the last are cut off by the recording."""

    begin_hours: Floats
    end_hours: Floats
    up: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Nodes available at each tick of one instance type in one zone; prices only where they were recorded."""

    name: str
    tick_seconds: float
    counts: Ints
    prices: Floats | None = None
    file: str | None = None  # as it was given, for whoever has to be told what is wrong with it

    @property
    def place(self) -> str:
        return self.file or self.name

    @property
    def hours(self) -> float:
        return len(self.counts) * self.tick_seconds / 3600

    @property
    def size(self) -> int:
        """The most nodes ever seen, which is what was asked for."""
        return int(self.counts.max())

    def gang(self, nodes: int | None = None) -> Flags:
        """Whether that many nodes were there at once; by default all that were asked for."""
        return np.asarray(self.counts >= max(self.size if nodes is None else nodes, 1))

    def there(self, nodes: int | None = None, unseen_share: float = 0.0) -> Floats:
        """The share of that many nodes that was there, at every tick.

        Of one node nothing is known beside whether it was there: `unseen_share` of the gang it stands for then is.
        """
        size = max(self.size if nodes is None else nodes, 1)
        if size == 1:
            return np.where(self.gang(size), 1.0, unseen_share)
        return np.asarray(np.minimum(self.counts, size) / size)

    def stretches(self, nodes: int | None = None) -> Stretches:
        up = self.gang(nodes)
        starts = np.concatenate(([0], np.flatnonzero(up[1:] != up[:-1]) + 1))
        ends = np.concatenate((starts[1:], [len(up)]))
        tick_hours = self.tick_seconds / 3600
        return Stretches(starts * tick_hours, ends * tick_hours, up[starts])

    def stepped(self, step_hours: float, nodes: int | None = None) -> Flags:
        """The gang looked at once every step, whatever the trace's own tick."""
        moments = np.arange(0.0, self.hours - 1e-9, step_hours)
        return self.gang(nodes)[(moments * 3600 / self.tick_seconds).astype(np.int64)]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Capacity of one instance type in one zone, which ended `age_hours` before the run starts."""

    trace: Trace
    age_hours: float = 0.0

    @property
    def place(self) -> str:
        return self.trace.place


def parse_trace(name: str, document: object, *, file: str | None = None) -> Trace:
    """The format of github.com/skypilot-org/spot-traces: {"metadata": {"gap_seconds"}, "data": [...], "prices": [...]}.

    A hole would read as a loss or as capacity, and either would be invented: it is refused.
    """
    file = file or name
    if not isinstance(document, Mapping) or not isinstance(document.get("data"), Sequence):
        raise InputError('no availability trace: need {"metadata": {"gap_seconds": …}, "data": […]}', file=file)
    metadata = document.get("metadata")
    tick: Any = metadata.get("gap_seconds") if isinstance(metadata, Mapping) else None
    if not _is_number(tick) or not 1 <= tick <= _LONGEST_TICK_SECONDS:
        raise InputError("must be a number of seconds from 1 to a million", file=file, key="metadata.gap_seconds")
    values = document["data"]
    if len(values) < 2:
        raise InputError("the trace is empty: need at least two ticks", file=file, key="data")
    for index, value in enumerate(values):
        if not _is_number(value) or value < 0 or value != int(value):
            message = f"has a gap at tick {index}: {_shown(value)} is no node count"
            raise InputError(f"{message}; cut the trace there", file=file, key="data")
        if value > _MOST_NODES:
            raise InputError(f"tick {index}: {_shown(value)} nodes are more than a million", file=file, key="data")
    prices = document.get("prices")
    return Trace(
        name=name,
        tick_seconds=float(tick),
        counts=np.array(values, dtype=np.int64),
        prices=None if prices is None else _parse_prices(file, prices, len(values)),
        file=file,
    )


def _parse_prices(file: str, values: object, count: int) -> Floats:
    if not isinstance(values, Sequence) or len(values) != count:
        raise InputError(f"need one price for each of the {count} ticks", file=file, key="prices")
    for index, value in enumerate(values):
        if not _is_number(value) or value <= 0:
            raise InputError(f"tick {index}: {_shown(value)} is no price above 0", file=file, key="prices")
        if value > _MOST_USD:
            raise InputError(f"tick {index}: {_shown(value)} is more than a million dollars", file=file, key="prices")
    return np.array(values, dtype=float)


def _is_number(value: Any) -> bool:
    """An integer may be too long for a float, so only floats are asked whether they are finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object, longest: int = 30) -> str:
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
