"""`scav doctor`: what is installed, and what to do about what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planner.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.outside.doctor import Finding


@click.command("doctor")
@click.option("--online", is_flag=True, help="Also ask AWS who you are and Terraform's registry for its provider.")
@click.option("--profile", help="AWS profile.")
@json_option
def command(online: bool, profile: str | None, as_json: bool) -> None:
    """Report what scav finds on this machine, and what is missing.

    Exits 0 when planning works; Terraform, a container engine and AWS credentials are needed only later. Nothing is
    asked of the network without --online, and no secret is printed.
    """
    import datetime
    import json

    from planner.errors import ScavError
    from planner.outside.doctor import examine
    from planner.provider.installation import state_of_installation

    today = datetime.datetime.now(datetime.UTC).date()
    findings = [*examine(today=today, online=online, profile=profile), state_of_installation()]
    if as_json:
        click.echo(json.dumps({"findings": [finding.as_json() for finding in findings]}, indent=2))
    else:
        _show(findings)
    broken = [finding.name for finding in findings if finding.needed_to_plan and not finding.ok]
    if broken:
        raise ScavError(f"planning does not work here: {', '.join(broken)}")


def _show(findings: Sequence[Finding]) -> None:
    from planner.plan import table

    rows = [("ok" if item.ok else "missing", item.name, item.found) for item in findings]
    todo = {index: item.to_do for index, item in enumerate(findings) if item.to_do}
    for index, line in enumerate(table(rows, "<<<")):
        click.echo(line)
        if index in todo:
            click.echo(f"         -> {todo[index]}")
