"""A million runs of a job on spot nodes, in seconds: hours, paid hours and losses of each.

What is not known of the rates is drawn in strata of equal weight, and each stratum has one table of up-times and one
of down-times; a draw is then one random index, which is what makes a run cost microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from planner.errors import InputError
from planner.models.interruption.process import SpotProcess, cumulative_hazard, hours_at_hazard
from planner.models.prediction import Flags, Floats, Ints
from planner.models.spot_runs.work import SpotWork

_MOST_SLICES, _FEWEST_SLICES = 1 << 12, 1 << 8
_MOST_STRATA, _FEWEST_STRATA = 64, 16
_GOLDEN = 0.6180339887498949  # spreads the second rate's quantiles evenly against the first's
GIVEN_UP_HOURS = 24.0 * 365


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRuns:
    """One row per run. The gang is paid while it is up; what waits beside it is paid all `hours`."""

    hours: Floats
    paid_hours: Floats
    losses: Ints
    finished: Flags

    def usd(self, spot_usd_per_hour: Floats | float, on_demand_usd_per_hour: float = 0.0) -> Floats:
        """At one spot price, or at each run's own (see `spot_price_draws`)."""
        lowest = min(float(np.min(spot_usd_per_hour)), on_demand_usd_per_hour)
        if lowest < 0:
            raise InputError(f"a price of {lowest} $/h cannot be")
        return np.asarray(self.paid_hours * spot_usd_per_hour + self.hours * on_demand_usd_per_hour)

    def quantile(self, probability: float) -> float:
        return float(np.quantile(self.hours, probability))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known when the run starts: whether the gang's capacity is there, and since when."""

    up: bool
    age_hours: float


def simulate(work: SpotWork, process: SpotProcess, runs: int, seed: int, start: Start | None = None) -> SpotRuns:
    """Without a `start` it is drawn from what the process does in the long run.

    Runs come out in the order of their strata: whatever else differs between them must not follow their order.
    """
    if process.availability <= 0:
        raise InputError("spot capacity never comes back in this history: availability is zero")
    strata = min(
        runs,
        max(_FEWEST_STRATA, min(_MOST_STRATA, runs // 1000)) if max(process.log_sd, process.loss_log_sd) > 0 else 1,
    )
    sizes = [runs // strata + (index < runs % strata) for index in range(strata)]
    generator = np.random.default_rng(seed)
    each = np.broadcast_to(np.asarray(work.work_hours, dtype=float), runs)
    parts, done = [], 0
    for index, size in enumerate(sizes):
        alike = process.scaled(*_multipliers(index, strata, process))
        for chunk in _chunks(size):
            parts.append(_simulate_alike(work, each[done : done + chunk], alike, generator, start))
            done += chunk
    return SpotRuns(
        hours=np.concatenate([part.hours for part in parts]),
        paid_hours=np.concatenate([part.paid_hours for part in parts]),
        losses=np.concatenate([part.losses for part in parts]),
        finished=np.concatenate([part.finished for part in parts]),
    )


def _multipliers(index: int, strata: int, process: SpotProcess) -> tuple[float, float]:
    first, second = (index + 0.5) / strata, (0.5 + index * _GOLDEN) % 1.0
    return math.exp(process.loss_log_sd * float(ndtri(first))), math.exp(process.log_sd * float(ndtri(second)))


def _chunks(size: int, most: int = 1 << 15) -> list[int]:
    """Of a size whose columns stay in the processor's cache."""
    return [most] * (size // most) + ([size % most] if size % most else [])


def _simulate_alike(
    work: SpotWork, work_hours: Floats, process: SpotProcess, generator: np.random.Generator, start: Start | None
) -> SpotRuns:
    count = len(work_hours)
    slices = _MOST_SLICES if count > _MOST_SLICES else _FEWEST_SLICES  # a table costs as much as that many draws
    up_table, down_table = _table(process.loss_per_hour, slices), _table(process.return_per_hour, slices)
    hours, stint = _first(process, count, generator, start, up_table, down_table)
    left = work_hours.copy()
    waiting = hours.copy()
    losses = np.zeros(count, dtype=np.int64)
    result, waited = np.full(count, GIVEN_UP_HOURS), np.full(count, GIVEN_UP_HOURS)
    lost, finished = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    row = np.arange(count)
    while len(row):
        needed = work.needed_hours(left)
        done = stint >= needed
        if done.any():
            ended = row[done]
            result[ended], waited[ended] = hours[done] + needed[done], waiting[done]
            lost[ended], finished[ended] = losses[done], True
            going = ~done
            row, hours, waiting, left = row[going], hours[going], waiting[going], left[going]
            stint, losses = stint[going], losses[going]
        left -= work.kept_hours(stint)
        np.maximum(left, 0.0, out=left)
        pause = down_table[generator.integers(0, slices, len(row), dtype=np.uint16)]
        hours += stint + pause
        waiting += pause
        losses += 1
        stint = up_table[generator.integers(0, slices, len(row), dtype=np.uint16)]
        if len(row) and hours.min() > GIVEN_UP_HOURS:
            lost[row], waited[row] = losses, np.minimum(waiting, GIVEN_UP_HOURS)
            break
    return SpotRuns(hours=result, paid_hours=result - waited, losses=lost, finished=finished)


def _table(rates: Floats, slices: int) -> Floats:
    """Durations at the middles of equally likely slices; the last slice by its mean, since the tail carries weight."""
    middles = (np.arange(slices) + 0.5) / slices
    table = hours_at_hazard(rates, -np.log1p(-middles))
    if rates[-1] > 0:
        table[-1] = hours_at_hazard(rates, np.array([math.log(slices)]))[0] + 1 / rates[-1]
    return np.minimum(table, 2 * GIVEN_UP_HOURS)


def _first(
    process: SpotProcess,
    count: int,
    generator: np.random.Generator,
    start: Start | None,
    up_table: Floats,
    down_table: Floats,
) -> tuple[Floats, Floats]:
    """Hours until the first stint, and how long that one lasts."""
    if start is None and process.availability == 1.0:
        return np.zeros(count), np.full(count, np.inf)
    if start is None:
        up = generator.random(count) < process.availability
        waiting = np.where(up, 0.0, _remaining(down_table, count, generator))
        fresh = up_table[generator.integers(0, len(up_table), count)]
        return waiting, np.where(up, _remaining(up_table, count, generator), fresh)
    rates = process.loss_per_hour if start.up else process.return_per_hour
    age = np.array([max(start.age_hours, 0.0)])
    risk = cumulative_hazard(rates, age) + generator.standard_exponential(count)
    rest = np.minimum(hours_at_hazard(rates, risk) - age, 2 * GIVEN_UP_HOURS)
    if start.up:
        return np.zeros(count), rest
    return rest, up_table[generator.integers(0, len(up_table), count)]


def _remaining(table: Floats, count: int, generator: np.random.Generator) -> Floats:
    """What is left of a stretch met at a random moment: long ones are met more often."""
    share = np.cumsum(table) / table.sum()
    met = table[np.searchsorted(share, generator.random(count))]
    return np.asarray(met * generator.random(count))
