"""`scav check`: does the Terraform plan of a pipeline still say what scav planned?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import json_option, workspace_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan import Comparison, Difference, Plan

VALUES_FILE = "terraform.tfvars.json"


@click.command("check")
@workspace_argument
@click.argument("plan_json", metavar="[PLAN_JSON]", type=click.Path(path_type=Path, allow_dash=True), required=False)
@json_option
def command(workspace: Path, plan_json: Path | None, as_json: bool) -> None:
    """Compare a Terraform plan with what scav planned in DIR; exit 4 when they differ.

    PLAN_JSON is what `terraform show -json PLAN_FILE` prints, or - for stdin. It is compared in every decision:
    types and their order, counts, the on-demand share, zone, volumes, image, command, the longest runtime; and what it
    holds beyond the module's own resources is listed. Without PLAN_JSON, DIR/terraform.tfvars.json is compared, which
    needs neither Terraform nor AWS.
    """
    from planner.errors import GuardrailExceeded
    from planner.outside import store
    from planner.plan import compare_terraform_plan, compare_values

    plan = store.load_plan(workspace)
    values = _load_json(workspace / VALUES_FILE)
    if plan_json is None:
        result, subject = compare_values(plan, values), VALUES_FILE
    else:
        declared, note = _declared(workspace, plan)
        result = compare_terraform_plan(plan, _load_json(plan_json), values=values, declared=declared)
        result, subject = result.model_copy(update={"unchecked": (*result.unchecked, *note)}), "the Terraform plan"
    result = result.model_copy(update={"differences": (*result.differences, *_edited_files(workspace, plan))})
    if as_json:
        click.echo(_as_json(result))
    else:
        _show(result, subject)
    if not result.equal:
        raise GuardrailExceeded(f"{subject} is not what scav planned: {_counts(result)}")


def _declared(workspace: Path, plan: Plan) -> tuple[frozenset[str], list[str]]:
    """The module's resources as scav wrote them: an edited copy in the workspace is no authority."""
    from planner import __version__
    from planner.outside import assets, store
    from planner.outside.render import MODULE
    from planner.plan import declared_resources

    if plan.scav_version == __version__:
        return declared_resources(assets.load_module(MODULE)), []
    folder = workspace / "modules" / MODULE
    texts = {path.name: store.load_text(path) for path in sorted(folder.glob("*.tf"))}
    note = f"resources added to {folder}: scav {plan.scav_version} wrote it and this is scav {__version__}"
    return declared_resources(texts), [note]


def _edited_files(workspace: Path, plan: Plan) -> list[Difference]:
    """The code around the values: an edited module may leave out what stops a run."""
    from planner import __version__
    from planner.outside import assets, store
    from planner.outside.render import MODULE, WORKSPACE, render_code, render_policy
    from planner.plan import Difference

    if plan.scav_version != __version__:
        return []
    code = render_code(plan.scav_version, templates=assets.load_templates(WORKSPACE), module=assets.load_module(MODULE))
    code |= render_policy(plan)
    return [
        Difference(name=f"file {name}", planned="as scav wrote it", found="edited, missing or added")
        for name in store.stale_files(workspace, code)
        if not name.endswith(".md")
    ]


def _load_json(path: Path) -> dict[str, Any]:
    import json
    import sys

    from planner.errors import InputError
    from planner.outside import store

    if str(path) == "-":
        name, text = "stdin", sys.stdin.buffer.read().decode("utf-8-sig", errors="replace")
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
