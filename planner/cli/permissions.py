"""`scav permissions`: the IAM policy of whoever applies a plan."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import workspace_argument


@click.command("permissions")
@workspace_argument
@click.option(
    "--read-only", is_flag=True, help="What `terraform plan` needs, for pull requests; it may change nothing."
)
@click.option(
    "--state", metavar="S3_URI", help="Where backend.tf keeps the state, s3://BUCKET/KEY, with its lock file."
)
def command(workspace: Path, read_only: bool, state: str | None) -> None:
    """Print the IAM policy that applying DIR takes, and nothing beyond.

    It holds for every run of the job, in the plan's region. What a key of your own, extra policies or a permissions
    boundary take is yours to add.
    """
    import json

    from planner.outside import store
    from planner.plan import iam_policy

    policy = iam_policy(store.load_plan(workspace), read_only=read_only, state=state)
    click.echo(json.dumps(policy, indent=2))
