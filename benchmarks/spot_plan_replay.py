"""The README's job, planned without a recording and replayed on every recording: deadlines missed and stated.

The plan is allowed spot nodes alone: left to itself it takes none for this job, and nothing can be missed. Deadlines
are stretched until a plan with spot nodes keeps them with the job's confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from spot_pooling import SHORTEST_HOURS

from planner.errors import InputError, NoFeasiblePlan
from planner.inputs import Trace
from planner.outside.input_files import load_plan_inputs
from planner.plan.build import make_plan
from planner.plan.spot import simulated_case
from planner.spot.simulation.capacity import Modelled, Recorded

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50-imagenet"
DEADLINES_HOURS = (24, 48, 96, 192)
RUNS, STATED_RUNS = 2_000, 20_000


def plan_replay_rows(traces: Sequence[Trace]) -> list[dict[str, object]]:
    """A row per deadline that can be kept: what the plan states, and what recordings of the gang's size or less did."""
    rows = []
    for deadline in DEADLINES_HOURS:
        limits = {"spot": "always", "deadline": f"{deadline}h", "budget": "$4000", "confidence": 0.8}
        try:
            plan = make_plan(load_plan_inputs(EXAMPLE, limits, None))
        except NoFeasiblePlan:
            continue
        case = simulated_case(plan)
        assert case is not None
        missed = []
        for trace in (trace for trace in traces if trace.hours >= SHORTEST_HOURS):
            try:
                missed.append(float(Recorded(trace, RUNS, 0).waiting(case).missed.mean()))
            except InputError:  # shorter than the deadline
                continue
        rows.append(
            {
                "plan": f"{case.on_demand_count} on demand + {case.spot_count} spot {plan.choice.instance_type}",
                "deadline_hours": deadline,
                "zones": len(missed),
                "stated_missed": float(Modelled(STATED_RUNS, 0).waiting(case).missed.mean()),
                "replayed_missed": fmean(missed),
                "worst_zone": max(missed),
            }
        )
    return rows
