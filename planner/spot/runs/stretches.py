"""How long spot capacity is there and gone, drawn for many runs that each have their own rates."""

from __future__ import annotations

import numpy as np

from planner.columns import Floats
from planner.spot.rates.process import AGE_EDGES_HOURS, SpotProcess, hours_at_hazard, mean_by_row

GIVEN_UP_HOURS = 24.0 * 365
_WIDTHS = np.append(np.diff(AGE_EDGES_HOURS), np.inf)


def duration(rates: Floats, factor: Floats, generator: np.random.Generator) -> Floats:
    """One stretch of each run, whose rates are these times its factor."""
    hazard = generator.standard_exponential(len(factor)) / factor
    return np.minimum(hours_at_hazard(rates, hazard), 2 * GIVEN_UP_HOURS)


def first_stretch(
    process: SpotProcess, loss: Floats, back: Floats, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Hours until the first stint, and how long that one lasts, when the run starts at a random moment."""
    count = len(loss)
    fresh = duration(process.loss_per_hour, loss, generator)
    if process.availability == 1.0:
        return np.zeros(count), np.full(count, np.inf)
    up_rates, down_rates = np.outer(loss, process.loss_per_hour), np.outer(back, process.return_per_hour)
    up_hours, down_hours = mean_by_row(up_rates), mean_by_row(down_rates)
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
