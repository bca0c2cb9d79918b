"""How long spot capacity is there and gone, drawn for many runs that each have their own rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats
from planner.inputs import Stretches
from planner.spot.rates.process import AGE_EDGES_HOURS, SpotProcess, cumulative_hazard, hours_at_hazard, moments_by_row

GIVEN_UP_HOURS = 24.0 * 365
_BLIP_HOURS = 1.0
_REMEMBERED_HOURS, _REMEMBERED_SHARE = 168.0, 0.5
_WIDTHS = np.append(np.diff(AGE_EDGES_HOURS), np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known when the run starts: whether the gang's capacity is there, and since when."""

    up: bool
    age_hours: float

    @classmethod
    def met(cls, runs: Stretches, hours: float) -> Start:
        """What a recording shows at this moment.

        A blip does not make young: capacity that was there all day but for ten minutes is safer than its last ten
        minutes say. So a state goes back through blips of the other for as long as it prevailed, and half of what it
        had lasted before counts.
        """
        now = first = runs.at(hours)
        lengths = runs.end_hours - runs.begin_hours
        same = other = prevailed = 0.0
        while first >= 2 and lengths[first - 1] < _BLIP_HOURS and hours - runs.begin_hours[first] < _REMEMBERED_HOURS:
            same, other = same + lengths[first - 2], other + lengths[first - 1]
            prevailed = same if same >= other else prevailed
            first -= 2
        age = hours - runs.begin_hours[now] + prevailed * _REMEMBERED_SHARE
        return cls(up=bool(runs.up[now]), age_hours=float(age))


def duration(rates: Floats, factor: Floats, generator: np.random.Generator) -> Floats:
    """One stretch of each run, whose rates are these times its factor."""
    hazard = generator.standard_exponential(len(factor)) / factor
    return np.minimum(hours_at_hazard(rates, hazard), 2 * GIVEN_UP_HOURS)


def first_stretch(
    process: SpotProcess, loss: Floats, back: Floats, generator: np.random.Generator, start: Start | None
) -> tuple[Floats, Floats]:
    """Hours until the first stint, and how long that one lasts; without a `start` at a random moment."""
    count = len(loss)
    fresh = duration(process.loss_per_hour, loss, generator)
    if start is not None:
        rates, factor = (process.loss_per_hour, loss) if start.up else (process.return_per_hour, back)
        age = np.array([max(start.age_hours, 0.0)])
        hazard = cumulative_hazard(rates, age) + generator.standard_exponential(count) / factor
        rest = np.minimum(hours_at_hazard(rates, hazard) - age, 2 * GIVEN_UP_HOURS)
        return (np.zeros(count), rest) if start.up else (rest, fresh)
    if process.availability == 1.0:
        return np.zeros(count), np.full(count, np.inf)
    up_rates, down_rates = np.outer(loss, process.loss_per_hour), np.outer(back, process.return_per_hour)
    up_hours, down_hours = moments_by_row(up_rates)[0], moments_by_row(down_rates)[0]
    up = generator.random(count) * (up_hours + down_hours) < up_hours
    rest = _rest(np.where(up[:, None], up_rates, down_rates), generator)
    return np.where(up, 0.0, rest), np.where(up, rest, fresh)


def _rest(rates: Floats, generator: np.random.Generator) -> Floats:
    """What is left of a stretch met at a random moment: its density falls as the chance to live so long does."""
    risk = np.maximum(rates, 1e-12)
    hazard = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(rates[:, :-1] * _WIDTHS[:-1], axis=1)], axis=1)
    ends = np.exp(-risk * _WIDTHS)
    areas = np.exp(-hazard) * (1 - ends) / risk
    upto = np.cumsum(areas, axis=1)
    at = generator.random(len(rates)) * upto[:, -1]
    bucket = np.minimum((at[:, None] >= upto).sum(axis=1), rates.shape[1] - 1)
    each = np.arange(len(rates))
    inside = (at - upto[each, bucket] + areas[each, bucket]) / areas[each, bucket]
    rest = -np.log1p(-inside * (1 - ends[each, bucket])) / risk[each, bucket]
    return np.asarray(np.minimum(AGE_EDGES_HOURS[bucket] + rest, 2 * GIVEN_UP_HOURS))
