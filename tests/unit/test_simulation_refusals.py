"""What a simulation cannot be made of is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from test_simulation import DAY, recording

from planner.errors import InputError
from planner.inputs.traces import Trace
from planner.spot.simulation.case_runs import simulate_case
from planner.spot.simulation.policies import compare


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (recording([0]), "zone.json: no node was ever available in this trace: availability is zero"),
        (recording([4], hours=20.0), "zone.json: 20.0 h of recording are less than the deadline of 36.1 h"),
        (Trace(name="zone.json", tick_seconds=600.0, counts=np.array([], dtype=int)), "zone.json: the trace is empty"),
        (recording([4], prices=np.full(2400, -1.0)), "zone.json: a recorded price is not above 0"),
    ],
)
def test_a_trace_that_says_nothing_is_refused_in_one_line(trace, message):
    with pytest.raises(InputError, match=message):
        compare(DAY, runs=10, seed=0, trace=trace)


def test_no_runs_say_nothing():
    with pytest.raises(InputError, match="0 runs say nothing"):
        simulate_case(DAY, policy=None, runs=0, seed=0)
    assert len(simulate_case(DAY, policy=None, runs=1, seed=0).hours) == 1
