"""`scav plan`: from a job file to a Terraform workspace."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.inputs import load_inputs, warn
from planner.cli.options import (
    catalog_option,
    history_option,
    job_argument,
    json_option,
    module_source_option,
    spot_history_age_option,
    spot_history_option,
    verbose_option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.inputs import PlanInputs
    from planner.plan import Plan
    from planner.search import Survey


@click.command("plan")
@job_argument
@click.option(
    "--out", type=click.Path(path_type=Path), default="scav-plan", show_default=True, help="Workspace to write."
)
@click.option("--deadline", help="Replace the job's deadline: 24h, 1d12h.")
@click.option("--budget", help="Replace the job's budget: $400.")
@click.option("--confidence", type=float, help="Replace the probability with which limits must be kept.")
@click.option("--objective", type=click.Choice(["cost", "time", "knee"]), help="Replace the job's objective.")
@click.option("--spot", type=click.Choice(["never", "auto", "always"]), help="Replace the job's spot policy.")
@click.option(
    "--on-demand-base", type=click.IntRange(0, 1024), help="Exactly so many on-demand nodes beside the spot ones."
)
@click.option(
    "--on-demand-fallback/--no-on-demand-fallback",
    default=None,
    help="Let on-demand nodes take over from spot nodes before a deadline is missed, and count on that.",
)
@click.option("--nodes", help="Replace the node range: 1..16.")
@click.option("--region", "regions", multiple=True, help="Replace the job's regions; repeatable, or all.")
@click.option("--instance-type", "instance_types", multiple=True, help="Replace the job's types: g5.*, A100:80GB:8.")
@click.option(
    "--policy",
    type=click.Choice(["scav", "deepvm"]),
    default="scav",
    show_default=True,
    help="Who chooses: scav by the whole run, DeepVM (arXiv 2403.05861) by an hourly budget.",
)
@click.option("--hourly-budget", metavar="USD", help="What --policy deepvm may spend on machines in an hour: 3.")
@catalog_option
@history_option
@spot_history_option
@spot_history_age_option
@module_source_option
@click.option(
    "--frozen", is_flag=True, envvar="SCAV_FROZEN", help="Keep the catalogue that the plan in --out was made with."
)
@click.option(
    "--force", is_flag=True, help="Do not ask before edits by hand, or a plan that is in a state, are planned over."
)
@click.option("--check", is_flag=True, help="Write nothing; exit 5 when --out does not follow from its inputs.")
@json_option
@verbose_option
@click.option("--plot", is_flag=True, help="Draw hours against dollars, and name the points.")
def command(
    job: Path,
    out: Path,
    catalog_file: Path | None,
    history: Path | None,
    spot_history: Path | None,
    spot_history_age: str | None,
    module_source: str | None,
    frozen: bool,
    force: bool,
    check: bool,
    as_json: bool,
    verbose: bool,
    plot: bool,
    policy: str,
    hourly_budget: str | None,
    **overrides: Any,
) -> None:
    """Choose a cluster for JOB and write its Terraform workspace.

    JOB is a job file or the folder of a scav.yaml (default: here). Nothing is rented and no credentials are needed.
    """
    from planner.outside import store, workspace_files
    from planner.plan import format_plan
    from planner.search import take_survey

    hourly_usd = _hourly_usd(policy, hourly_budget)
    if check:
        store.refuse_half_written(out)
    else:
        workspace_files.finish_interrupted(out)
    inputs = load_inputs(
        job,
        _given(overrides),
        catalog_file,
        history=history,
        spot_history=spot_history,
        spot_history_age=spot_history_age,
        frozen_to=out if frozen else None,
    )
    survey = take_survey(inputs)
    warn(survey.models.warnings)
    plan = _planned(inputs, survey, hourly_usd)
    files = _rendered(plan, inputs, module_source)
    if check:
        _check(out, workspace_files.stale_files(out, files))
        return
    _refuse_another_job(out, plan)
    _ask_before_planning_over(out, files, force=force)
    warn(_left_alone(workspace_files.write_workspace(out, files)))
    if as_json:
        click.echo(format_plan(plan), nl=False)
    else:
        _show(plan, verbose=verbose, plot=plot)
        _next_steps(plan, out, len(files) + 1)  # with the list of them


def _given(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The options that somebody used."""
    used = {key: value for key, value in overrides.items() if value not in (None, ())}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in used.items()}


