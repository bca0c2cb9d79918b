"""How long spot capacity is there and gone, drawn for many runs that each have their own rates."""

from __future__ import annotations

import numpy as np

from planner.columns import Flags, Floats
from planner.errors import InputError
from planner.spot.rates.process import AGE_EDGES_HOURS, DAY_HOURS, SpotProcess, hours_at_hazard, mean_by_row

GIVEN_UP_HOURS = 24.0 * 365
_WIDTHS = np.append(np.diff(AGE_EDGES_HOURS), np.inf)


def check_ever_there(process: SpotProcess) -> None:
    if process.availability <= 0:
        raise InputError("spot capacity never comes back in this history: availability is zero")


def first_day(process: SpotProcess, runs: int, generator: np.random.Generator) -> Floats:
    """How bad each run's day is: the logarithm of a factor on its loss rates, and of one under its return rates."""
    if not process.day_log_sd:
        return np.zeros(runs)
    return process.day_log_sd * generator.standard_normal(runs)


def next_day(day: Floats, hours: Floats, process: SpotProcess, generator: np.random.Generator) -> Floats:
    """The same so many hours later: a stretch keeps what it began with."""
    if not process.day_log_sd:
        return day
    kept = np.exp(-hours / DAY_HOURS)
    return np.asarray(kept * day + np.sqrt(1 - kept**2) * first_day(process, len(day), generator))


def duration(rates: Floats, factor: Floats, generator: np.random.Generator) -> Floats:
    """One stretch of each run, whose rates are these times its factor."""
    hazard = generator.standard_exponential(len(factor)) / factor
    return np.minimum(hours_at_hazard(rates, hazard), 2 * GIVEN_UP_HOURS)


def at_a_random_moment(process: SpotProcess, loss: Floats, back: Floats, luck: Floats) -> tuple[Flags, Floats]:
    """Whether each run meets capacity, and how old that state is: or how long it will last, which is as likely.

    `luck`: two numbers of each run between 0 and 1.
    """
    if np.isinf(process.mean_up_hours):
        return np.full(len(loss), True), np.full(len(loss), 2 * GIVEN_UP_HOURS)
    up_rates, down_rates = np.outer(loss, process.loss_per_hour), np.outer(back, process.return_per_hour)
    up_hours, down_hours = mean_by_row(up_rates), mean_by_row(down_rates)
    up = luck[0] * (up_hours + down_hours) < up_hours
    return up, _part(np.where(up[:, None], up_rates, down_rates), luck[1])


def first_stretch(
    process: SpotProcess, loss: Floats, back: Floats, luck: Floats, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Hours until the first stint, and how long that one lasts, when the run starts at a random moment."""
    fresh = duration(process.loss_per_hour, loss, generator)
    up, rest = at_a_random_moment(process, loss, back, luck)
    return np.where(up, 0.0, rest), np.where(up, rest, fresh)


def _part(rates: Floats, luck: Floats) -> Floats:
    """Of a stretch met at a random moment: its density falls as the chance to live so long does."""
    risk = np.maximum(rates, 1e-12)
    hazard = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(rates[:, :-1] * _WIDTHS[:-1], axis=1)], axis=1)
    ends = np.exp(-risk * _WIDTHS)
    areas = np.exp(-hazard) * (1 - ends) / risk
    upto = np.cumsum(areas, axis=1)
    at = luck * upto[:, -1]
    bucket = np.minimum((at[:, None] >= upto).sum(axis=1), rates.shape[1] - 1)
    each = np.arange(len(rates))
    inside = (at - upto[each, bucket] + areas[each, bucket]) / areas[each, bucket]
    part = -np.log1p(-inside * (1 - ends[each, bucket])) / risk[each, bucket]
    return np.asarray(np.minimum(AGE_EDGES_HOURS[bucket] + part, 2 * GIVEN_UP_HOURS))
