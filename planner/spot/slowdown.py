"""What spot nodes cost a candidate in lost work and waiting, for a hundred thousand candidates at once.

Renewal theory instead of simulation: each loss takes back part of an interval, a restart and a wait; their number and
their spread follow from the up- and down-times. From half a day of work on it is near the simulation (a test says how
near).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from planner.columns import Z95, Floats, Ints, Prediction
from planner.models import UNNOTICED_SHARE
from planner.spot.rates.pooled import LOSS_EXPONENT, RETURN_EXPONENT
from planner.spot.rates.process import (
    AGE_EDGES_HOURS,
    DAY_HOURS,
    SpotProcess,
    area_by_row,
    left_by_age,
    mean_by_row,
    moments_by_row,
)

_LESS_HOURS = 2.0  # half the rates is about a quarter of the hours
# With luck hardly anything is lost: p05 is this power of p50, in simulations 0 to 0.3. The same power for all, since
# with a longer lucky tail for more spot nodes these would now and then look safer.
_LUCKY_POWER = 0.1
_THREE_POINTS = ((-(3**0.5), 1 / 6), (0.0, 2 / 3), (3**0.5, 1 / 6))  # of a normal distribution, with their weights
_LATER_HOURS = AGE_EDGES_HOURS[-1] * (2.0 ** np.arange(1, 10) - 1)  # after the oldest age begins
_WAITS_HOURS = np.append(AGE_EDGES_HOURS, AGE_EDGES_HOURS[-1] + _LATER_HOURS)
_LEAST_KEPT_HOURS = 1e-6  # of a stint: with a restart that outlasts every one, the rest is as good as nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRates:
    """A row per candidate, or one row for all: rates by age, and what is not known of them."""

    loss_per_hour: Floats  # shape (rows, ages)
    return_per_hour: Floats
    loss_log_sd: Floats
    return_log_sd: Floats
    day_log_sd: float = 0.0  # of good and bad days, in all zones alike

    @classmethod
    def of(cls, *processes: SpotProcess) -> SpotRates:
        return cls(
            loss_per_hour=np.array([process.loss_per_hour for process in processes]),
            return_per_hour=np.array([process.return_per_hour for process in processes]),
            loss_log_sd=np.array([process.loss_log_sd for process in processes]),
            return_log_sd=np.array([process.log_sd for process in processes]),
            day_log_sd=processes[0].day_log_sd,
        )

    def at(self, rows: Ints) -> SpotRates:
        return replace(
            self,
            loss_per_hour=self.loss_per_hour[rows],
            return_per_hour=self.return_per_hour[rows],
            loss_log_sd=self.loss_log_sd[rows],
            return_log_sd=self.return_log_sd[rows],
        )

    def scaled(self, loss: Floats | float = 1.0, returns: Floats | float = 1.0) -> SpotRates:
        return replace(
            self,
            loss_per_hour=self.loss_per_hour * np.reshape(loss, (-1, 1)),
            return_per_hour=self.return_per_hour * np.reshape(returns, (-1, 1)),
        )

    def for_gang(
        self,
        times_as_many: Floats | Ints,
        loss_exponent: float = LOSS_EXPONENT,
        return_exponent: float = RETURN_EXPONENT,
    ) -> SpotRates:
        """The rates of a gang with that many times the spot nodes. A gang without any is never lost."""
        more = np.maximum(np.asarray(times_as_many, dtype=float), 1.0)
        scaled = self.scaled(np.where(np.asarray(times_as_many) > 0, more**loss_exponent, 0.0), more**return_exponent)
        loss_log_sd, return_log_sd = (sd + 0.0 * more for sd in (self.loss_log_sd, self.return_log_sd))
        return replace(scaled, loss_log_sd=loss_log_sd, return_log_sd=return_log_sd)

    def process(self, row: int) -> SpotProcess:
        return SpotProcess(
            loss_per_hour=self.loss_per_hour[row],
            return_per_hour=self.return_per_hour[row],
            log_sd=float(self.return_log_sd[row]),
            own_loss_log_sd=float(self.loss_log_sd[row]),
            day_log_sd=self.day_log_sd,
        )

    @property
    def mean_up_hours(self) -> Floats:
        return mean_by_row(self.loss_per_hour)


class _Keeping(NamedTuple):
    """What a loss takes back."""

    interval_hours: Floats
    restart_hours: float
    saves_on_notice: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotBurden:
    """What a gang adds to each busy hour and to the start: mean and variance of hours, and its losses.

    A row per offer and node count, of which there are far fewer than candidates.
    """

    losses_per_hour: Floats
    hours_per_hour: Floats
    waiting_share: Floats  # of these hours, in which no spot node is paid; the rest is work done again
    variance_per_hour: Floats
    day_variance_per_hour: Floats  # of runs of many days: in a shorter one fewer of them average out
    shortage: Floats  # the chance that capacity is not there at the start
    start_hours: Floats
    start_variance: Floats
    start_p95_hours: Floats
    loss_log_sd: Floats
    lower_log_sd: Floats  # of these hours, since the rates are not known
    upper_log_sd: Floats

    @classmethod
    def of(
        cls,
        rates: SpotRates,
        *,
        interval_hours: Floats | float,
        restart_hours: float = 0.1,
        saves_on_notice: bool = False,
    ) -> SpotBurden:
        keeping = _Keeping(np.asarray(interval_hours, dtype=float), restart_hours, saves_on_notice)
        sd = rates.day_log_sd
        points = _THREE_POINTS if sd else ((0.0, 1.0),)
        kinds = [_kind_of_day(rates.scaled(np.exp(sd * point), np.exp(-sd * point)), keeping) for point, _ in points]
        likely = np.array([weight for _, weight in points])[:, None]
        by_kind = _KindOfDay(*(np.array(column) for column in zip(*kinds, strict=True)))
        pace = 1 / (1 + by_kind.hours_per_hour)  # busy hours of an hour: a job has fewer of them on a bad day
        usual = (likely * pace).sum(axis=0)
        busy = likely * pace / usual
        start_hours = (likely * by_kind.start_hours).sum(axis=0)
        return cls(
            losses_per_hour=(busy * by_kind.losses_per_hour).sum(axis=0),
            hours_per_hour=(busy * by_kind.hours_per_hour).sum(axis=0),
            waiting_share=(busy * by_kind.waiting_share).sum(axis=0),
            variance_per_hour=(busy * by_kind.variance_per_hour).sum(axis=0),
            day_variance_per_hour=2 * DAY_HOURS * (likely * (pace - usual) ** 2).sum(axis=0) / usual**3,
            shortage=(likely * by_kind.shortage).sum(axis=0),
            start_hours=start_hours,
            start_variance=(likely * by_kind.start_square).sum(axis=0) - start_hours**2,
            start_p95_hours=_start_p95_hours(rates),
            loss_log_sd=rates.loss_log_sd,
            lower_log_sd=_LESS_HOURS * np.hypot(rates.loss_log_sd, rates.return_log_sd),
            upper_log_sd=_upper_log_sd(rates, mean_by_row(rates.return_per_hour), keeping),
        )

    def at(self, rows: Ints) -> SpotBurden:
        return SpotBurden(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


class _KindOfDay(NamedTuple):
    """What losses add to each busy hour and to the start while all days are of one kind."""

    losses_per_hour: Floats
    hours_per_hour: Floats
    waiting_share: Floats
    variance_per_hour: Floats
    shortage: Floats
    start_hours: Floats
    start_square: Floats


def _kind_of_day(rates: SpotRates, keeping: _Keeping) -> _KindOfDay:
    up, up_square, _ = moments_by_row(rates.loss_per_hour)
    down, down_square, down_cube = moments_by_row(rates.return_per_hour)
    kept = np.maximum(_kept_hours(rates.loss_per_hour, up, keeping), _LEAST_KEPT_HOURS)
    endless = np.isinf(up)
    up, up_square, kept = (np.where(endless, 1.0, column) for column in (up, up_square, kept))
    losses = np.where(endless, 0.0, 1 / kept)
    shortage = np.where(endless, 0.0, down / (up + down))
    return _KindOfDay(
        losses_per_hour=losses,
        hours_per_hour=losses * (up - kept + down),
        waiting_share=np.where(np.isinf(down), 1.0, down / (up - kept + down)),
        variance_per_hour=losses * (down_square - down**2 + (down / kept) ** 2 * (up_square - up**2)),
        shortage=shortage,
        start_hours=shortage * down_square / (2 * down),  # the rest of a shortage that is met at a random moment
        start_square=shortage * down_cube / (3 * down),
    )


def _kept_hours(loss_per_hour: Floats, up_hours: Floats, keeping: _Keeping) -> Floats:
    """What a stint gets done after its restart.

    Its end takes back half an interval on average, or everything where it was shorter than one.
    """
    if not keeping.saves_on_notice:
        return up_hours - area_by_row(loss_per_hour, keeping.restart_hours + keeping.interval_hours / 2)
    starting = area_by_row(loss_per_hour, keeping.restart_hours)
    in_danger = area_by_row(loss_per_hour, keeping.restart_hours + keeping.interval_hours) - starting
    return up_hours - starting - UNNOTICED_SHARE / 2 * in_danger


def _upper_log_sd(rates: SpotRates, down_hours: Floats, keeping: _Keeping) -> Floats:
    """How far the hours move when a rate is worse than in 95 of 100 zones: often far more than the rate does."""

    def up_and_kept(factor: Floats | float) -> tuple[Floats, Floats]:
        loss = rates.loss_per_hour * np.reshape(factor, (-1, 1))
        up = mean_by_row(loss)
        return up, np.maximum(_kept_hours(loss, up, keeping), _LEAST_KEPT_HOURS)

    usual, lost_sooner = up_and_kept(1.0), up_and_kept(np.exp(Z95 * rates.loss_log_sd))
    back_later = mean_by_row(rates.return_per_hour * np.exp(-Z95 * rates.return_log_sd)[:, None])
    never = np.isinf(usual[0]) | np.isinf(down_hours)  # then there is nothing to be wrong about

    def log_hours(up: Floats, kept: Floats, down: Floats) -> Floats:
        up, kept, down = (np.where(never, 1.0, hours) for hours in (up, kept, down))
        return np.log((up - kept + down) / kept)

    before = log_hours(*usual, down_hours)
    return np.hypot(log_hours(*lost_sooner, down_hours) - before, log_hours(*usual, back_later) - before) / Z95


def _start_p95_hours(rates: SpotRates) -> Floats:
    """How long 95 of 100 runs wait for their first node at most. What is not known of the rates is averaged over.

    What is left of a shortage that is met at a random moment lasts longer than t with the integral of its survival
    from t on, over the mean hours of a whole turn. That is known at the ages, and beyond the oldest falls evenly.
    """
    loss_log_sd, return_log_sd = (np.hypot(sd, rates.day_log_sd) for sd in (rates.loss_log_sd, rates.return_log_sd))
    ups = [mean_by_row(rates.scaled(np.exp(loss_log_sd * point)).loss_per_hour) for point, _ in _THREE_POINTS]
    longer = np.zeros((len(ups[0]), len(_WAITS_HOURS)))
    for point, likely in _THREE_POINTS:
        left = left_by_age(rates.scaled(returns=np.exp(return_log_sd * point)).return_per_hour)
        later = np.exp(-np.outer(rates.return_per_hour[:, -1] * np.exp(return_log_sd * point), _LATER_HOURS))
        turns = sum(weight / (up + left[:, 0]) for up, (_, weight) in zip(ups, _THREE_POINTS, strict=True))
        longer += likely * np.concatenate([left, left[:, -1:] * later], axis=1) * np.reshape(turns, (-1, 1))
    logs = np.log(np.maximum(longer, 1e-12))
    return np.array([np.interp(-np.log(0.05), -row, _WAITS_HOURS) for row in logs])


def spot_slowdown(busy_hours: Floats, burden: SpotBurden) -> Prediction:
    """Wall time with spot nodes over wall time without: rework, restarts and waiting for capacity.

    `busy_hours` are steps and saves.
    """
    on_the_way = burden.hours_per_hour * busy_hours
    mean = on_the_way + burden.start_hours
    days = (busy_hours + on_the_way) / DAY_HOURS
    variance = burden.variance_per_hour + burden.day_variance_per_hour * days / (2 + days)
    square = variance * busy_hours + burden.start_variance + mean**2
    spared = _chance_of_none(busy_hours, burden)
    hit = np.maximum(1 - spared, 1e-12)
    typical, log_variance = _log_normal(mean / hit, square / hit)
    lower, upper = (np.sqrt(log_variance + sd**2) for sd in (burden.lower_log_sd, burden.upper_log_sd))
    middle, high = (
        np.where(share > spared, typical * np.exp(sd * ndtri((share - spared) / hit)), 0.0)
        for share, sd in ((0.5, lower), (0.95, upper))
    )
    # One long wait at the start is a tail of its own, which the two moments of a short run miss.
    high = np.sqrt(high**2 + (burden.start_p95_hours + on_the_way) ** 2)
    p50 = 1 + middle / busy_hours
    return Prediction(
        p05=p50**_LUCKY_POWER, p50=p50, p95=1 + high / busy_hours, extrapolated=np.zeros(len(mean), dtype=bool)
    )


def _chance_of_none(busy_hours: Floats, burden: SpotBurden) -> Floats:
    """The chance that capacity is there at the start and stays. What is not known of the rate is averaged over."""
    losses = burden.losses_per_hour * busy_hours
    none = sum(weight * np.exp(-losses * np.exp(burden.loss_log_sd * point)) for point, weight in _THREE_POINTS)
    return np.asarray(none * (1 - burden.shortage))


def _log_normal(mean: Floats, square: Floats) -> tuple[Floats, Floats]:
    """Median and log variance from two moments; zero where there is nothing."""
    ratio = np.maximum(np.divide(square, mean**2, out=np.ones_like(mean), where=mean > 0), 1.0)
    return mean / np.sqrt(ratio), np.log(ratio)


def expected_losses(busy_hours: Floats, burden: SpotBurden) -> Floats:
    """How often each run of so many busy hours loses its gang."""
    return np.asarray(busy_hours * burden.losses_per_hour)
