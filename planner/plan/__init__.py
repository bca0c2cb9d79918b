"""The decision written down, reviewed, and checked against what Terraform would do."""

from planner.plan.actuals.comparison import Actuals, compare
from planner.plan.actuals.history_text import history_entry, history_list
from planner.plan.actuals.ledger import (
    Outcome,
    coverage,
    ended_before,
    is_known,
    merged,
    oddities,
    outcome,
    parse_outcomes,
)
from planner.plan.actuals.other_jobs import other_jobs_text
from planner.plan.actuals.outlook import loss_outlook, watched_points
from planner.plan.actuals.run import MetricTarget, ObservedRun, metric_curve, parse_metric_target
from planner.plan.actuals.text import actuals_markdown, actuals_text, outlook_text
from planner.plan.build import make_plan
from planner.plan.check.comparison import Comparison, Difference, Unasked, compare_values, difference
from planner.plan.check.files import decided_elsewhere, is_read_by_terraform, unknown_files
from planner.plan.check.terraform_plan import compare_terraform_plan, declared_resources
from planner.plan.deepvm import make_deepvm_plan
from planner.plan.forecast import Forecast, format_forecasts, predict_one, sweep_batch, sweep_nodes
from planner.plan.forecast_request import ForecastRequest, Named, forecast_request
from planner.plan.manifest import MANIFEST_FILE, format_manifest, parse_manifest, sha256_of
from planner.plan.memory_report import (
    MemoryQuestion,
    asked_training,
    doubts_of,
    flat_rows,
    format_memory,
    memory_reports,
)
from planner.plan.mixed_forecast import forecast_mixed, mixed_json, mixed_text
from planner.plan.permissions import iam_policy
from planner.plan.policy import Running, deadline_policy, parse_policy
from planner.plan.prices import PriceComparison, compare_prices, price_differences, price_notes
from planner.plan.ratios import hours_cell
from planner.plan.review.cost import Cost, exceeded, review_cost
from planner.plan.review.decision import compared, quantile_heading
from planner.plan.review.fit_text import fit_text
from planner.plan.review.forecast_text import forecast_text, sweep_text
from planner.plan.review.lines import WIDTH, mix_text, table
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.memory_text import flat_table, memory_table, memory_text
from planner.plan.review.page import page_text, plan_page, review_page
from planner.plan.review.run_text import run_text
from planner.plan.run_state import FAILURE, START, SUCCESS, NodeLife, RunState, Seen, run_state
from planner.plan.schema import Plan, format_plan, parse_plan
from planner.plan.spot import on_demand_case, simulated_case
from planner.plan.variables import POLICY_FILE, questions_left, workspace_variables

__all__ = [
    "FAILURE",
    "MANIFEST_FILE",
    "POLICY_FILE",
    "START",
    "SUCCESS",
    "WIDTH",
    "Actuals",
    "Comparison",
    "Cost",
    "Difference",
    "Forecast",
    "ForecastRequest",
    "MemoryQuestion",
    "MetricTarget",
    "Named",
    "NodeLife",
    "ObservedRun",
    "Outcome",
    "Plan",
    "PriceComparison",
    "RunState",
    "Running",
    "Seen",
    "Unasked",
    "actuals_markdown",
    "actuals_text",
    "asked_training",
    "compare",
    "compare_prices",
    "compare_terraform_plan",
    "compare_values",
    "compared",
    "cost_markdown",
    "coverage",
    "deadline_policy",
    "decided_elsewhere",
    "declared_resources",
    "difference",
    "doubts_of",
    "ended_before",
    "exceeded",
    "fit_text",
    "flat_rows",
    "flat_table",
    "forecast_mixed",
    "forecast_request",
    "forecast_text",
    "format_forecasts",
    "format_manifest",
    "format_memory",
    "format_plan",
    "history_entry",
    "history_list",
    "hours_cell",
    "iam_policy",
    "is_known",
    "is_read_by_terraform",
    "loss_outlook",
    "make_deepvm_plan",
    "make_plan",
    "memory_reports",
    "memory_table",
    "memory_text",
    "merged",
    "metric_curve",
    "mix_text",
    "mixed_json",
    "mixed_text",
    "oddities",
    "on_demand_case",
    "other_jobs_text",
    "outcome",
    "outlook_text",
    "page_text",
    "parse_manifest",
    "parse_metric_target",
    "parse_outcomes",
    "parse_plan",
    "parse_policy",
    "plan_page",
    "predict_one",
    "price_differences",
    "price_notes",
    "quantile_heading",
    "questions_left",
    "review_cost",
    "review_page",
    "run_state",
    "run_text",
    "sha256_of",
    "simulated_case",
    "sweep_batch",
    "sweep_nodes",
    "sweep_text",
    "table",
    "unknown_files",
    "watched_points",
    "workspace_variables",
]
