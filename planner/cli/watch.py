"""`scav watch`: the run as it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options import workspace_argument

if TYPE_CHECKING:
    from planner.outside.run_reader import AppliedRun
    from planner.plan import Actuals, Plan, RunState

_REFUSED_LOOKS = 5  # in a row, each after botocore's own attempts


@click.command("watch")
@workspace_argument
@click.option("--once", is_flag=True, help="Look once and end.")
@click.option("--every", default="15s", show_default=True, help="How long to wait between two looks.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON at each look, as in a pipe.")
@click.option("--target-loss", type=float, help="What it is trained for: forecast samples, hours and dollars to it.")
@click.option("--profile", help="AWS profile.")
def command(
    workspace: Path, once: bool, every: str, as_json: bool, target_loss: float | None, profile: str | None
) -> None:
    """Watch the run of DIR: nodes, steps, hours and dollars beside what was planned.

    From the nodes' heartbeats in S3 and from their Auto Scaling group; nothing is changed. Steps, samples and loss are
    those that the job prints, as `step 120: loss 0.43` or `samples: 15360`. On a terminal the same few lines are drawn
    again and again; elsewhere each look is a line of JSON. With --target-loss the losses of all looks make a curve, and
    what that says of the end of the run stands beside the plan. Ends when the run has ended: with exit code 1 if it
    failed.
    """
    import os
    import time

    from planner.cli.inputs import duration
    from planner.errors import AwsFailed, ScavError
    from planner.outside import store
    from planner.outside.aws import Access
    from planner.outside.run_reader import applied_run
    from planner.plan import loss_outlook, run_state, watched_points

    plan = store.load_plan(workspace)
    seconds = duration("--every", every) * 3600
    run = applied_run(workspace, plan, Access.of_profile(profile, os.environ))
    refused, state = 0, None
    points: list[tuple[float, float]] = []
    with _shown(plan, in_json=as_json or not sys.stdout.isatty(), once=once) as draw:
        while True:
            try:
                state = run_state(plan, run.look(time.time()))
                refused = 0
                points = watched_points(points, state)
                draw(state, None if target_loss is None else loss_outlook(plan, state, points, target_loss))
            except AwsFailed as error:
                refused += 1
                if once or refused == _REFUSED_LOOKS:
                    raise
                click.echo(f"{error}; trying again", err=True)
            if once or (state is not None and state.over):
                break
            time.sleep(seconds)
    if state is not None and state.over:
        _say_the_end(plan, run, state)
        if state.phase == "failed":
            raise ScavError(f"{plan.run_id} failed: {state.reason}")


@contextmanager
def _shown(plan: Plan, *, in_json: bool, once: bool) -> Iterator[Callable[[RunState, Actuals | None], None]]:
    """The same lines drawn again on a terminal, which keeps the last of them."""
    from planner.plan import outlook_text, run_text

    def text(state: RunState, ahead: Actuals | None) -> str:
        return run_text(state) + ("" if ahead is None else outlook_text(plan, ahead))

    if in_json:
        yield lambda state, ahead: click.echo(_line(state, ahead))
    elif once:
        yield lambda state, ahead: click.echo(text(state, ahead), nl=False)
    else:
        from rich.live import Live
        from rich.text import Text

        from planner.cli.screen import screen

        with Live(console=screen(), auto_refresh=False) as live:
            yield lambda state, ahead: live.update(Text(text(state, ahead).rstrip("\n")), refresh=True)


def _line(state: RunState, ahead: Actuals | None) -> str:
    """As ever where nobody asked for a forecast."""
    if ahead is None:
        return state.model_dump_json()
    import json

    forecast = ahead.model_dump(mode="json", include={"loss", "ahead"})
    return json.dumps({**state.model_dump(mode="json"), "forecast": forecast})


def _say_the_end(plan: Plan, run: AppliedRun, state: RunState) -> None:
    where = {
        "succeeded": f"The trained model is in {run.checkpoint_uri}/",
        "stopped": f"Checkpoints are in {run.checkpoint_uri}/",
    }
    if state.phase in where:
        click.echo(
            f"{plan.run_id} has {state.phase.replace('stopped', 'been stopped')}. {where[state.phase]}", err=True
        )
