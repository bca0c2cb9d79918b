"""How far the predictions of a job can be trusted, what limits them, and which measurement would help most."""

from planner.evaluation.further_probe import FurtherProbe, further_probe
from planner.evaluation.leave_out import HeldOut, cross_validated_error, error_table, hold_out
from planner.evaluation.limits import accuracy_limits

__all__ = [
    "FurtherProbe",
    "HeldOut",
    "accuracy_limits",
    "cross_validated_error",
    "error_table",
    "further_probe",
    "hold_out",
]
