"""The front of one instance type with spot nodes, over all bases and zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from planner.columns import Flags, Ints, Prediction
from planner.inputs import Constraints
from planner.models import Configurations
from planner.search.candidates import usual_batch
from planner.search.pricing import Candidate, Priced, SpotPlace, front_rows
from planner.spot import on_demand_bases

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


def spot_front(mixes: Mixes, places: Sequence[SpotPlace], buy: Buy, confidence: float) -> list[Candidate]:
    """What nothing of this type with spot nodes beats, wherever it is bought."""
    rows, work = mixes.configurations.at(mixes.row), mixes.work.at(mixes.row)
    bought = [buy(rows, work, place, mixes.base) for place in places]
    hours = np.concatenate([each.hours.quantile(confidence) for each in bought])
    usd = np.concatenate([each.usd.quantile(confidence) for each in bought])
    kept = front_rows(hours, usd, np.tile(usual_batch(rows), len(places)))
    place, row = np.divmod(kept, len(rows))
    return [one for index, each in enumerate(bought) for one in each.candidates(row[place == index], confidence)]
