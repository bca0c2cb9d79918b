"""Every candidate priced, and one chosen; DeepVM's rule as another way to choose."""

from planner.search.candidates import HOURS_PER_MONTH, Market, every_split, offers_by_market, root_volume_gib
from planner.search.decision import choose_candidate, cluster, simulated_choice
from planner.search.deepvm.rental import MEMORY_TYPES_SOURCE, DeepVm, Rental, ScalingOf
from planner.search.every_candidate import SearchResult, evaluate
from planner.search.pricing import STOP_SLACK_HOURS, Candidate
from planner.search.ranking import choose, excess, feasible, front, preference
from planner.search.simulated import SpotOutcome, configuration_of, simulated
from planner.search.survey import Survey, take_survey

__all__ = [
    "HOURS_PER_MONTH",
    "MEMORY_TYPES_SOURCE",
    "STOP_SLACK_HOURS",
    "Candidate",
    "DeepVm",
    "Market",
    "Rental",
    "ScalingOf",
    "SearchResult",
    "SpotOutcome",
    "Survey",
    "choose",
    "choose_candidate",
    "cluster",
    "configuration_of",
    "evaluate",
    "every_split",
    "excess",
    "feasible",
    "front",
    "offers_by_market",
    "preference",
    "root_volume_gib",
    "simulated",
    "simulated_choice",
    "take_survey",
]
