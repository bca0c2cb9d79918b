"""Options of the commands that measure: `scav probe` and `scav tune`."""

from __future__ import annotations

from collections.abc import Sequence

import click

script_argument = click.argument("script", nargs=-1, type=click.UNPROCESSED)
place_option = click.option(
    "--on",
    "place",
    type=click.Choice(["local", "container", "ray", "aws"]),
    default="local",
    show_default=True,
    help="Where to measure: processes or containers on this machine, a Ray cluster that is there, or rented ones.",
)
ray_address_option = click.option(
    "--ray-address",
    default="auto",
    show_default=True,
    help="On ray: host:6379, or ray://host:10001 from outside; auto is what RAY_ADDRESS names, or what runs here.",
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
    help="On aws: give up on a cluster whose nodes have not reported by then. On ray: on one that has no room.",
)
profile_option = click.option("--profile", help="On aws: AWS profile.")
yes_option = click.option("-y", "--yes", is_flag=True, help="On aws: do not ask before spending.")


def placements(place: str, nodes: Sequence[int], workers: Sequence[int], group: int = 1) -> tuple[tuple[int, int], ...]:
    """Nodes, and workers on each; `group` of them hold one model together where the command line does not say."""
    is_named = click.get_current_context().get_parameter_source("workers") is not click.core.ParameterSource.DEFAULT
    if place == "container":
        return tuple((count, 1) for count in nodes)
    if place == "ray":
        return tuple((count, each) for count in nodes for each in (workers if is_named else (group,)))
    return tuple((1, count if is_named else count * group) for count in workers)
