"""The plan: what to rent, what it will take and cost, how sure that is, and why not something else."""

from planner.plan.build import PlanInputs, make_plan
from planner.plan.schema import Plan, format_plan, parse_plan

__all__ = ["Plan", "PlanInputs", "format_plan", "make_plan", "parse_plan"]
