"""Terraform: the one place that runs it. What was reviewed is what is applied, and its state is never lost."""

from planner.terraform.events import Diagnostic, Progress
from planner.terraform.executable import Executable, fetch_version, find_executable
from planner.terraform.process import ENDING_SIGNALS
from planner.terraform.workspace import Applied, Output, PlanFile, Workspace

__all__ = [
    "ENDING_SIGNALS",
    "Applied",
    "Diagnostic",
    "Executable",
    "Output",
    "PlanFile",
    "Progress",
    "Workspace",
    "fetch_version",
    "find_executable",
]
