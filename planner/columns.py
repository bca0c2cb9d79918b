"""A column of predictions, each with its interval and whether anything like it was ever measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Z95 = float(ndtri(0.95))


class Quantiles(NamedTuple):
    """One row of a prediction."""

    p05: float
    p50: float
    p95: float

    def probability_at_most(self, limit: float) -> float:
        low, middle, high = (np.array([value]) for value in self)
        row = Prediction(p05=low, p50=middle, p95=high, extrapolated=np.array([False]))
        return float(row.probability_at_most(limit)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Positive quantities with a 90 % interval; between its quantiles log-normal, each side with its own width."""

    p05: Floats
    p50: Floats
    p95: Floats
    extrapolated: Flags

    @classmethod
    def log_normal(cls, median: Floats, log_sd: Floats | float, extrapolated: Flags) -> Prediction:
        spread = np.exp(Z95 * np.asarray(log_sd))
        return cls(p05=median / spread, p50=median, p95=median * spread, extrapolated=extrapolated)

    def quantile(self, probability: float) -> Floats:
        z = float(ndtri(probability)) / Z95
        if z == 1.0:  # the usual confidence
            return self.p95
        side = np.log(self.p95 / self.p50) if z >= 0 else np.log(self.p50 / self.p05)
        return self.p50 * np.exp(side * z)

    def probability_at_most(self, limit: float) -> Floats:
        distance = np.log(limit / self.p50)
        side = np.where(distance >= 0, np.log(self.p95 / self.p50), np.log(self.p50 / self.p05))
        certain = np.where(distance >= 0, np.inf, -np.inf)  # without a width it is below the limit or it is not
        return np.asarray(ndtr(Z95 * np.divide(distance, side, out=certain, where=side > 0)))

    def times(self, other: Prediction) -> Prediction:
        """The product of independent quantities: their relative errors add in quadrature, not plainly."""
        median = self.p50 * other.p50
        # Not np.hypot, whose care for huge numbers takes four times as long and logarithms do not need.
        up = np.sqrt(np.log(self.p95 / self.p50) ** 2 + np.log(other.p95 / other.p50) ** 2)
        down = np.sqrt(np.log(self.p50 / self.p05) ** 2 + np.log(other.p50 / other.p05) ** 2)
        return Prediction(
            p05=median * np.exp(-down),
            p50=median,
            p95=median * np.exp(up),
            extrapolated=self.extrapolated | other.extrapolated,
        )

    def plus(self, other: Prediction) -> Prediction:
        """The sum of quantities that rise and fall together, as two parts of one bill do."""
        return Prediction(
            p05=self.p05 + other.p05,
            p50=self.p50 + other.p50,
            p95=self.p95 + other.p95,
            extrapolated=self.extrapolated | other.extrapolated,
        )

    def at_most(self, other: Prediction) -> Prediction:
        """Quantile by quantile, of quantities that rise together."""
        return Prediction(
            p05=np.minimum(self.p05, other.p05),
            p50=np.minimum(self.p50, other.p50),
            p95=np.minimum(self.p95, other.p95),
            extrapolated=self.extrapolated,
        )

    def longer_of(self, other: Prediction) -> Prediction:
        """The larger of independent quantities: both are at most x with the product of the probabilities.

        Never below either of them, quantile by quantile.
        """
        logs = (_Logs.of(self), _Logs.of(other))
        low, middle, high = (_quantile_of_larger(self, other, logs, z) for z in (-Z95, 0.0, Z95))
        return Prediction(p05=low, p50=middle, p95=high, extrapolated=self.extrapolated | other.extrapolated)

    def scaled(self, factor: Floats | float, shift: Floats | float = 0.0) -> Prediction:
        return Prediction(
            p05=self.p05 * factor + shift,
            p50=self.p50 * factor + shift,
            p95=self.p95 * factor + shift,
            extrapolated=self.extrapolated,
        )

    def shifted(self, shift: float) -> Prediction:
        return Prediction(
            p05=self.p05 + shift, p50=self.p50 + shift, p95=self.p95 + shift, extrapolated=self.extrapolated
        )

    def at(self, rows: Ints | Flags) -> Prediction:
        return Prediction(
            p05=self.p05[rows], p50=self.p50[rows], p95=self.p95[rows], extrapolated=self.extrapolated[rows]
        )

    def rows(self) -> list[Quantiles]:
        columns = (self.p05.tolist(), self.p50.tolist(), self.p95.tolist())
        return [Quantiles(*row) for row in zip(*columns, strict=True)]


_NEWTON_STEPS = 5
_NEAR_ENOUGH = 1e-6  # of a logarithm: what a step leaves open is its square
_LEAST_SD = 1e-6  # of a quantity that is known: dividing by nothing is no number
_OUT_OF_REACH = 4.5  # standard deviations above its median the smaller one no longer changes the larger
_ROOT_TWO_PI = float(np.sqrt(2 * np.pi))


class _Logs(NamedTuple):
    """A prediction's logarithms: the median, and a standard deviation for each side of it."""

    middle: Floats
    below: Floats
    above: Floats

    @classmethod
    def of(cls, each: Prediction) -> _Logs:
        middle = np.log(each.p50)
        below, above = (np.abs(np.log(side) - middle) / Z95 for side in (each.p05, each.p95))
        return cls(middle, np.maximum(below, _LEAST_SD), np.maximum(above, _LEAST_SD))

    def at(self, rows: Ints) -> _Logs:
        return _Logs(self.middle[rows], self.below[rows], self.above[rows])

    def log_quantile(self, z: float) -> Floats:
        return np.asarray(self.middle + z * (self.above if z >= 0 else self.below))

    def score(self, log_x: Floats) -> tuple[Floats, Floats]:
        """How many standard deviations from the median, and how large one is on that side."""
        distance = log_x - self.middle
        sd = np.where(distance >= 0, self.above, self.below)
        return distance / sd, sd


def _quantile_of_larger(one: Prediction, other: Prediction, logs: tuple[_Logs, _Logs], z: float) -> Floats:
    """Where the logarithms of both probabilities add up to that of `z`.

    That sum is concave, as it is for all normal distributions, so Newton's method from below never steps too far; and
    the larger of both quantiles is below.
    """
    name = "p50" if z == 0 else "p95" if z > 0 else "p05"
    at_least: Floats = np.maximum(getattr(one, name), getattr(other, name))
    start = np.maximum(*(each.log_quantile(z) for each in logs))
    near = np.flatnonzero((logs[0].score(start)[0] < _OUT_OF_REACH) & (logs[1].score(start)[0] < _OUT_OF_REACH))
    log_x, target = start[near], float(np.log(ndtr(z)))
    moving = np.arange(len(near))
    for _ in range(_NEWTON_STEPS):
        if not len(moving):
            break
        both, at = [each.at(near[moving]) for each in logs], log_x[moving]
        (score, sd), (other_score, other_sd) = (each.score(at) for each in both)
        probability, other_probability = ndtr(score), ndtr(other_score)
        missing = target - np.log(probability * other_probability)
        slope = np.exp(-0.5 * score**2) / (probability * sd)
        slope += np.exp(-0.5 * other_score**2) / (other_probability * other_sd)
        step = np.maximum(missing, 0.0) * _ROOT_TWO_PI / slope
        log_x[moving] += step
        moving = moving[step > _NEAR_ENOUGH]
    found: Floats = at_least.copy()
    found[near] = np.maximum(np.exp(log_x), at_least[near])
    return found
