"""Terraform: the one place that runs it. What was reviewed is what is applied, and its state is never lost."""

from planner.outside.terraform.adopt import adopting_plan
from planner.outside.terraform.executable import find_executable
from planner.outside.terraform.workspace import Workspace

__all__ = [
    "Workspace",
    "adopting_plan",
    "find_executable",
]
