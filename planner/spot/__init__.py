"""Losing nodes: how often, for how long, what it costs a run, and how to keep a deadline all the same."""

from planner.spot.deadline.table import MODE_NAMES, PolicyTable
from planner.spot.deadline.world import ON_DEMAND, Moment
from planner.spot.mix import SpotMarkets, fallen_back, on_demand_bases
from planner.spot.price import SNAPSHOT_AGE_DAYS, spot_price_drift
from planner.spot.rates.process import AGE_EDGES_HOURS, AGES, SpotProcess
from planner.spot.rates.sources import SpotHistory, SpotSource
from planner.spot.simulation.case import Case
from planner.spot.simulation.case_runs import CaseRuns, simulate_case
from planner.spot.simulation.policies import THIS_PLAN, PolicyResult, compare
from planner.spot.slowdown import expected_losses

__all__ = [
    "AGES",
    "AGE_EDGES_HOURS",
    "MODE_NAMES",
    "ON_DEMAND",
    "SNAPSHOT_AGE_DAYS",
    "THIS_PLAN",
    "Case",
    "CaseRuns",
    "Moment",
    "PolicyResult",
    "PolicyTable",
    "SpotHistory",
    "SpotMarkets",
    "SpotProcess",
    "SpotSource",
    "compare",
    "expected_losses",
    "fallen_back",
    "on_demand_bases",
    "simulate_case",
    "spot_price_drift",
]
