"""`scav check`: does the Terraform plan of a pipeline still say what scav planned?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import json_option, module_source_option, workspace_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan import Comparison, Difference, Plan

VALUES_FILE = "terraform.tfvars.json"


@click.command("check")
@workspace_argument
@click.argument("plan_json", metavar="[PLAN_JSON]", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option(
    "--allow",
    metavar="FILE",
    multiple=True,
    help="Another file of yours that Terraform may read in DIR, beside backend.tf and site.auto.tfvars; repeatable.",
)
@click.option("--allow-price-changes", is_flag=True, help="Accept prices that moved by more than half.")
@module_source_option
@json_option
def command(
    workspace: Path,
    plan_json: Path | None,
    allow: tuple[str, ...],
    allow_price_changes: bool,
    module_source: str | None,
    as_json: bool,
) -> None:
    """Compare a Terraform plan with what scav planned in DIR; exit 4 when they differ.

    PLAN_JSON is what `terraform show -json PLAN_FILE` prints, or - for stdin. It is compared in every decision:
    types and their order, counts, the on-demand share, zone, volumes, image, command, the longest runtime; and what it
    holds beyond the module's own resources is listed. Without PLAN_JSON, DIR/terraform.tfvars.json is compared, which
    needs neither Terraform nor AWS.

    Either way, files are named that Terraform reads and scav did not write, and prices that moved by more than half
    since the catalogue that scav brings along.
    """
    from planner.errors import GuardrailExceeded
    from planner.outside import store
    from planner.outside.inspection import inspect_files, module_resources
    from planner.plan import compare_terraform_plan, compare_values

    plan = store.load_plan(workspace)
    values = _load_json(workspace / VALUES_FILE)
    notes: list[str] = []
    if plan_json is None:
        result, subject = compare_values(plan, values), VALUES_FILE
    else:
        declared, notes = module_resources(workspace, plan)
        result = compare_terraform_plan(plan, _load_json(plan_json), values=values, declared=declared)
        subject = "the Terraform plan"
    files = inspect_files(workspace, plan, {Path(name).as_posix() for name in allow}, module_source)
    prices, unknown = _prices(workspace, plan)
    result = result.model_copy(
        update={
            "differences": (*result.differences, *files.differences, *(() if allow_price_changes else prices)),
            "unasked": (*result.unasked, *files.unasked),
            "unchecked": (*result.unchecked, *notes, *unknown),
        }
    )
    if as_json:
        click.echo(_as_json(result))
    else:
        _show(result, subject)
    if not result.equal:
        raise GuardrailExceeded(f"{subject} is not what scav planned: {_counts(result)}")


def _prices(workspace: Path, plan: Plan) -> tuple[list[Difference], list[str]]:
    """Those that moved far, and what there was nothing to compare with."""
    from planner.outside.price_check import check_prices
    from planner.plan import price_differences, price_notes

    found = check_prices(workspace, plan)
    return price_differences(found), price_notes(plan, found)


def _load_json(path: Path) -> dict[str, Any]:
    import json
    import sys

    from planner.errors import InputError
    from planner.outside import store

    if str(path) == "-":
        name = "stdin"
        text = store.read_bounded(sys.stdin.buffer, name).decode("utf-8-sig", errors="replace")
    else:
        name, text = str(path), store.load_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=name) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", file=name)
    return value


def _show(result: Comparison, subject: str) -> None:
    from planner.plan import table

    if result.equal:
        click.echo(f"{result.run_id}: {subject} is what scav planned ({result.compared} values compared)")
    if result.differences:
        heading = ("", "planned by scav", "in " + subject)
        rows = [(item.name, item.planned, item.found) for item in result.differences]
        click.echo("\n".join(table([heading, *_printable(rows)], "<<<")))
    if result.unasked:
        click.echo(("\n" if result.differences else "") + "Not asked for by scav")
        click.echo(
            "\n".join(
                f"  {address}  ({what})"
                for address, what in _printable([(item.address, item.what) for item in result.unasked])
            )
        )
    for line in result.unchecked:
        click.echo(f"Not checked: {line}", err=True)


def _printable(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Names and values come from files that anybody may have written."""
    from planner.errors import one_line

    return [tuple(one_line(cell, 80) for cell in row) for row in rows]


def _counts(result: Comparison) -> str:
    different, unasked = len(result.differences), len(result.unasked)
    parts = [f"{different} difference{'s' * (different > 1)}"] if different else []
    parts += [f"{unasked} not asked for"] if unasked else []
    return ", ".join(parts)


def _as_json(result: Comparison) -> str:
    import json

    return json.dumps({"equal": result.equal, **result.model_dump(mode="json")}, indent=2, ensure_ascii=False)
