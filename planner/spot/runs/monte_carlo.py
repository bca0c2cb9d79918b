"""A million runs of a job on spot nodes, in seconds: hours, paid hours and losses of each.

Every run has its own rates, as far as these are not known: factors on the loss and on the return rates, spread evenly
over their distributions. Where rates are m times as high, the hazard h is reached when h / m is reached without m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from planner.columns import Flags, Floats, Ints
from planner.errors import InputError
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.stretches import GIVEN_UP_HOURS, duration, first_stretch
from planner.spot.runs.work import SpotWork

_CHUNK = 1 << 15  # whose columns stay in the processor's cache
_GOLDEN = 0.6180339887498949  # spreads the second rate's quantiles evenly against the first's


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
    if process.availability <= 0:
        raise InputError("spot capacity never comes back in this history: availability is zero")
    generator = np.random.default_rng(seed)
    loss, back = _multipliers(runs, process, generator)
    each = np.broadcast_to(np.asarray(work.work_hours, dtype=float), runs)
    parts = [
        _simulate_chunk(work, each[rows], process, loss[rows], back[rows], generator)
        for rows in (slice(first, first + _CHUNK) for first in range(0, runs, _CHUNK))
    ]
    return SpotRuns(
        hours=np.concatenate([part.hours for part in parts]),
        paid_hours=np.concatenate([part.paid_hours for part in parts]),
        losses=np.concatenate([part.losses for part in parts]),
        finished=np.concatenate([part.finished for part in parts]),
    )


def _multipliers(runs: int, process: SpotProcess, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Of the loss and the return rates. In random order: whatever else differs between runs must not follow it."""
    place = generator.permutation(runs)
    first, second = (place + 0.5) / runs, (0.5 + place * _GOLDEN) % 1.0
    return np.exp(process.loss_log_sd * ndtri(first)), np.exp(process.log_sd * ndtri(second))


def _simulate_chunk(
    work: SpotWork,
    work_hours: Floats,
    process: SpotProcess,
    loss: Floats,
    back: Floats,
    generator: np.random.Generator,
) -> SpotRuns:
    count = len(work_hours)
    hours, stint = first_stretch(process, loss, back, generator)
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
            stint, losses, loss, back = stint[going], losses[going], loss[going], back[going]
        left -= work.kept_hours(stint)
        np.maximum(left, 0.0, out=left)
        pause = duration(process.return_per_hour, back, generator)
        hours += stint + pause
        waiting += pause
        losses += 1
        stint = duration(process.loss_per_hour, loss, generator)
    return SpotRuns(hours=result, paid_hours=result - waited, losses=lost, finished=finished)
