"""The cost review of a plan: for a person, for a pull request, for a policy gate."""

from planner.review.cost import Change, Cost, Guardrail, exceeded, review_cost
from planner.review.markdown import cost_markdown
from planner.review.text import plan_text, review_text

__all__ = [
    "Change",
    "Cost",
    "Guardrail",
    "cost_markdown",
    "exceeded",
    "plan_text",
    "review_cost",
    "review_text",
]
