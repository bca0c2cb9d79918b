"""`scav review`: what a plan will cost, for a person, a pull request or a gate."""

from __future__ import annotations

import math
from pathlib import Path

import click

from planner.cli.options import format_option, verbose_option, workspace_argument


def _finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """NaN passes click's ranges, and no cost exceeds it: a gate that lets everything through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("must be a finite number")
    return value


POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command("review")
@workspace_argument
@format_option
@click.option("--max-usd", type=POSITIVE, callback=_finite, help="Exit 4 when the p95 dollars exceed this.")
@click.option("--max-hours", type=POSITIVE, callback=_finite, help="Exit 4 when the p95 hours exceed this.")
@click.option(
    "--max-possible-usd", type=POSITIVE, callback=_finite, help="Exit 4 when the most it can cost exceeds this."
)
@click.option("--against", metavar="DIR", type=click.Path(path_type=Path), help="Show what changed since this plan.")
@verbose_option
def command(workspace: Path, form: str, against: Path | None, verbose: bool, **limits: float | None) -> None:
    """Review the cost of the plan in DIR.

    Prices that moved by more than half since the catalogue that scav brings along are named. Variables that do
    not follow from the plan, and files that are not as scav wrote them, end it with exit code 5.
    """
    from planner.cli.screen import show
    from planner.errors import GuardrailExceeded
    from planner.outside import store
    from planner.outside.inspection import refuse_edited
    from planner.outside.price_check import check_prices
    from planner.plan import cost_markdown, exceeded, review_cost, review_page

    plan = store.load_plan(workspace)
    refuse_edited(workspace, plan)
    other = store.load_plan(against) if against else None
    cost = review_cost(plan, **limits, against=other, prices=check_prices(workspace, plan))
    if form == "json":
        click.echo(cost.model_dump_json(indent=2))
    elif form == "markdown":
        click.echo(cost_markdown(plan, cost), nl=False)
    else:
        show(review_page(plan, cost, verbose=verbose))
    if broken := exceeded(cost):
        raise GuardrailExceeded("; ".join(broken))
