"""Spot nodes beside on-demand ones: which bases are worth comparing, and what losing spot nodes does to each.

What a loss costs depends on the zone, on how many nodes are spot and on how long the job takes to save and to restart,
not on the instance type: it is worked out once for each and looked up for every candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from planner.columns import Floats, Ints, Prediction
from planner.inputs import Constraints
from planner.models import intervals_seconds, saved_in_notice
from planner.spot.rates.sources import SpotHistory, SpotSource
from planner.spot.runs.work import SURVIVING_SHARE
from planner.spot.slowdown import SpotBurden, spot_slowdown

_MORE_BASES = (0.25, 0.5, 0.75)  # of the nodes; between them hours and dollars hardly differ


def on_demand_bases(nodes: Ints, constraints: Constraints) -> Iterator[Ints]:
    """How many nodes are on demand, for each node count: one column for each way to mix.

    -1 where a way leaves no spot node, or repeats an earlier one.

    One hosts the rendezvous and outlives the others, so that is where it starts: more only pay where a loss is dear.
    None at all only where the job asks for it, and for single nodes.
    """
    asked = constraints.on_demand_base
    if asked is not None:
        yield np.where(nodes > asked, asked, -1)
        return
    one = (nodes > 1).astype(np.int64)
    yield one
    before = one
    for share in _MORE_BASES:
        base = np.ceil(share * nodes).astype(np.int64)
        yield np.where((base > before) & (base < nodes), base, -1)
        before = np.maximum(base, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms:
    """Row i: how often a gang of that many spot nodes saves, and what being lost adds to its hours."""

    interval_seconds: Floats
    save_share: Floats
    unpaid_share: Floats  # of the hours that losses add
    burden: SpotBurden

    def at(self, rows: Ints) -> SpotTerms:
        return SpotTerms(
            interval_seconds=self.interval_seconds[rows],
            save_share=self.save_share[rows],
            unpaid_share=self.unpaid_share[rows],
            burden=self.burden.at(rows),
        )

    def slowdown(self, busy_hours: Floats) -> tuple[Prediction, Prediction]:
        """Wall hours over busy hours; and the same for the hours in which spot nodes are paid."""
        wall = spot_slowdown(busy_hours, self.burden)
        return wall, wall.scaled(1 - self.unpaid_share, shift=self.unpaid_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMarkets:
    """Terms by source and number of spot nodes, remembered: they are the same for every instance type."""

    history: SpotHistory
    save_seconds: float
    restart_seconds: float
    deadline_hours: float | None = None
    _known: dict[SpotSource, SpotTerms] = field(default_factory=dict)  # row i: i + 1 spot nodes

    @property
    def saves_on_notice(self) -> bool:
        return saved_in_notice(self.save_seconds)

    def terms(self, source: SpotSource, spot_nodes: Ints) -> SpotTerms:
        most = int(spot_nodes.max(initial=1))
        if source not in self._known or len(self._known[source].interval_seconds) < most:
            self._known[source] = self._terms(source, 1 + np.arange(most))
        return self._known[source].at(np.maximum(spot_nodes, 1) - 1)

    def _terms(self, source: SpotSource, spot_nodes: Ints) -> SpotTerms:
        rates = source.rates(spot_nodes)
        interval = intervals_seconds(
            self.save_seconds,
            rates.mean_up_hours,
            uses_notice=self.saves_on_notice,
            deadline_hours=self.deadline_hours,
        )
        burden = SpotBurden.of(
            rates,
            interval_hours=(interval + self.save_seconds) / 3600,
            restart_hours=self.restart_seconds / 3600,
            saves_on_notice=self.saves_on_notice,
        )
        survivors = np.where(spot_nodes > 1, SURVIVING_SHARE, 0.0)
        return SpotTerms(
            interval_seconds=interval,
            save_share=self.save_seconds / interval,
            unpaid_share=burden.waiting_share * (1 - survivors),
            burden=burden,
        )


def fallen_back(
    hours: Prediction, usd: Prediction, busy: Prediction, latest_hours: Floats, on_demand_usd: Floats
) -> tuple[Prediction, Prediction]:
    """Hours and dollars when on-demand nodes take over in time to be done in `latest_hours`.

    A run that would end later uses up its slack on spot, at the pace it has there, and does the rest on demand.
    """
    later, dearer = {}, {}
    for name in ("p05", "p50", "p95"):
        wall, need, cost = (getattr(column, name) for column in (hours, busy, usd))
        pace = np.minimum(need / wall, 1 - 1e-9)
        on_spot = np.maximum(latest_hours - need, 0.0) / (1 - pace)
        late = wall > latest_hours
        later[name] = np.where(late, np.maximum(latest_hours, need), wall)
        share = np.where(late, on_spot / wall, 1.0)
        dearer[name] = cost * share + np.where(late, (need - pace * on_spot) * on_demand_usd, 0.0)
    for low, high in (("p05", "p50"), ("p50", "p95")):  # on demand from the start may cost the less the longer it takes
        dearer[high] = np.maximum(dearer[low], dearer[high])
    return (
        Prediction(**later, extrapolated=hours.extrapolated),
        Prediction(**dearer, extrapolated=usd.extrapolated),
    )
