"""`scav adopt`: after Terraform was killed in the middle of an apply."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.confirm import confirm_spending
from planner.cli.options import workspace_argument


@click.command("adopt")
@workspace_argument
@click.option("--profile", help="AWS profile.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(workspace: Path, profile: str | None, yes: bool) -> None:
    """Finish an apply in DIR during which Terraform was killed.

    What it had created and not recorded is found in AWS by its name, shown, taken into the state if you agree, and the
    plan is applied to its end; `terraform destroy` then knows everything. After Ctrl-C this is only needed where
    applying again says that something exists already.
    """
    import os
    import tempfile

    from planner.errors import one_line
    from planner.outside import store
    from planner.outside.aws import Access, aws_errors
    from planner.outside.terraform import Workspace, adopting_plan

    plan = store.load_plan(workspace)
    access = Access.of_profile(profile, os.environ)
    terraform = Workspace(workspace, environment=access.environment)
    terraform.init()
    with (
        tempfile.TemporaryDirectory(prefix="scav-adopt-") as folder,
        aws_errors(plan.choice.region),
        adopting_plan(terraform, Path(folder) / "adopt.tfplan", access.clients(plan.choice.region)) as adoption,
    ):
        if not adoption.found:
            click.echo(f"Nothing to adopt: whatever exists of {workspace} is in its state")
            return
        for address, identity in sorted(adoption.found.items()):
            click.echo(f"  {one_line(address)}  {one_line(identity)}", err=True)
        what = (
            f"These exist and are not in the state of {workspace}; take them over only if no other workspace has the "
            f"same run_id. Then {adoption.plan.added} more are created."
        )
        confirm_spending(what, plan.estimate.usd.max, yes=yes)
        applied = terraform.apply(adoption.plan)
    click.echo(f"{workspace} is whole again: {len(adoption.found)} adopted, {applied.added} added")
