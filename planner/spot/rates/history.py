"""What recent history says about the coming run, and how much less it says the older it is.

Zones drift: what held last week is where next week starts from, not what it will be. Log rates therefore fall back to
the pooled ones as history ages, and their uncertainty grows towards the spread between zones (an Ornstein-Uhlenbeck
process). What changes while a run goes on are its days. The numbers, and the ages themselves, are from some 600 trials
scored by `benchmarks/spot.py` on the same recordings: flat around each of them (p50 error 0.197 to 0.207 where the
state at the start was known, too), but not a choice that other recordings have confirmed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.errors import InputError
from planner.inputs import Stretches, Trace
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import AGE_EDGES_HOURS, AGES, SpotProcess

HISTORY_HOURS = 168.0
_LOWER, _UPPER = AGE_EDGES_HOURS, np.append(AGE_EDGES_HOURS[1:], np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryWeights:
    """How the past is weighed against the pool of all zones."""

    half_life_hours: float = 72.0
    level_events: float = 2.0  # the pool speaks with this many losses for the zone's general level
    level_trust: float = 0.35  # of what the zone's level differs from the pool, this share lasts into the coming run
    shape_events: float = 2.5  # the pool speaks with this many losses for each age
    drift_hours: float = 240.0


HISTORY_WEIGHTS = HistoryWeights()


def process_from_trace(
    trace: Trace,
    *,
    nodes: int | None = None,
    until_hours: float | None = None,
    age_hours: float = 0.0,
    weights: HistoryWeights = HISTORY_WEIGHTS,
    prior: SpotProcess = POOLED,
    history_hours: float = HISTORY_HOURS,
) -> SpotProcess:
    """From the `history_hours` before `until_hours`; `age_hours` later is when the run starts."""
    until = trace.hours if until_hours is None else until_hours
    if until <= 0:
        raise InputError("no history before the run starts", file=trace.name)
    runs = trace.stretches(nodes)
    since = max(0.0, until - history_hours)
    half_life = max(weights.half_life_hours, age_hours)  # seen from afar, yesterday and the day before are the same
    kept = math.exp(-age_hours / weights.drift_hours)
    drifted = math.sqrt(1 - kept**2)
    loss, back = (ages_lived(runs, up, since, until, half_life) for up in (True, False))
    return SpotProcess(
        loss_per_hour=_rates(*loss, prior.loss_per_hour, weights, kept),
        return_per_hour=_rates(*back, prior.return_per_hour, weights, kept),
        log_sd=prior.log_sd * drifted,
        own_loss_log_sd=prior.loss_log_sd * drifted,
        day_log_sd=prior.day_log_sd,
    )


def _rates(exposure: Floats, events: Floats, prior: Floats, weights: HistoryWeights, kept: float) -> Floats:
    surprise = (events.sum() + weights.level_events) / (float(exposure @ prior) + weights.level_events)
    expected = prior * surprise**weights.level_trust
    rates = (events + weights.shape_events) / (exposure + weights.shape_events / expected)
    return np.asarray(prior * (rates / prior) ** kept)


def ages_lived(
    runs: Stretches, up: bool, since: float, until: float, half_life_hours: float = math.inf
) -> tuple[Floats, Floats]:
    """Hours spent at each age in one state, and how often it ended there; recent stretches weigh more."""
    begin, end = runs.begin_hours, np.minimum(runs.end_hours, until)
    start = np.maximum(begin, since)
    chosen = (runs.up == up) & (end > start)
    weight = 0.5 ** ((until - end[chosen]) / half_life_hours)
    youngest, oldest = (start - begin)[chosen, None], (end - begin)[chosen, None]
    lived = np.clip(np.minimum(oldest, _UPPER) - np.maximum(youngest, _LOWER), 0.0, None)
    ended = (runs.end_hours[chosen] < until) & (runs.end_hours[chosen] < runs.end_hours[-1])
    bucket = np.searchsorted(_LOWER, oldest[:, 0], side="left") - 1
    events = np.bincount(bucket, weights=weight * ended, minlength=AGES).astype(float)
    return np.asarray(weight @ lived), events
