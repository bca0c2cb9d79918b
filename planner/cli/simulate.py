"""`scav simulate`: the plan lived through by the thousand, beside other ways to buy the same cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import Trace
    from planner.plan import Plan
    from planner.spot import Case, PolicyResult

WIDTH = 80
MOST_RUNS = 5_000_000  # a few gigabytes


@click.command("simulate")
@click.argument("workspace", metavar="DIR", type=click.Path(path_type=Path), default="scav-plan", required=False)
@click.option(
    "--runs",
    type=click.IntRange(1, MOST_RUNS),
    default=100_000,
    show_default=True,
    help="How many runs; where they take long, fewer: as many as the table says.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same result.")
@click.option(
    "--trace",
    "trace_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Recorded spot capacity to replay instead of the model: JSON as in skypilot-org/spot-traces.",
)
@click.option(
    "--svg",
    "svg_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw the histograms to a file too. Needs scav-planner[report].",
)
@json_option
def command(
    workspace: Path, runs: int, seed: int, trace_file: Path | None, svg_file: Path | None, as_json: bool
) -> None:
    """Simulate the plan in DIR: hours, dollars, lost spot nodes and missed deadlines.

    Beside the plan stand all on-demand, all spot, DeepVM's single anchor and, with a deadline, greedy, uniform
    progress (Can't Be Late) and whoever knows all capacity in advance, as the limit. All meet the same work, prices
    and losses. Below the table: how dollars and hours of the plan are spread. A ">" stands before what is more than
    that, since so many runs were given up.
    """
    from planner.cli import simulation_plot
    from planner.errors import InputError
    from planner.outside import store
    from planner.plan import on_demand_case, simulated_case
    from planner.spot import THIS_PLAN, compare

    plan = store.load_plan(workspace)
    trace = store.load_trace(trace_file) if trace_file else None
    if svg_file is not None and svg_file.suffix != ".svg":
        raise InputError("must end in .svg", key="--svg")
    case = simulated_case(plan)
    fallback = plan.spot is not None and plan.spot.counts_on_fallback
    results = compare(case or on_demand_case(plan), runs=runs, seed=seed, trace=trace, fallback=fallback)
    own = next((result for result in results if result.name == THIS_PLAN), results[0])
    if svg_file:
        simulation_plot.write_histograms(svg_file, plan.job, own)
    if as_json:
        click.echo(_json(plan, trace, seed, results))
        return
    table = _table(results, plan.constraints.deadline_hours is not None)
    lines = [*_heading(plan, case, trace, seed), "", *table, "", *_notes(results), ""]
    click.echo("\n".join(lines) + "\n" + simulation_plot.histograms(own), nl=False)


def _heading(plan: Plan, case: Case | None, trace: Trace | None, seed: int) -> list[str]:
    from planner.plan import mix_text
    from planner.units import format_hours, format_percent

    choice, deadline = plan.choice, plan.constraints.deadline_hours
    mix = mix_text(choice.on_demand_count, choice.node_count)
    lines = [f"{plan.job}: {choice.node_count} x {choice.instance_type}, {mix}, {choice.region}"]
    if case is not None and plan.spot is not None:
        market, minutes = plan.spot.market, choice.checkpoint_interval_seconds / 60
        recorded = f"recorded in {trace.name}, {format_hours(trace.hours)}" if trace else market.source
        lost = f"lost every {format_hours(market.hours_between_losses)}, there {format_percent(market.availability)}"
        lines += [f"spot capacity: {recorded}" + ("" if trace else f"; {lost} of the time")]
        lines += [f"checkpoint every {minutes:.0f} min, saved in {plan.spot.save_seconds:.0f} s"]
    limit = f"; deadline {format_hours(deadline.limit)}" if deadline else ""
    lines += [f"seed {seed}{limit}"]
    return _wrapped(lines)


def _table(results: Sequence[PolicyResult], has_deadline: bool) -> list[str]:
    from planner.plan import table

    heading = ("", "p05 h", "p50 h", "p95 h", "p50 $", "p95 $", "losses", "missed", "runs")
    return table([heading, *(_row(result, has_deadline) for result in results)], "<>>>>>>>>")


def _row(result: PolicyResult, has_deadline: bool) -> tuple[str, ...]:
    from planner.plan import hours_cell
    from planner.units import format_usd

    runs, share = result.runs, float((~result.runs.finished).mean())
    more = [">" if share > 0 and share >= rest else "" for rest in (0.95, 0.5, 0.05)]
    dollars = [mark + format_usd(usd).removeprefix("$") for mark, usd in zip(more, runs.usd_quantiles, strict=True)]
    hours = [
        mark + hours_cell(value) if runs.hours_are_known else "-"
        for mark, value in zip(more, runs.hours_quantiles, strict=True)
    ]
    losses = f"{runs.losses.mean():.1f}" if runs.hours_are_known else "-"
    # To a tenth: a whole percent is more than one wants to miss.
    missed = f"{100 * runs.missed.mean():.1f} %" if has_deadline else "-"
    return (result.name, *hours, *dollars[1:], losses, missed, f"{runs.count:,}")


def _notes(results: Sequence[PolicyResult]) -> list[str]:
    return _wrapped([f"{result.name}: {result.note}" for result in results if result.note])


def _wrapped(lines: Sequence[str]) -> list[str]:
    import textwrap

    from planner.errors import printable

    return [part for line in lines for part in textwrap.wrap(printable(line), WIDTH, subsequent_indent="  ")]


def _json(plan: Plan, trace: Trace | None, seed: int, results: Sequence[PolicyResult]) -> str:
    import json

    from planner.contract import six_digits

    deadline = plan.constraints.deadline_hours
    document: dict[str, Any] = {
        "schema_version": 1,
        "job": plan.job,
        "run_id": plan.run_id,
        "seed": seed,
        "trace": trace.name if trace else None,
        "deadline_hours": deadline.limit if deadline else None,
        "policies": [_policy(result, deadline is not None) for result in results],
    }
    return json.dumps(six_digits(document), indent=2, ensure_ascii=False)


def _policy(result: PolicyResult, has_deadline: bool) -> dict[str, Any]:
    runs = result.runs
    known = runs.hours_are_known  # the omniscient's are not
    return {
        "policy": result.name,
        "runs": runs.count,
        "hours": runs.hours_quantiles._asdict() if known else None,
        "usd": runs.usd_quantiles._asdict(),
        "mean_usd": float(runs.usd.mean()),
        "losses": float(runs.losses.mean()) if known else None,
        "rework_hours": float(runs.rework_hours.mean()) if known else None,
        "waiting_hours": float(runs.waiting_hours.mean()) if known else None,
        "deadline_misses": float(runs.missed.mean()) if has_deadline else None,
        "unfinished": int((~runs.finished).sum()),
        "note": result.note,
    }
