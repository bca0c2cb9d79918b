"""A million runs of a job on spot nodes, in seconds: hours, paid hours and losses of each.

Every run has its own rates, as far as these are not known: factors on the loss and on the return rates, spread evenly
over their distributions; and its own days, drawn on the way. Where rates are m times as high, the hazard h is reached
when h / m is reached without m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from planner.columns import Flags, Floats, Ints
from planner.errors import InputError
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.stretches import GIVEN_UP_HOURS, check_ever_there, duration, first_stretch, next_day
from planner.spot.runs.work import SpotWork

_CHUNK = 1 << 15  # whose columns stay in the processor's cache
# Spread four more columns evenly against one in order, and against each other: powers of the root of x^5 = x + 1.
_EVENLY = 1.1673039782614187 ** -np.arange(1.0, 5.0)[:, None]


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


def simulate(work: SpotWork, process: SpotProcess, runs: int, seed: int) -> SpotRuns:
    """Runs that start at any moment: whether capacity is there then is drawn from what it does in the long run."""
    check_ever_there(process)
    generator = np.random.default_rng(seed)
    luck = _own_luck(runs, process, generator)
    each = np.broadcast_to(np.asarray(work.work_hours, dtype=float), runs)
    parts = [
        _simulate_chunk(work, each[rows], process, luck[:, rows], generator)
        for rows in (slice(first, first + _CHUNK) for first in range(0, runs, _CHUNK))
    ]
    return SpotRuns(
        hours=np.concatenate([part.hours for part in parts]),
        paid_hours=np.concatenate([part.paid_hours for part in parts]),
        losses=np.concatenate([part.losses for part in parts]),
        finished=np.concatenate([part.finished for part in parts]),
    )


def _own_luck(runs: int, process: SpotProcess, generator: np.random.Generator) -> Floats:
    """Factors on the loss and the return rates, the first day, and two numbers for what the start meets.

    A row of each. In random order: nothing else must follow it.
    """
    place = generator.permutation(runs)
    even = np.vstack(((place + 0.5) / runs, (0.5 + place * _EVENLY) % 1.0))
    loss, back, day = ndtri(even[:3])
    return np.vstack(
        (np.exp(process.loss_log_sd * loss), np.exp(process.log_sd * back), process.day_log_sd * day, even[3:])
    )


def _simulate_chunk(
    work: SpotWork,
    work_hours: Floats,
    process: SpotProcess,
    luck: Floats,
    generator: np.random.Generator,
) -> SpotRuns:
    count = len(work_hours)
    loss, back, day = luck[:3]
    hours, stint = first_stretch(process, loss * np.exp(day), back * np.exp(-day), luck[3:], generator)
    left = work_hours.copy()
    waiting = hours.copy()
    losses = np.zeros(count, dtype=np.int64)
    result, waited = np.full(count, GIVEN_UP_HOURS), np.full(count, GIVEN_UP_HOURS)
    lost, finished = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    row = np.arange(count)
    while len(row):
        needed = work.needed_hours(left)
        done = stint >= needed
        over = hours > GIVEN_UP_HOURS
        if done.any() or over.any():
            done &= ~over
            ended = row[done]
            result[ended], waited[ended] = hours[done] + needed[done], waiting[done]
            lost[ended], finished[ended] = losses[done], True
            lost[row[over]], waited[row[over]] = losses[over], np.minimum(waiting[over], GIVEN_UP_HOURS)
            going = ~(done | over)
            row, hours, waiting, left = row[going], hours[going], waiting[going], left[going]
            stint, losses, loss, back, day = stint[going], losses[going], loss[going], back[going], day[going]
        left -= work.kept_hours(stint)
        np.maximum(left, 0.0, out=left)
        day = next_day(day, stint, process, generator)
        pause = duration(process.return_per_hour, back * np.exp(-day), generator)
        day = next_day(day, pause, process, generator)
        hours += stint + pause
        waiting += pause
        losses += 1
        stint = duration(process.loss_per_hour, loss * np.exp(day), generator)
    return SpotRuns(hours=result, paid_hours=result - waited, losses=lost, finished=finished)
