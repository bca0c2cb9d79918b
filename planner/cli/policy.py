"""`scav policy`: what the cluster should be of right now, so that the deadline holds."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from planner.cli.options import json_option, workspace_argument

_NO_TIME = {"0", "0s", "0m", "0min", "0h", "0d"}


@click.command("policy")
@workspace_argument
@click.option(
    "--work-left",
    required=True,
    help="What may be left at most (p95), as hours of the whole cluster without losses: 12h.",
)
@click.option("--time-left", required=True, help="Until the deadline: 20h.")
@click.option("--spot", type=click.Choice(["there", "gone"]), required=True, help="Whether spot capacity is there.")
@click.option("--since", required=True, help="For how long it has been so: 30min.")
@click.option("--running", type=click.Choice(["spot", "on-demand", "nothing"]), required=True, help="What runs now.")
@json_option
def command(
    workspace: Path, work_left: str, time_left: str, spot: str, since: str, running: str, as_json: bool
) -> None:
    """Say whether DIR's cluster should run on spot or on-demand nodes now.

    Reads scav.policy.json, which scav plan writes when there are spot nodes and a deadline. A scheduled pipeline asks
    it every few minutes and applies the answer; nothing is changed here.
    """
    import json

    from planner.outside import store
    from planner.plan import POLICY_FILE, Running, parse_policy

    store.refuse_half_written(workspace)
    file = workspace / POLICY_FILE
    policy = parse_policy(store.load_text(file), file=str(file))
    modes: dict[str, Running] = {"spot": "spot", "on-demand": "on_demand", "nothing": "idle"}
    answer = policy.decide(
        work_left_hours=_duration("--work-left", work_left),
        time_left_hours=_duration("--time-left", time_left),
        spot_is_there=spot == "there",
        since_hours=_duration("--since", since),
        running=modes[running],
    )
    count = policy.on_demand_count[answer]
    if as_json:
        click.echo(json.dumps({"run_on": answer, "on_demand_count": count}))
        return
    what = {
        "spot": "spot, or wait for it",
        "on_demand": "on-demand: spot, or waiting for it, would be too late or cost more",
    }[answer]
    apply = f"terraform {shlex.quote(f'-chdir={workspace}')} apply -var on_demand_count={count}"
    click.echo(f"Run on {what}.\n{apply}")


def _duration(option: str, text: str) -> float:
    """In hours; unlike elsewhere none at all is one, since spot may be gone just now and the deadline be over."""
    from planner.cli.inputs import duration

    return 0.0 if text.strip() in _NO_TIME else duration(option, text)
