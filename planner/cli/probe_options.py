"""Options of the commands that measure: `scav probe` and `scav tune`."""

from __future__ import annotations

import click

script_argument = click.argument("script", nargs=-1, type=click.UNPROCESSED)
place_option = click.option(
    "--on",
    "place",
    type=click.Choice(["local", "container", "aws"]),
    default="local",
    show_default=True,
    help="Where to measure: processes on this machine, containers on it, or small rented clusters.",
)
image_option = click.option(
    "--image", help="A container image built from probes/Containerfile, instead of building one."
)
base_option = click.option("--base", help="The image to build on, instead of a deep learning container of AWS.")
writes_steps_option = click.option(
    "--writes-steps", is_flag=True, help="For any program: it writes its step times to SCAV_PROBE_STEPS."
)
instance_types_option = click.option(
    "--instance-type",
    "instance_types",
    multiple=True,
    help="On aws: replace the job's types, g5.* or A100:80GB:8; of them the three most promising families.",
)
spot_option = click.option("--spot", is_flag=True, help="On aws: measure on spot nodes.")
max_cost_option = click.option(
    "--max-cost", default="$25", show_default=True, help="On aws: never spend more, whatever happens."
)
patience_option = click.option(
    "--patience",
    default="10min",
    show_default=True,
    help="On aws: give up on a cluster whose nodes have not reported by then.",
)
profile_option = click.option("--profile", help="On aws: AWS profile.")
yes_option = click.option("-y", "--yes", is_flag=True, help="On aws: do not ask before spending.")
