"""What to measure next, and how far the predictions can be trusted until then."""

from planner.probing.fit_report import FitReport, report_fit
from planner.probing.further_probe import FurtherProbe, further_probe
from planner.probing.leave_out import cross_validated_error
from planner.probing.next_probe import Belief, Visit, best_measured, by_cluster, probe_in_turn
from planner.probing.online_run import OnlineRun
from planner.probing.probe_clusters import (
    ProbeCluster,
    missing_answers,
    probe_clusters,
    probe_variables,
    refuse_too_small_a_cap,
    still_to_measure,
)
from planner.probing.probe_plan import (
    Probe,
    at_one_batch,
    missing,
    not_in,
    probe_of,
    spread_probes,
    workers_of_a_model,
)
from planner.probing.sentences import convergence_source, not_worth, worth
from planner.probing.stretches import (
    Stretch,
    fault_of_last,
    parse_stretches,
    stuck_learning_rate,
    trained_samples,
)
from planner.probing.tuning import RentedSpace, rented_space
from planner.probing.tuning_here import ChoiceHere, SpaceHere
from planner.probing.tuning_online import WINDOW_STEPS, WINDOWS

__all__ = [
    "WINDOWS",
    "WINDOW_STEPS",
    "Belief",
    "ChoiceHere",
    "FitReport",
    "FurtherProbe",
    "OnlineRun",
    "Probe",
    "ProbeCluster",
    "RentedSpace",
    "SpaceHere",
    "Stretch",
    "Visit",
    "at_one_batch",
    "best_measured",
    "by_cluster",
    "convergence_source",
    "cross_validated_error",
    "fault_of_last",
    "further_probe",
    "missing",
    "missing_answers",
    "not_in",
    "not_worth",
    "parse_stretches",
    "probe_clusters",
    "probe_in_turn",
    "probe_of",
    "probe_variables",
    "refuse_too_small_a_cap",
    "rented_space",
    "report_fit",
    "spread_probes",
    "still_to_measure",
    "stuck_learning_rate",
    "trained_samples",
    "workers_of_a_model",
    "worth",
]
