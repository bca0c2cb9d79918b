"""When a gang of spot nodes is lost and when its capacity is back: rates that fall with the age of the current state.

Up-times are not exponential: capacity that has lasted four hours is ten times safer than capacity that came a quarter
of an hour ago, and a shortage that has lasted as long ends as slowly; what has lasted most of a day is safer, or gone
for longer, once more. Six ages on either side hold this; the exponential law, whose rate never falls, expects too many
short runs and no long ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammainc

from planner.columns import Floats, Ints
from planner.contract import kept_digits

AGE_EDGES_HOURS = np.array([0.0, 0.12, 0.3, 1.0, 4.0, 16.0])
AGES = len(AGE_EDGES_HOURS)
DAY_HOURS = 24.0  # after which a good day has mostly been forgotten: of half days, those two days apart are unlike
_WIDTHS = np.diff(AGE_EDGES_HOURS)
_SPANS = np.append(_WIDTHS, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotProcess:
    """One gang in one zone. `log_sd` is what is not known of either rate, and stays as it is for the whole run.

    Where less is known of losses than of returns, as from an interruption class, they have a number of their own.
    Beside that a zone has good and bad days, with more or fewer losses and later or earlier returns: `day_log_sd`.
    """

    loss_per_hour: Floats
    return_per_hour: Floats
    log_sd: float = 0.0
    own_loss_log_sd: float | None = None
    day_log_sd: float = 0.0

    @property
    def mean_up_hours(self) -> float:
        """The mean time between losses while running; the median is far shorter and misleads the interval."""
        return mean_hours(self.loss_per_hour)

    @property
    def mean_down_hours(self) -> float:
        return mean_hours(self.return_per_hour)

    @property
    def availability(self) -> float:
        up, down = self.mean_up_hours, self.mean_down_hours
        if np.isinf(up):
            return 1.0
        return 0.0 if np.isinf(down) else up / (up + down)

    @property
    def loss_log_sd(self) -> float:
        return self.log_sd if self.own_loss_log_sd is None else self.own_loss_log_sd

    @property
    def _numbers(self) -> tuple[tuple[float, ...], tuple[float, ...], float, float, float]:
        rates = tuple(self.loss_per_hour.tolist()), tuple(self.return_per_hour.tolist())
        return *rates, self.log_sd, self.loss_log_sd, self.day_log_sd

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpotProcess) and self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def as_written(self) -> SpotProcess:
        """To the digits that a plan keeps."""
        losses, returns, log_sd, loss_log_sd, day_log_sd = self._numbers
        return SpotProcess(
            loss_per_hour=np.array([kept_digits(rate) for rate in losses]),
            return_per_hour=np.array([kept_digits(rate) for rate in returns]),
            log_sd=kept_digits(log_sd),
            own_loss_log_sd=kept_digits(loss_log_sd),
            day_log_sd=kept_digits(day_log_sd),
        )

    def scaled(self, loss: float = 1.0, returns: float = 1.0) -> SpotProcess:
        return replace(self, loss_per_hour=self.loss_per_hour * loss, return_per_hour=self.return_per_hour * returns)


def age_bucket(age_hours: Floats) -> Ints:
    return np.searchsorted(AGE_EDGES_HOURS, age_hours, side="right") - 1


def cumulative_hazard(rates: Floats, hours: Floats) -> Floats:
    at_edges = np.concatenate(([0.0], np.cumsum(rates[:-1] * _WIDTHS)))
    beyond = np.maximum(hours - AGE_EDGES_HOURS[-1], 0.0)
    return np.asarray(np.interp(hours, AGE_EDGES_HOURS, at_edges) + beyond * rates[-1])


def hours_at_hazard(rates: Floats, hazard: Floats) -> Floats:
    """The age at which this much risk has been run: infinite where the rates end before it."""
    at_edges = np.concatenate(([0.0], np.cumsum(rates[:-1] * _WIDTHS)))
    beyond = np.maximum(hazard - at_edges[-1], 0.0)
    tail = np.where(beyond > 0, np.inf, 0.0) if rates[-1] <= 0 else beyond / rates[-1]
    rising = np.concatenate(([True], np.diff(at_edges) > 0))  # a bucket without risk is skipped, not divided by
    return np.asarray(np.interp(hazard, at_edges[rising], AGE_EDGES_HOURS[rising]) + tail)


def mean_hours(rates: Floats) -> float:
    return float(mean_by_row(rates[None])[0])


def mean_by_row(rates: Floats) -> Floats:
    """Mean hours of a duration, for each row; infinite where it never ends."""
    return left_by_age(rates)[:, 0]


def _reaching(run: Floats) -> Floats:
    """The chance to reach each age, from the risk that is run in each."""
    passed = np.cumsum(run[:, :-1], axis=1)
    return np.asarray(np.exp(-np.concatenate([np.zeros((len(run), 1)), passed], axis=1)))


def left_by_age(rates: Floats) -> Floats:
    """The integral of the survival from each age on.

    Divided by the mean duration, it is the chance that more than this is left at a random moment.
    """
    risk = np.maximum(rates, 1e-12)
    run = risk * _SPANS
    within = _reaching(run) * -np.expm1(-run) / risk
    left = np.cumsum(within[:, ::-1], axis=1)[:, ::-1]
    return np.where(rates[:, -1:] <= 0, np.inf, left)


def area_by_row(rates: Floats, hours: Floats | float) -> Floats:
    """The mean of a duration that is cut off after these hours, each row's own or the same for all."""
    lived = np.clip(np.reshape(hours, (-1, 1)) - AGE_EDGES_HOURS, 0.0, _SPANS)
    risk = np.maximum(rates, 1e-12)
    run = risk * lived
    return np.asarray((_reaching(run) * -np.expm1(-run) / risk).sum(axis=1))


def moments_by_row(rates: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, mean square and mean cube of a duration, for each row; infinite where it never ends.

    The integrals of S, 2 t S and 3 t^2 S over its survival S, which is exponential within each age.
    """
    risk = np.maximum(rates, 1e-12)
    run = risk * _SPANS
    reaching = _reaching(run)
    area, lever, arch = (
        math.factorial(power - 1) * reaching * gammainc(power, run) / risk**power for power in (1, 2, 3)
    )
    mean = area.sum(axis=1)
    square = 2 * (AGE_EDGES_HOURS * area + lever).sum(axis=1)
    cube = 3 * (AGE_EDGES_HOURS**2 * area + 2 * AGE_EDGES_HOURS * lever + arch).sum(axis=1)
    endless = rates[:, -1] <= 0
    mean, square, cube = (np.where(endless, np.inf, moment) for moment in (mean, square, cube))
    return mean, square, cube
