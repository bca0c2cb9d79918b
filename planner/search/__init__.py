"""Every candidate priced, and one chosen; DeepVM's rule as another way to choose."""

from planner.search.candidates import (
    Market,
    batch_shares,
    every_split,
    offers_by_market,
    root_volume_gib,
    stored_sizes,
    volume_hourly_usd,
)
from planner.search.decision import Chosen, choose_candidate, cluster, simulated_choice
from planner.search.deepvm.rental import MEMORY_TYPES_SOURCE, DeepVm, Rental, ScalingOf
from planner.search.every_candidate import SearchResult, evaluate
from planner.search.micro_steps import step_seconds
from planner.search.mixed_gangs import MixedGang, best_mixed_gang
from planner.search.pricing import MAX_WAIT_HOURS, NEAR_TIE, STOP_SLACK_HOURS, Candidate
from planner.search.ranking import choose, feasible, front, preference
from planner.search.simulated import SpotOutcome, configuration_of, simulated
from planner.search.survey import Survey, take_survey
from planner.search.tables import Wanted, strategy_table

__all__ = [
    "MAX_WAIT_HOURS",
    "MEMORY_TYPES_SOURCE",
    "NEAR_TIE",
    "STOP_SLACK_HOURS",
    "Candidate",
    "Chosen",
    "DeepVm",
    "Market",
    "MixedGang",
    "Rental",
    "ScalingOf",
    "SearchResult",
    "SpotOutcome",
    "Survey",
    "Wanted",
    "batch_shares",
    "best_mixed_gang",
    "choose",
    "choose_candidate",
    "cluster",
    "configuration_of",
    "evaluate",
    "every_split",
    "feasible",
    "front",
    "offers_by_market",
    "preference",
    "root_volume_gib",
    "simulated",
    "simulated_choice",
    "step_seconds",
    "stored_sizes",
    "strategy_table",
    "take_survey",
    "volume_hourly_usd",
]
