"""The plan: what to rent, what it will take and cost, how sure that is, and why not something else."""

from planner.plan.build import Outlook, PlanInputs, choose_candidate, look_out, make_plan
from planner.plan.policy import DeadlinePolicy, deadline_policy
from planner.plan.schema import Plan, format_plan, parse_plan
from planner.plan.spot import simulated_case
from planner.plan.variables import questions_left, workspace_variables

__all__ = [
    "DeadlinePolicy",
    "Outlook",
    "Plan",
    "PlanInputs",
    "choose_candidate",
    "deadline_policy",
    "format_plan",
    "look_out",
    "make_plan",
    "parse_plan",
    "questions_left",
    "simulated_case",
    "workspace_variables",
]
