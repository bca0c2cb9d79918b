"""How many samples a running job still needs until its loss reaches the target, by the curve so far.

    power        y(n) = a + b * (n + c)^-d        most training, for most of the time
    exponential  y(n) = a + b * exp(-n / t)       what flattens sooner, at a plateau a

Shapes (c and d, or t) are a grid. For each, a and b follow by least squares, with their covariance, and the weight of a
shape is how likely it makes the points. The chance to be at the target by n is then a sum of normal distributions:
nothing is drawn. A plateau above the target has no such n, and its weight is the chance of "not reached".

What was known without the curve is the prior: the plan, or, without one, that a run may be anywhere between its
beginning and its end (Gott: P(N > x * n) = 1 / x); one run in ten never arrives. The curve multiplies it by how likely
it makes each N, but knows nothing of what changes it: a learning rate that falls by ten makes a step that no law
foresees. So a share of that likelihood is the same for all N. Intervals are stretched as far as left-out curves needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from planner.columns import Z95, Floats, Quantiles

LEAST_POINTS = 3
_MOST_POINTS = 40  # log-spaced means: neighbours are noisy in the same way, and fits must not count them as news
_SPAN = 50.0  # how far back, as a factor of the samples so far: the first steps of a training follow no law
_FURTHEST = 1000.0  # times the samples so far; what takes longer is not reached
_AHEAD = np.geomspace(1.0, _FURTHEST, 400)
_NEVER = 0.1  # chance that a run never gets there: assumed, the public curves are of runs that did
_WRONG = 0.1  # chance that a plan says nothing of the run: assumed
_FLOOR = 0.02  # of the range that the points span: nobody knows a curve better than that by a few of them

_OFFSETS = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])  # c, over the samples so far
_EXPONENTS = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0])
_TIMES = np.geomspace(0.03, 5.0, 16)  # t, over the samples so far


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBeliefs:
    """What curves of other jobs say of forecasts: printed by `benchmarks/loss_forecast.py`."""

    elsewhere: float = 0.1  # share of the curve's likelihood that is the same for every number of samples
    stretch_log: float = 0.045  # by how much both ends move, in logarithms


CURVE_BELIEFS = CurveBeliefs()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveForecast:
    """Samples until the target; None where the curve, as it goes now, does not get there."""

    p05: float
    p50: float | None
    p95: float | None
    reached_probability: float
    alone_probability: float  # by the curve as it goes now, whatever was planned


class Curve(NamedTuple):
    """Samples so far and the loss there, lower is better, in order of the samples."""

    samples: Floats
    loss: Floats


def first_reached(curve: Curve, target: float) -> float | None:
    """Where the median of three neighbours is at the target: one lucky evaluation is no arrival."""
    smooth = _smoothed(curve.loss)
    there = np.flatnonzero(smooth <= target)
    return float(curve.samples[there[0]]) if len(there) else None


def forecast_curve(
    curve: Curve, target: float, planned: Quantiles | None = None, beliefs: CurveBeliefs = CURVE_BELIEFS
) -> CurveForecast:
    """For a run that is not there yet, of at least LEAST_POINTS different samples; `planned` are the plan's."""
    now = float(curve.samples[-1])
    points = _log_spaced(curve)
    chance = _by_the_laws(points, now, target)
    mixed = _posterior(_before_the_curve(now, planned), chance, beliefs.elsewhere)
    low, middle, high = (_quantile(mixed, q) for q in (0.05, 0.5, 0.95))
    stretch = np.exp(beliefs.stretch_log)
    return CurveForecast(
        p05=now * max(1.0, (low or _FURTHEST) / stretch),
        p50=None if middle is None else now * middle,
        p95=None if high is None or high * stretch > _FURTHEST else now * high * stretch,
        reached_probability=float(mixed[-1]),
        alone_probability=float(chance[-1]),
    )


def _smoothed(loss: Floats) -> Floats:
    if len(loss) < 3:
        return loss
    inner = np.median(np.stack((loss[:-2], loss[1:-1], loss[2:])), axis=0)
    return np.concatenate((loss[:1], inner, loss[-1:]))


def _log_spaced(curve: Curve) -> Curve:
    """Means over pieces of equal length in log samples, of the part that tells the rest."""
    recent = curve.samples >= curve.samples[-1] / _SPAN
    samples, loss = curve.samples[recent], curve.loss[recent]
    position = np.log(samples[-1] / samples) / np.log(_SPAN) * _MOST_POINTS
    piece = np.unique(position.astype(int), return_inverse=True)[1]
    count = np.bincount(piece)
    means = (np.bincount(piece, weights=column) / count for column in (samples, loss))
    return Curve(*(column[::-1] for column in means))


