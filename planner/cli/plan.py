"""`scav plan`: from a job file to a Terraform workspace."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import catalog_option, job_argument, json_option

if TYPE_CHECKING:
    from planner.catalog import Catalog
    from planner.plan import Plan, PlanInputs


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
@click.option("--nodes", help="Replace the node range: 1..16.")
@click.option("--region", "regions", multiple=True, help="Replace the job's regions; repeatable, or all.")
@click.option("--instance-type", "instance_types", multiple=True, help="Replace the job's types: g5.*, A100:80GB:8.")
@catalog_option
@click.option(
    "--frozen", is_flag=True, envvar="SCAV_FROZEN", help="Keep the catalogue that the plan in --out was made with."
)
@click.option("--check", is_flag=True, help="Write nothing; exit 5 when --out does not follow from its inputs.")
@json_option
@click.option("--plot", is_flag=True, help="Draw hours against dollars of the Pareto front.")
def command(
    job: Path,
    out: Path,
    catalog_file: Path | None,
    frozen: bool,
    check: bool,
    as_json: bool,
    plot: bool,
    **overrides: Any,
) -> None:
    """Choose a cluster for JOB and write its Terraform workspace.

    JOB is a job file or the folder of a scav.yaml (default: here). Nothing is rented and no credentials are needed.
    """
    from planner import assets, store
    from planner.plan import format_plan, make_plan
    from planner.render import MODULE, WORKSPACE, render_workspace

    given = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in overrides.items()
        if value not in (None, ())
    }
    inputs = _inputs(job, given, catalog_file, out if frozen else None)
    plan = make_plan(inputs)
    files = render_workspace(
        plan,
        templates=assets.load_templates(WORKSPACE),
        module=assets.load_module(MODULE),
    )
    if check:
        _check(out, store.stale_files(out, files))
        return
    _refuse_another_job(out, plan)
    store.write_workspace(out, files)
    if as_json:
        click.echo(format_plan(plan), nl=False)
    else:
        _show(plan, out, len(files), plot)


def _inputs(job: Path, overrides: dict[str, Any], catalog_file: Path | None, frozen_to: Path | None) -> PlanInputs:
    from planner import store
    from planner.measurements import measured_noise_scale, usable
    from planner.plan import PlanInputs
    from planner.plan.schema import Inputs

    job_file = store.load_job(job, overrides)
    folder = Path(job_file.file).parent
    catalog, catalog_name, catalog_sha256 = _catalog(catalog_file, folder, frozen_to)
    measurements, measurements_sha256 = store.load_measurements(folder / store.MEASUREMENTS_FILE)
    known = usable(measurements.rows, catalog, job_file.job.workload.precision)
    for warning in (*measurements.warnings, *known.warnings):
        click.echo(f"Warning: {warning}", err=True)
    return PlanInputs(
        job_file=job_file,
        catalog=catalog,
        measurements=known.rows,
        provenance=Inputs(
            job_sha256=store.sha256(job_file.job.model_dump_json()),
            measurements_sha256=measurements_sha256,
            catalog_sha256=catalog_sha256,
            catalog=catalog_name,
            catalog_date=catalog.date,
        ),
        measured_noise=measured_noise_scale(measurements.rows),
    )


def _catalog(file: Path | None, folder: Path, frozen_to: Path | None) -> tuple[Catalog, str, str]:
    from planner import store
    from planner.errors import InputError

    if frozen_to is None or file is not None or not store.exists(frozen_to / store.PLAN_FILE):
        return store.load_catalog(file, beside=folder)
    earlier = store.load_plan(frozen_to).inputs
    found = store.load_catalog_by_hash(earlier.catalog_sha256, beside=folder)
    if found is None:
        message = (
            f"was planned with catalogue {earlier.catalog}, which is gone; plan without --frozen to take a new one"
        )
        raise InputError(message, file=str(frozen_to))
    return found


def _refuse_another_job(out: Path, plan: Plan) -> None:
    """Its state may stand for machines that run: planned over, the next apply would replace them."""
    from planner import store
    from planner.errors import InputError

    try:
        earlier = store.load_plan(out).job
    except InputError:  # nothing there, or nothing that this version can read
        return
    if earlier != plan.job:
        raise InputError(f"holds the plan of {earlier}; choose another folder with --out", file=str(out))


def _check(out: Path, stale: list[str]) -> None:
    from planner.errors import StaleWorkspace, one_line

    if stale:
        more = f" and {len(stale) - 5} more" if len(stale) > 5 else ""
        files = f"{', '.join(stale[:5])}{more}"
        raise StaleWorkspace(f"{one_line(str(out))} is out of date ({files}); run scav plan and commit the result")
    click.echo(f"{out} is up to date")


def _show(plan: Plan, out: Path, file_count: int, plot: bool) -> None:
    from planner.plan import questions_left
    from planner.review import plan_text

    click.echo(plan_text(plan))
    if plot:
        from planner.cli.pareto_plot import pareto_plot

        click.echo(pareto_plot(plan))
    questions = questions_left(plan)
    if questions:
        click.echo(f"Before apply, set in scav.yaml: {', '.join(questions)} (Terraform asks for what is missing)")
    terraform = f"terraform {shlex.quote(f'-chdir={out}')}"
    click.echo(f"Wrote {out}/ ({file_count} files). Next: {terraform} init && {terraform} plan")
