"""The front of one instance type with spot nodes, over all bases and zones, without pricing most of its rows.

As many nodes cost the same an hour and are lost as often, whatever their batch. So no row of a node count is faster or
cheaper than one that had the least work of them all and knew it best. That bound is priced first, with each base in
each zone, beside the row that has the least work. Where such a row beats the bound of another node count, base or
zone, nothing there can win, and only the rest is priced row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.columns import Flags, Floats, Ints, Prediction
from planner.inputs import Constraints
from planner.models import Configurations
from planner.search.candidates import usual_batch
from planner.search.pricing import Candidate, Priced, SpotPlace, front_rows, with_handicap
from planner.spot import on_demand_bases

_ROUNDING = 1e-9  # a bound is lower by so much, lest it lose to a row that equals it
# Above it a quantile lies beyond the p95, where a narrower interval may outweigh more work: nothing is left out then.
_MOST_BOUNDED_CONFIDENCE = 0.95

Buy = Callable[[Configurations, Prediction, SpotPlace, Ints], Priced]  # these rows, there, with so many on demand


class Mixes(NamedTuple):
    """Configurations, and of each pair of a row and a base the two."""

    configurations: Configurations
    work: Prediction
    row: Ints
    base: Ints

    @classmethod
    def of(cls, configurations: Configurations, work: Prediction, constraints: Constraints) -> Mixes:
        """Every base that is worth comparing."""
        counts = np.arange(1 + configurations.nodes.max(initial=0))
        base = np.stack(list(on_demand_bases(counts, constraints)))[:, configurations.nodes]
        return cls(configurations, work, np.nonzero(base >= 0)[1], base[base >= 0])

    def at(self, pairs: Flags) -> Mixes:
        return self._replace(row=self.row[pairs], base=self.base[pairs])

    def priced(self, place: SpotPlace, buy: Buy, pairs: Ints | Flags) -> Priced:
        row = self.row[pairs]
        return buy(self.configurations.at(row), self.work.at(row), place, self.base[pairs])


def spot_front(mixes: Mixes, places: Sequence[SpotPlace], buy: Buy, confidence: float) -> list[Candidate]:
    """What nothing of this type with spot nodes beats, wherever it is bought."""
    if confidence > _MOST_BOUNDED_CONFIDENCE:
        return joint_front([mixes.priced(place, buy, np.arange(len(mixes.row))) for place in places], confidence)
    worth_pricing = zip(places, _worth_pricing(mixes, places, buy, confidence), strict=True)
    return joint_front([mixes.priced(place, buy, pairs) for place, pairs in worth_pricing if pairs.any()], confidence)


def joint_front(bought: Sequence[Priced], confidence: float) -> list[Candidate]:
    """Of what is bought in several places: what nothing beats, in any of them."""
    hours, usd, usual = _columns(bought, confidence)
    kept = front_rows(hours, usd, usual)
    ends = np.cumsum([len(each.offer) for each in bought])
    parts = [kept[(kept >= end - len(each.offer)) & (kept < end)] for each, end in zip(bought, ends, strict=True)]
    return [
        row
        for each, end, part in zip(bought, ends, parts, strict=True)
        for row in each.candidates(part - (end - len(each.offer)), confidence)
    ]


def _columns(bought: Sequence[Priced], confidence: float) -> tuple[Floats, Floats, Flags]:
    """Hours and dollars at the asked confidence, and whether people would run it."""
    return (
        np.concatenate([each.hours.quantile(confidence) for each in bought]),
        np.concatenate([each.usd.quantile(confidence) for each in bought]),
        np.concatenate([usual_batch(each.configurations) for each in bought]),
    )


def _worth_pricing(mixes: Mixes, places: Sequence[SpotPlace], buy: Buy, confidence: float) -> list[Flags]:
    """Of each place, the pairs of a row and a base whose bound no row beats."""
    both, group_of_pair = _bounds_of(mixes)
    bought = [both.priced(place, buy, np.arange(len(both.row))) for place in places]
    columns, shape = _columns(bought, confidence), (len(places), 2, -1)
    hours, usd, usual = columns[0].reshape(shape), columns[1].reshape(shape), columns[2].reshape(shape)
    worth = np.zeros(hours[:, 0].size, dtype=bool)
    for compared_hours, compared_usd in ((hours, usd), with_handicap(hours, usd, usual)):
        bound_hours, least_hours = _bound_and_least(compared_hours)
        bound_usd, least_usd = _bound_and_least(compared_usd)
        worth |= ~_beaten(bound_hours, bound_usd, least_hours, least_usd)
    return [part[group_of_pair] for part in np.split(worth, len(places))]


def _bounds_of(mixes: Mixes) -> tuple[Mixes, Ints]:
    """Of each node count, kind of batch and base the bound, then of each the row with the least work.

    And which of these every pair belongs to.
    """
    nodes, usual = mixes.configurations.nodes, usual_batch(mixes.configurations)
    kinds, kind = np.unique(2 * nodes + usual, return_inverse=True)
    order = np.lexsort((mixes.work.p50, kind))
    first = order[np.searchsorted(kind[order], np.arange(len(kinds)))]
    width = np.full(len(kinds), np.inf)
    np.minimum.at(width, kind, mixes.work.p95 / mixes.work.p50)
    least = mixes.work.at(first)
    work = Prediction(
        p05=np.concatenate([least.p50, least.p05]),
        p50=np.tile(least.p50, 2),
        p95=np.concatenate([least.p50 * width, least.p95]),
        extrapolated=np.tile(least.extrapolated, 2),
    )
    bases = 1 + int(mixes.base.max(initial=0))
    keys, group_of_pair = np.unique(kind[mixes.row] * bases + mixes.base, return_inverse=True)
    row, base = np.divmod(keys, bases)
    twice = mixes.configurations.at(np.tile(first, 2))
    return Mixes(twice, work, np.concatenate([row, len(first) + row]), np.tile(base, 2)), group_of_pair


def _bound_and_least(column: Floats) -> tuple[Floats, Floats]:
    return column[:, 0].ravel() * (1 - _ROUNDING), column[:, 1].ravel()


def _beaten(hours: Floats, usd: Floats, by_hours: Floats, by_usd: Floats) -> Flags:
    """Whether one of the others is as fast and as cheap."""
    order = np.lexsort((by_usd, by_hours))
    cheapest = np.minimum.accumulate(by_usd[order])
    place = np.searchsorted(by_hours[order], hours, side="right") - 1
    return np.asarray((place >= 0) & (cheapest[place] <= usd))
