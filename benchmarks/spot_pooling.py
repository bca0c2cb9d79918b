"""What public recordings say of a zone that nobody has recorded: rates by age, and how far zones lie apart.

    events of zone z at age a ~ Poisson(hours at that age x rate_a x n^b x exp(u_z)),   u_z ~ Normal(0, sd)

for losses and for returns apart; n is the size of the gang, whose recordings at several sizes count once together.
Within a zone, losses L and returns R of half days are compared with what that expects of them, l and r. On a bad day
there are more losses and fewer returns, by the same factor: what the shares (L - l) / l and (R - r) / r vary against
each other, beyond what Poisson counts do, is four times the variance of its logarithm.
Nothing is scaled afterwards: weights and spreads that score better in the table "no history" would be chosen on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.columns import Floats
from planner.errors import InputError
from planner.inputs import Trace
from planner.spot.rates.history import ages_lived
from planner.spot.rates.process import SpotProcess
from planner.spot.slowdown import SpotRates

SHORTEST_HOURS = 100.0  # of a recording that says anything of a zone
GANG_SIZES = (1, 2, 4, 8, 16)
HALF_DAY_HOURS = 12.0
_FEWEST_ZONES = 3
_EXPONENT_PRIOR_SD, _ROUNDS = 0.3, 80


class ZonePrior(NamedTuple):
    """One node in a zone that nobody has recorded, and how the rates of a gang grow with its size."""

    process: SpotProcess
    loss_exponent: float
    return_exponent: float

    def gang(self, nodes: int) -> SpotProcess:
        rates = SpotRates.of(self.process).for_gang(np.array([nodes]), self.loss_exponent, self.return_exponent)
        return rates.process(0)


def region_of(trace: Trace) -> str:
    """`us-east-1` of `…/us-east-1a_v100_1`, `us-east1` of `…/us-east1-b_c3-88`: left out together."""
    name = trace.name.rsplit("/", 1)[-1].rsplit("@", 1)[-1].split("_")[0]
    return re.sub(r"-?[a-z]$", "", name)


def zone_prior(traces: Sequence[Trace]) -> ZonePrior:
    """From every recording that is long enough."""
    zones = [trace for trace in traces if trace.hours >= SHORTEST_HOURS]
    if len(zones) < _FEWEST_ZONES:
        raise InputError(f"{len(zones)} recordings of {SHORTEST_HOURS:g} h or more, need {_FEWEST_ZONES}")
    loss, back = _levels(zones, up=True), _levels(zones, up=False)
    process = SpotProcess(
        loss_per_hour=loss.rates,
        return_per_hour=back.rates,
        log_sd=back.spread,
        own_loss_log_sd=loss.spread,
        day_log_sd=_day_log_sd(zones, loss, back),
    )
    return ZonePrior(process, loss.exponent, back.exponent)


class _Levels(NamedTuple):
    rates: Floats  # by age
    exponent: float  # of the gang's size
    spread: float  # between zones
    of_zone: Floats  # log


def _levels(zones: Sequence[Trace], up: bool) -> _Levels:
    """Alternating, until it stays."""
    zone, log_nodes, hours, events = _table(zones, up)
    log_rates, exponent, spread = np.log((events.sum(0) + 0.1) / (hours.sum(0) + 0.1)), 0.0, 0.7
    level = np.zeros(len(zones))

    def expected() -> Floats:
        return np.asarray(hours * np.exp(log_rates + (exponent * log_nodes + level[zone])[:, None]))

    for _ in range(_ROUNDS):
        mean = expected()
        known = np.bincount(zone, mean.sum(1)) + 1 / spread**2
        level = level + np.clip((np.bincount(zone, (events - mean).sum(1)) - level / spread**2) / known, -1, 1)
        log_rates = log_rates + np.clip(np.log((events.sum(0) + 0.05) / (expected().sum(0) + 0.05)), -1, 1)
        mean = expected()
        slope = ((events - mean) * log_nodes[:, None]).sum()
        curvature = (mean * log_nodes[:, None] ** 2).sum() + _EXPONENT_PRIOR_SD**-2
        exponent += float(np.clip(slope / curvature, -0.2, 0.2))
        exponent = max(exponent, 0.0) if up else min(exponent, 0.0)  # a larger gang is never better off
        log_rates, level = log_rates + level.mean(), level - level.mean()
        spread = float(np.sqrt((level**2 + 1 / known).mean()))
    return _Levels(np.exp(log_rates), exponent, spread, level)


def _day_log_sd(zones: Sequence[Trace], loss: _Levels, back: _Levels) -> float:
    beyond, weight = np.zeros((2, 2)), np.zeros((2, 2))
    for index, trace in enumerate(zones):
        stretches = trace.stretches()
        for begin in np.arange(0.0, trace.hours - HALF_DAY_HOURS, HALF_DAY_HOURS):
            counts, mean = np.zeros(2), np.zeros(2)
            for side, levels in enumerate((loss, back)):
                hours, events = ages_lived(stretches, side == 0, begin, begin + HALF_DAY_HOURS)
                counts[side] = events.sum()
                mean[side] = float(hours @ levels.rates) * np.exp(levels.of_zone[index])
            beyond += np.outer(counts - mean, counts - mean) - np.diag(counts)
            weight += np.outer(mean, mean)
    shares = beyond / weight
    return float(np.sqrt(np.log1p(max(shares[0, 0] + shares[1, 1] - 2 * shares[0, 1], 0.0) / 4)))


def _table(zones: Sequence[Trace], up: bool) -> tuple[np.ndarray, Floats, Floats, Floats]:
    """A row per recording and gang: which zone, log nodes, hours at each age and how often the state ended there."""
    rows = []
    for index, trace in enumerate(zones):
        sizes = [size for size in GANG_SIZES if size <= trace.size]
        for size in sizes:
            hours, events = ages_lived(trace.stretches(size), up, 0.0, trace.hours)
            rows.append((index, np.log(size), hours / len(sizes), events / len(sizes)))
    zone, log_nodes, hours, events = (np.array(column) for column in zip(*rows, strict=True))
    return zone, log_nodes, hours, events
