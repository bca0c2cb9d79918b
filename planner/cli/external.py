"""`scav external`: the plan for Terraform's `data "external"`."""

from __future__ import annotations

import click


@click.command("external")
def command() -> None:
    """Answer Terraform's `data "external"` with a plan.

    For machines on which no provider can be installed; elsewhere `scav provider` is the better way: this plans anew
    whenever Terraform asks. It reads a JSON object of texts, the attributes of scav_plan, and writes one; lists and
    `variables` are JSON in a text.
    """
    import json
    import sys

    from planner.cli.inputs import warn
    from planner.outside.store import read_bounded
    from planner.provider.external import answered

    answer, warnings = answered(read_bounded(sys.stdin.buffer, "query").decode(errors="replace"))
    warn(warnings)
    click.echo(json.dumps(answer, sort_keys=True))