def _by_the_laws(points: Curve, now: float, target: float) -> Floats:
    """The chance to be at the target by each of `_AHEAD`, given that it was not by now."""
    seen = points.samples / now
    spread = max(float(np.ptp(points.loss)), 1e-12 * max(1.0, abs(float(points.loss[-1]))))
    loss, aim = (points.loss - points.loss[-1]) / spread, (target - float(points.loss[-1])) / spread
    shapes = _shapes(seen), _shapes(_AHEAD)
    fits = [_fitted(was, will, loss, aim) for was, will in zip(*shapes, strict=True)]
    powers = len(_OFFSETS) * len(_EXPONENTS)
    usual = np.log(np.r_[np.full(powers, 0.5 / powers), np.full(len(_TIMES), 0.5 / len(_TIMES))])
    log_weight = usual + np.array([fit.log_likelihood for fit in fits])
    weight = np.exp(log_weight - np.logaddexp.reduce(log_weight))
    chance = np.maximum.accumulate(weight @ np.stack([fit.chance for fit in fits]))
    return np.asarray((chance - chance[0]) / max(1 - chance[0], 1e-9))


def _shapes(n: Floats) -> Floats:
    """One row per shape; falling, and 0 in the limit."""
    powers = [(n + c) ** -d for c in _OFFSETS for d in _EXPONENTS]
    return np.stack(powers + [np.exp(-n / t) for t in _TIMES])


class _Fit(NamedTuple):
    log_likelihood: float
    chance: Floats


def _fitted(was: Floats, will: Floats, loss: Floats, aim: float) -> _Fit:
    """Least squares of loss = a + b * shape. Where b is not above 0 the loss does not fall: no arrival."""
    centre = was.mean()
    centred = was - centre
    square = float(centred @ centred)
    if square < 1e-20:
        return _Fit(-np.inf, np.zeros_like(will))
    slope = float(centred @ loss) / square
    misfit = loss - loss.mean() - slope * centred
    free = max(len(loss) - 2, 1)
    variance = (float(misfit @ misfit) + _FLOOR**2) / free
    likelihood = -free / 2 * np.log(variance)
    if slope <= 0:
        return _Fit(likelihood, np.zeros_like(will))
    ahead = will - centre
    middle = loss.mean() + slope * ahead
    sd = np.sqrt(variance * (1 / len(loss) + ahead**2 / square))
    return _Fit(likelihood, np.asarray(ndtr((aim - middle) / sd)))


def _posterior(before: Floats, chance: Floats, elsewhere: float) -> Floats:
    """Both as chances to be there by each of `_AHEAD`; what is left at the end is never."""
    prior, told = (np.append(np.diff(column, prepend=0.0), 1 - column[-1]) for column in (before, chance))
    # Against knowing nothing: as likely never as ever, and ever alike for each factor of samples.
    blank = np.append(np.full(len(_AHEAD), 0.5 / len(_AHEAD)), 0.5)
    mass = prior * (elsewhere + (1 - elsewhere) * told / blank)
    return np.asarray(np.cumsum(mass[:-1]) / mass.sum())


def _before_the_curve(now: float, planned: Quantiles | None) -> Floats:
    anywhere = 1 - 1 / _AHEAD
    if planned is None:
        return np.asarray((1 - _NEVER) * anywhere)
    distance = np.log(now * _AHEAD / planned.p50)
    side = np.where(distance > 0, np.log(planned.p95 / planned.p50), np.log(planned.p50 / planned.p05))
    chance = ndtr(distance * Z95 / np.maximum(side, 1e-6))
    # The chance that it is as planned, but was not by now; that the plan is wrong altogether; and, last, never.
    as_planned, wrong = (1 - _NEVER - _WRONG) * (chance - chance[0]), _WRONG * anywhere
    return np.asarray((as_planned + wrong) / ((1 - _NEVER - _WRONG) * (1 - chance[0]) + _WRONG + _NEVER))


def _quantile(chance: Floats, q: float) -> float | None:
    """Over the samples so far; None where the chance never gets there."""
    if chance[-1] < q:
        return None
    return float(np.exp(np.interp(q, chance, np.log(_AHEAD))))
