"""`scav stop`: the end of a run by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.confirm import confirm
from planner.cli.options import workspace_argument

if TYPE_CHECKING:
    from planner.outside.run_reader import AppliedRun

_LEAVING_SECONDS = 240.0  # a node has two minutes for its last checkpoint, and AWS some to end it
_COPYING_SECONDS = 120.0  # as long as the nodes themselves wait until memory is copied to S3


@click.command("stop")
@workspace_argument
@click.option("--profile", help="AWS profile.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(workspace: Path, profile: str | None, yes: bool) -> None:
    """Stop the run of DIR now; checkpoints and logs stay.

    Shows what will happen and asks. The nodes get SIGTERM and time for a last checkpoint. Their group may have no nodes
    from then on, so that nothing brings them back before the next `terraform apply`.
    """
    import os
    import time

    from planner.outside import store
    from planner.outside.aws import Access
    from planner.outside.run_reader import applied_run
    from planner.plan import run_state
    from planner.units import counted, format_usd

    plan = store.load_plan(workspace)
    run = applied_run(workspace, plan, Access.of_profile(profile, os.environ))
    state = run_state(plan, run.look(time.time()))
    up = counted(state.nodes.up, "node")
    saved = state.checkpoint.newest or "none"
    what = (
        f"{plan.run_id} is {state.phase}, with {up} and {format_usd(state.usd.so_far)} spent; newest checkpoint: "
        f"{saved}. Its nodes end, and group {run.group} may have none any more."
    )
    confirm(what, yes=yes)
    _stop(run)
    click.echo(f"{plan.run_id} is stopped: {run.group} has a capacity and a maximum of 0, {up} leaving")
    click.echo(f"What stays, and costs a little: {run.checkpoint_uri}/ and log group {run.log_group}")
    click.echo(
        f"To go on: `terraform apply` in {workspace}, which gives the group its maximum back, and set its desired "
        f"capacity to {plan.choice.node_count}. To remove the rest: `terraform destroy`."
    )


def _stop(run: AppliedRun) -> None:
    """Memory nodes last: what the GPU nodes give them at their end has to reach S3. An interrupt does not save them."""
    import time

    for group in run.groups:
        run.empty(group)
    if run.memory_group is None:
        return
    try:
        until = time.monotonic() + _LEAVING_SECONDS
        if run.nodes_of(run.memory_group):
            click.echo("Memory nodes copy to S3 what they still hold; a few minutes", err=True)
            while run.nodes_of(run.group) and time.monotonic() < until:
                time.sleep(5)
            time.sleep(_COPYING_SECONDS)
    finally:
        run.empty(run.memory_group)
