"""`scav logs`: what the job printed, and what the nodes did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import workspace_argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.outside.run_reader import LogLine


@click.command("logs")
@workspace_argument
@click.option("--lines", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many of the last.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new ones until the run has ended.")
@click.option("--node", metavar="INSTANCE", help="Of this node only, as i-0123456789abcdef0.")
@click.option("--agent", is_flag=True, help="What the nodes did, instead of what the job printed.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as JSON.")
@click.option("--profile", help="AWS profile.")
def command(
    workspace: Path, lines: int, follow: bool, node: str | None, agent: bool, as_json: bool, profile: str | None
) -> None:
    """Print what the job of DIR has printed on its nodes.

    From the run's log group in CloudWatch, which keeps it when the nodes are gone; nothing is changed.
    """
    import os
    import time

    from planner.outside import store
    from planner.outside.aws import Access
    from planner.outside.run_reader import LogTail, applied_run
    from planner.plan import run_state

    plan = store.load_plan(workspace)
    run = applied_run(workspace, plan, Access.of_profile(profile, os.environ))
    tail = LogTail(run=run, kind="node" if agent else "train", node=node)
    found = tail.last(lines)
    _show(found, as_json)
    if not found and not follow:
        click.echo("Nothing was printed yet", err=True)
    while follow:
        over = run_state(plan, run.look(time.time())).over
        _show(tail.since(), as_json)  # after the look, so that the last words are not missed
        if over:
            break
        time.sleep(5)


def _show(lines: Iterable[LogLine], as_json: bool) -> None:
    import json
    from datetime import UTC, datetime

    from planner.errors import printable_lines

    for line in lines:
        if as_json:
            click.echo(json.dumps(line._asdict(), ensure_ascii=False))
        else:
            at = datetime.fromtimestamp(line.time, UTC)
            click.echo(f"{at:%H:%M:%S} {line.stream.partition('/')[0]}  {printable_lines(line.text.rstrip())}")
