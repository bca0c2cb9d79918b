"""One process for many zones: what to assume of a zone without history of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Floats
from planner.errors import InputError
from planner.inputs import Trace
from planner.spot.rates.history import ages_lived
from planner.spot.rates.process import SpotProcess

_FEWEST_LOSSES = 5
# Of the spread between zones: the rest is in the old ages already, where the zones that are long gone weigh most.
_BEYOND_AGES = 0.6


def pooled_process(traces: Sequence[Trace], nodes: int | None = None) -> SpotProcess:
    """Each zone weighs the same however long it was watched; `log_sd` is how far zones lie apart beyond that."""
    zones = [
        lived for lived in (_lived(trace, nodes) for trace in traces) if lived[1].sum(axis=1).min() >= _FEWEST_LOSSES
    ]
    if not zones:
        raise InputError(f"no trace with at least {_FEWEST_LOSSES} losses to pool")
    hours = sum(hours / events.sum(axis=1, keepdims=True) for hours, events in zones)
    ends = sum(events / events.sum(axis=1, keepdims=True) for _, events in zones)
    rates = np.asarray(ends / np.maximum(hours, 1e-9))
    # How many times as often as the pool's rates say: what differs between zones, apart from the shape.
    levels = [np.log(events.sum(axis=1) / (hours * rates).sum(axis=1)) for hours, events in zones]
    spread = _BEYOND_AGES * float(np.std(levels, axis=0).mean())
    return SpotProcess(loss_per_hour=rates[0], return_per_hour=rates[1], log_sd=spread)


def _lived(trace: Trace, nodes: int | None) -> tuple[Floats, Floats]:
    """Hours at each age and how often a state ended there: a row with capacity, a row without."""
    runs = trace.stretches(nodes)
    hours, events = zip(*(ages_lived(runs, up, 0.0, trace.hours) for up in (True, False)), strict=True)
    return np.array(hours), np.array(events)
