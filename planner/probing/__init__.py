"""What to measure next, and how far the predictions can be trusted until then."""

from planner.probing.fit_report import FitReport, report_fit
from planner.probing.further_probe import FurtherProbe, further_probe
from planner.probing.leave_out import cross_validated_error
from planner.probing.probe_clusters import (
    ProbeCluster,
    missing_answers,
    probe_clusters,
    probe_variables,
    refuse_too_small_a_cap,
    still_to_measure,
)
from planner.probing.probe_plan import LOCAL, Probe, at_one_batch, container_probes, local_probes, missing, not_in
from planner.probing.sentences import convergence_source, not_worth, worth

__all__ = [
    "LOCAL",
    "FitReport",
    "FurtherProbe",
    "Probe",
    "ProbeCluster",
    "at_one_batch",
    "container_probes",
    "convergence_source",
    "cross_validated_error",
    "further_probe",
    "local_probes",
    "missing",
    "missing_answers",
    "not_in",
    "not_worth",
    "probe_clusters",
    "probe_variables",
    "refuse_too_small_a_cap",
    "report_fit",
    "still_to_measure",
    "worth",
]
