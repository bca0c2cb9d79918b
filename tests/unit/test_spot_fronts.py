"""What a table leaves out is on no front, and the front with spot nodes is that of all zones."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import CATALOG, GIB, ONE, job, predictors

from planner.columns import Prediction
from planner.models.configurations import Configurations
from planner.search.candidates import offers_by_market, usual_batch
from planner.search.pricing import on_demand, spot_places, with_spot
from planner.search.spot_fronts import Mixes, spot_front
from planner.search.tables import unbeaten_rows
from planner.spot.mix import SpotMarkets
from planner.spot.rates.sources import SpotHistory

MARKETS = SpotMarkets(history=SpotHistory(), save_seconds=20.0, restart_seconds=300.0)
OFFERS = offers_by_market(CATALOG, ONE, ("near", "far"), 10.0 * GIB)
PLACES = spot_places(OFFERS["spot"], ONE, MARKETS)

rows = st.tuples(st.integers(1, 12), st.integers(1, 24), st.floats(0.02, 400), st.floats(0.0, 1.2))
many_rows = st.lists(rows, min_size=1, max_size=40)


def rows_of(described: list[tuple[int, int, float, float]]) -> tuple[Configurations, Prediction]:
    """Nodes, local batch, hours of work and the log width of these."""
    nodes, batch, hours, width = (np.array(column) for column in zip(*sorted(described), strict=True))
    configurations = Configurations.of(CATALOG, ONE, nodes=nodes, gpu_batch=batch, accumulation_steps=1)
    unknown = np.zeros(len(nodes), dtype=bool)
    return configurations, Prediction(
        p05=hours * np.exp(-width), p50=hours, p95=hours * np.exp(width), extrapolated=unknown
    )


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99])
@settings(max_examples=60, deadline=None)
@given(described=many_rows)
def test_rows_that_others_of_as_many_nodes_beat_are_on_no_front_on_demand(
    confidence: float, described: list[tuple[int, int, float, float]]
) -> None:
    configurations, work = rows_of(described)
    kept = unbeaten_rows(2 * configurations.nodes + usual_batch(configurations), work)
    every, few = (
        on_demand(rows, hours, OFFERS["on_demand"], predictors()).front(np.ones(len(rows), dtype=bool), confidence)
        for rows, hours in ((configurations, work), (configurations.at(kept), work.at(kept)))
    )
    assert few == every


@settings(max_examples=60, deadline=None)
@given(described=many_rows)
def test_the_front_with_spot_nodes_is_that_of_all_zones_and_bases(
    described: list[tuple[int, int, float, float]],
) -> None:
    mixes = Mixes.of(*rows_of(described), job().constraints)
    buy = partial(with_spot, markets=MARKETS, predictors=predictors())
    found = spot_front(mixes, PLACES, buy, 0.95)
    every = [row for place in PLACES for row in spot_front(mixes, [place], buy, 0.95)]
    assert found
    assert all(row in every for row in found)
    for row in every:
        assert any(one.hours_limit <= row.hours_limit and one.usd_limit <= row.usd_limit for one in found)


def test_of_equal_rows_the_first_is_kept_and_whoever_is_slower_and_known_no_better_is_not() -> None:
    work = Prediction(
        p05=np.ones(5),
        p50=np.array([2.0, 2.0, 3.0, 4.0, 9.0]),
        p95=np.array([7.0, 7.0, 6.0, 6.5, 9.0]),
        extrapolated=np.zeros(5, dtype=bool),
    )
    assert unbeaten_rows(np.array([1, 1, 1, 1, 2]), work).tolist() == [0, 2, 3, 4]