def _rendered(plan: Plan, inputs: PlanInputs, module_source: str | None) -> dict[str, str]:
    from planner.outside import assets
    from planner.outside.render import MODULE, WORKSPACE, render_workspace
    from planner.outside.source import load_source

    file, source = Path(inputs.job_file.file), inputs.job_file.job.run.source
    return render_workspace(
        plan,
        templates=assets.load_templates(WORKSPACE),
        module=assets.load_module(MODULE),
        source=load_source(file.parent / source) if source else None,
        module_source=module_source,
    )


def _planned(inputs: PlanInputs, survey: Survey, hourly_usd: float | None) -> Plan:
    if hourly_usd is None:
        from planner.plan import make_plan

        return make_plan(inputs, survey)
    from planner.plan import make_deepvm_plan  # takes as long to import as the rest takes to plan

    return make_deepvm_plan(inputs, survey, hourly_usd)


def _hourly_usd(policy: str, hourly_budget: str | None) -> float | None:
    """None where scav itself chooses."""
    from planner.errors import InputError
    from planner.units import parse_usd

    if policy != "deepvm" and hourly_budget is not None:
        raise InputError("--hourly-budget is for --policy deepvm; add that, or limit the whole run with --budget")
    if policy != "deepvm":
        return None
    if hourly_budget is None:
        raise InputError("--policy deepvm spends an hourly budget; add for example --hourly-budget 3")
    try:
        return parse_usd(hourly_budget)
    except ValueError as error:
        raise InputError(str(error), key="--hourly-budget") from None


def _refuse_another_job(out: Path, plan: Plan) -> None:
    """Its state may stand for machines that run: planned over, the next apply would replace them."""
    from planner.errors import InputError
    from planner.outside import store

    try:
        earlier = store.load_plan(out).job
    except InputError:  # nothing there, or nothing that this version can read
        return
    if earlier != plan.job:
        raise InputError(f"holds the plan of {earlier}; choose another folder with --out", file=str(out))


def _ask_before_planning_over(out: Path, files: Mapping[str, str], *, force: bool) -> None:
    from planner.cli.confirm import confirm
    from planner.errors import one_line
    from planner.outside.in_use import what_is_in_use

    found = what_is_in_use(out, files)
    warn(found.warnings)
    if found.questions:
        confirm(one_line(f"{out}: {'; '.join(found.questions)}.", 600), yes=force, option="--force")


def _check(out: Path, stale: list[str]) -> None:
    from planner.outside import store

    if stale:
        store.refuse_stale(out, "is out of date", stale)
    click.echo(f"{out} is up to date")


def _left_alone(files: list[str]) -> list[str]:
    """Where Terraform reads them they are part of what it builds, which `scav check` refuses."""
    from planner.errors import one_line

    return [f"left alone what scav did not write: {one_line(', '.join(files))}; remove it if it is not yours"][
        : len(files)
    ]


def _show(plan: Plan, *, verbose: bool, plot: bool) -> None:
    from planner.cli.screen import screen, show
    from planner.plan import plan_page

    show(plan_page(plan, verbose=verbose))
    if plot:
        from planner.cli.pareto_plot import pareto_plot

        click.echo()
        click.echo(pareto_plot(plan, screen().width), nl=False)


def _next_steps(plan: Plan, out: Path, file_count: int) -> None:
    from planner.cli.screen import show
    from planner.plan import questions_left

    click.echo()
    for question in questions_left(plan):
        show(f"Before apply, set in scav.yaml {question}")
    terraform = f"terraform {shlex.quote(f'-chdir={out}')}"
    click.echo(f"Wrote {out}/ ({file_count} files). Next:")
    click.echo(f"  {terraform} init")
    click.echo(f"  {terraform} plan")
