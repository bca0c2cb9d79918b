"""A recording pays: whoever records a zone that is mostly there does not see plans leave it for an unknown one."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_world import ONE, catalog, job, offer, predictors, sure

from planner.errors import NoFeasiblePlan
from planner.inputs import PlanInputs, Provenance, Recording, Trace
from planner.inputs.job.parse import JobFile
from planner.models.fitted import fit_models
from planner.search.decision import choose_candidate
from planner.search.every_candidate import search
from planner.search.pricing import Candidate
from planner.search.survey import Survey
from planner.spot.mix import SpotMarkets
from planner.spot.rates.sources import SpotHistory

HASH = "0" * 64
ZONES = {"near-az1": 0.4, "near-az2": 0.4, "near-az3": 0.4}


def chosen(asked, sold, history, *, work_hours, save_seconds) -> Candidate | None:
    """What a plan takes, losses simulated; None where nothing keeps the limits."""
    markets = SpotMarkets(
        history=history,
        save_seconds=save_seconds,
        restart_seconds=300.0 + save_seconds,
        deadline_hours=asked.constraints.deadline_hours,
    )
    seconds = work_hours * 3600 / 9_000

    def step_seconds(rows):
        return sure(*(seconds * (1 + 0.1 * rows.nodes)))

    known = predictors(step_seconds=step_seconds, startup_seconds=300.0, spot_markets=markets)
    hashes = {"job_sha256": HASH, "measurements_sha256": None, "catalog_sha256": HASH}
    inputs = PlanInputs(
        job_file=JobFile(job=asked, file="scav.yaml", lines={}),
        catalog=sold,
        measurements=(),
        provenance=Provenance(**hashes, catalog="test", catalog_date=sold.date),
    )
    found = search(asked, sold, [ONE], ("near",), known)
    models = fit_models(asked, sold, ())
    survey = Survey(instance_types=[ONE], regions=("near",), models=models, predictors=known, found=found)
    try:
        with patch("planner.search.simulated.RUNS", 1_000):  # who is worse at every age is so in every run
            return choose_candidate(inputs, survey).candidate
    except NoFeasiblePlan:
        return None


blocks = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=12)


@st.composite
def good_recordings(draw):
    """There for more than 0.8 of the time, in stretches of any length, of one to four nodes."""
    nodes = draw(st.integers(1, 4))
    counts = [count for up, down in draw(blocks) for count in [nodes] * up + [draw(st.integers(0, nodes - 1))] * down]
    counts = np.array(counts * draw(st.integers(2, 20)))
    missing = float((counts < nodes).mean())
    if missing >= 0.2:
        counts = np.append(counts, np.full(int(len(counts) * (5 * missing - 0.9)), nodes))
    trace = Trace(name="zone", tick_seconds=draw(st.sampled_from([60.0, 600.0, 3600.0])), counts=counts)
    assume(trace.gang().mean() > 0.8)
    return Recording(trace, draw(st.sampled_from([0.0, 24.0, 720.0])))


@settings(max_examples=40, deadline=None)
@given(
    recording=good_recordings(),
    interruption_class=st.sampled_from([None, 0, 1, 2, 3, 4]),
    work_hours=st.floats(0.5, 300.0),
    save_seconds=st.sampled_from([2.0, 20.0, 300.0]),
    nodes=st.sampled_from(["1..1", "1..4", "2..4"]),
    confidence=st.sampled_from([0.5, 0.8, 0.95, 0.99]),
    slack=st.sampled_from([None, 1.3, 2.0, 10.0]),
    objective=st.sampled_from(["cost", "time", "knee"]),
    spot=st.sampled_from(["auto", "always"]),
)
def test_a_zone_that_was_recorded_well_is_not_left_for_an_unknown_one_of_the_same_price(
    recording, interruption_class, work_hours, save_seconds, nodes, confidence, slack, objective, spot
):
    limits = {} if slack is None else {"deadline": f"{slack * work_hours:.2f}h"}
    asked = job({"nodes": nodes, "confidence": confidence, "spot": spot, "regions": ["near"], **limits}, objective)
    sold = catalog(offer("g1.one", "near", 1.0, ZONES, interruption_class=interruption_class))
    more = {"work_hours": work_hours, "save_seconds": save_seconds}
    before = chosen(asked, sold, SpotHistory(), **more)
    if before is None or before.market != "spot":
        return
    after = chosen(asked, sold, SpotHistory(recordings={("g1.one", before.zone): recording}), **more)
    assert after is None or after.market != "spot" or after.zone == before.zone


@pytest.mark.parametrize("zone", sorted(ZONES))
def test_a_good_recording_draws_a_plan_into_its_zone(zone):
    there = Trace(name="zone", tick_seconds=600.0, counts=np.array(([1] * 140 + [0] * 4) * 7))
    sold = catalog(offer("g1.one", "near", 1.0, ZONES, interruption_class=0))
    asked = job({"nodes": "1..1", "regions": ["near"], "spot": "always"})
    history = SpotHistory(recordings={("g1.one", zone): Recording(there)})
    after = chosen(asked, sold, history, work_hours=24.0, save_seconds=20.0)
    before = chosen(asked, sold, SpotHistory(), work_hours=24.0, save_seconds=20.0)
    assert after is not None
    assert before is not None
    assert after.zone == zone
    assert after.usd_limit < before.usd_limit
    assert after._replace(zone=before.zone) != before
