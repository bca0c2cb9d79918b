"""What a bound leaves out of the pricing of spot nodes must never be on the front."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import CATALOG, GIB, ONE, job, predictors

from planner.columns import Prediction
from planner.models.configurations import Configurations
from planner.search.candidates import offers_by_market
from planner.search.pricing import Priced, spot_places, with_spot
from planner.search.spot_fronts import Mixes, joint_front, spot_front
from planner.spot.mix import SpotMarkets
from planner.spot.rates.sources import SpotHistory

MARKETS = SpotMarkets(history=SpotHistory(), save_seconds=20.0, restart_seconds=300.0)
PLACES = spot_places(offers_by_market(CATALOG, ONE, ("near", "far"), 10.0 * GIB)["spot"], ONE, MARKETS)

rows = st.tuples(st.integers(1, 12), st.integers(1, 24), st.floats(0.02, 400), st.floats(0.0, 1.2))
many_rows = st.lists(rows, min_size=1, max_size=40)


def mixes_of(described: list[tuple[int, int, float, float]]) -> Mixes:
    """Nodes, local batch, hours of work and the log width of these."""
    nodes, batch, hours, width = (np.array(column) for column in zip(*sorted(described), strict=True))
    configurations = Configurations.of(CATALOG, ONE, nodes=nodes, gpu_batch=batch, accumulation_steps=1)
    unknown = np.zeros(len(nodes), dtype=bool)
    work = Prediction(p05=hours * np.exp(-width), p50=hours, p95=hours * np.exp(width), extrapolated=unknown)
    return Mixes.of(configurations, work, job().constraints)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99])
@settings(max_examples=60, deadline=None)
@given(described=many_rows)
def test_the_front_is_that_of_every_row_priced(
    confidence: float, described: list[tuple[int, int, float, float]]
) -> None:
    mixes, buy = mixes_of(described), partial(with_spot, markets=MARKETS, predictors=predictors())
    every = [mixes.priced(place, buy, np.arange(len(mixes.row))) for place in PLACES]
    assert spot_front(mixes, PLACES, buy, confidence) == joint_front(every, confidence)


def test_what_is_beaten_by_far_is_not_priced() -> None:
    # Two nodes take 1 h, one node 500 h with any batch: dearer and slower, however sure its hours were.
    mixes, priced = mixes_of([(2, 8, 1.0, 0.1), *((1, each, 500.0, 0.1) for each in range(1, 8))]), []

    def buy(*rented: object) -> Priced:
        bought = with_spot(*rented, markets=MARKETS, predictors=predictors())  # type: ignore[arg-type]
        priced.append(bought.configurations.nodes.tolist())
        return bought

    found = spot_front(mixes, PLACES, buy, 0.95)
    assert {row.nodes for row in found} == {2}
    assert all(set(nodes) == {2} for nodes in priced[len(PLACES) :])
