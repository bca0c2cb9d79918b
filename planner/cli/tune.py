"""`scav tune`: measure, fit, decide, until the answer is good enough for its price."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import ScriptCommand, job_argument, refuse_options_of_other_places
from planner.cli.probe_options import (
    base_option,
    image_option,
    instance_types_option,
    max_cost_option,
    patience_option,
    place_option,
    placements,
    profile_option,
    ray_address_option,
    script_argument,
    spot_option,
    writes_steps_option,
    yes_option,
)

# Options that mean something in some places only; elsewhere they would be ignored without a word.
_PLACES_OF_OPTION = {
    "workers": ("local", "ray"),
    "nodes": ("container", "ray"),
    "ray_address": ("ray",),
    "image": ("container",),
    "base": ("container",),
    "writes_steps": ("local", "container"),
    "online": ("local",),
    "instance_types": ("aws",),
    "spot": ("aws",),
    "max_cost": ("aws",),
    "patience": ("ray", "aws"),
    "profile": ("aws",),
    "yes": ("aws",),
}
_MAX_DURATION = "10min"


@click.command("tune", cls=ScriptCommand)
@job_argument
@script_argument
@place_option
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1, 64),
    default=(1, 2),
    show_default=True,
    help="Processes that the job may be spread over, on ray of each node; repeatable. On ray, one if not named.",
)
@click.option(
    "--nodes",
    multiple=True,
    type=click.IntRange(1, 64),
    default=(1, 2),
    show_default=True,
    help="Containers, or nodes of a Ray cluster, that it may be spread over; repeatable.",
)
@click.option(
    "--online", is_flag=True, help="Measure in stretches of the real run, then train to its end with the best."
)
@ray_address_option
@image_option
@base_option
@writes_steps_option
@instance_types_option
@spot_option
@max_cost_option
@click.option("--max-duration", default=_MAX_DURATION, show_default=True, help="End a probe here that takes longer.")
@patience_option
@profile_option
@click.option("--dry-run", is_flag=True, help="Only print the first probes, on aws with their price.")
@yes_option
def command(
    job: Path,
    script: tuple[str, ...],
    place: str,
    workers: tuple[int, ...],
    nodes: tuple[int, ...],
    online: bool,
    ray_address: str,
    image: str | None,
    base: str | None,
    writes_steps: bool,
    instance_types: tuple[str, ...],
    spot: bool,
    max_cost: str,
    max_duration: str,
    patience: str,
    profile: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Measure JOB where that is worth most, until no probe repays its price.

    A few spread-out probes come first. Then come those that are expected to improve most on the best measured so far,
    for as long as that is worth more than measuring takes: dollars on aws, time elsewhere. The script is handed
    over as for `scav probe`. Nothing that was measured before is measured again, so that an interrupted search goes on
    where it was. With --online the script trains meanwhile: it saves and leaves on SIGTERM, as for spot nodes, and goes
    on from its checkpoint elsewhere. On aws nothing is rented before its price was shown and agreed to, and every
    cluster is destroyed.
    """
    from planner.cli.inputs import dollars, duration
    from planner.cli.probe_aws import AwsOptions, clean_up, say
    from planner.cli.probe_here import HereOptions
    from planner.errors import InputError
    from planner.outside import store

    refuse_options_of_other_places(_PLACES_OF_OPTION, place)
    patience_seconds = 3600 * duration("--patience", patience)
    if place != "aws":
        from planner.cli.tune_here import tune_here
        from planner.cli.tune_online import tune_online

        if online and writes_steps:
            raise InputError("has no meaning with --online, which trains a PyTorch script", key="--writes-steps")
        here = HereOptions(
            place=place,
            command=script,
            writes_steps=writes_steps,
            placements=placements(place, nodes, workers),
            ray_address=ray_address,
            patience_seconds=patience_seconds,
            image=image,
            base=base,
            samples_per_step=None,
            strategy=None,
            checkpoint=None,
            longest_seconds=3600 * duration("--max-duration", max_duration),
            force=False,
            dry_run=dry_run,
        )
        (tune_online if online else tune_here)(job, here)
        return
    from planner.cli.tune_aws import tune_on_aws

    if not dry_run and (cleaned := clean_up(Path(store.load_job(job, {}).file).parent, profile)):
        say(f"{cleaned} clusters of earlier probes destroyed")
    rented = AwsOptions(
        command=script,
        nodes=(),
        instance_types=instance_types,
        spot=spot,
        max_usd=dollars("--max-cost", max_cost),
        longest_seconds=None,
        patience_seconds=patience_seconds,
        profile=profile,
        force=False,
        dry_run=dry_run,
        yes=yes,
    )
    tune_on_aws(job, rented)
