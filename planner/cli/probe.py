"""`scav probe`: measure the job's own training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

# Options that mean something in some places only; elsewhere they would be ignored without a word.
_PLACES_OF_OPTION = {
    "workers": ("local",),
    "nodes": ("container", "aws"),
    "image": ("container",),
    "base": ("container",),
    "writes_steps": ("local", "container"),
    "samples_per_step": ("local", "container"),
    "instance_types": ("aws",),
    "spot": ("aws",),
    "max_cost": ("aws",),
    "patience": ("aws",),
    "yes": ("aws",),
}
_NODES = {"container": (1, 2), "aws": (1, 2, 4)}
_MAX_DURATION = "10min"


@click.command("probe", context_settings={"ignore_unknown_options": False})
@click.argument("job", type=click.Path(path_type=Path), default=".", required=False)
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--on",
    "place",
    type=click.Choice(["local", "container", "aws"]),
    default="local",
    show_default=True,
    help="Where to measure: processes on this machine, containers on it, or small rented clusters.",
)
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1, 64),
    default=(1, 2),
    show_default=True,
    help="Processes to spread the job over; repeatable.",
)
@click.option(
    "--nodes",
    multiple=True,
    type=click.IntRange(1, 64),
    help="Containers or machines to spread the job over; repeatable. [default: 1, 2; on aws also 4]",
)
@click.option("--image", help="A container image built from probes/Containerfile, instead of building one.")
@click.option("--base", help="The image to build on, instead of a deep learning container of AWS.")
@click.option("--writes-steps", is_flag=True, help="For any program: it writes its step times to SCAV_PROBE_STEPS.")
@click.option(
    "--samples-per-step",
    metavar="N|asked",
    help="Where samples cannot be counted: the script's own per process and optimizer step, or as many as asked for.",
)
@click.option(
    "--instance-type",
    "instance_types",
    multiple=True,
    help="On aws: replace the job's types, g5.* or A100:80GB:8; of them the three most promising families.",
)
@click.option("--spot", is_flag=True, help="On aws: measure on spot nodes.")
@click.option("--max-cost", default="$25", show_default=True, help="On aws: never spend more, whatever happens.")
@click.option(
    "--max-duration",
    help="End a probe, on aws a cluster, that takes longer. [default: 10min, on aws about twice what is expected]",
)
@click.option(
    "--patience",
    default="10min",
    show_default=True,
    help="On aws: give up on a cluster whose nodes have not reported by then.",
)
@click.option("--profile", help="On aws: AWS profile.")
@click.option("--cleanup", is_flag=True, help="Only destroy what earlier probes of JOB left running on AWS.")
@click.option("--dry-run", is_flag=True, help="Only print the probes that would be run, on aws with price and time.")
@click.option("-y", "--yes", is_flag=True, help="On aws: do not ask before spending.")
def command(
    job: Path,
    script: tuple[str, ...],
    place: str,
    workers: tuple[int, ...],
    nodes: tuple[int, ...],
    image: str | None,
    base: str | None,
    writes_steps: bool,
    samples_per_step: str | None,
    instance_types: tuple[str, ...],
    spot: bool,
    max_cost: str,
    max_duration: str | None,
    patience: str,
    profile: str | None,
    cleanup: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Measure the training of JOB and append to its measurements.jsonl.

    The script is run.command of the job file, or what follows `--`: scav probe my-job -- train.py --batch {gpu_batch}.
    It is run unchanged under torchrun and gets its batch size by placeholders in the command ({gpu_batch},
    {accumulation_steps}, {global_batch}, {lr_scale}) or from SCAV_GPU_BATCH. Its samples are counted: a script that
    trains with another batch is refused. It is ended when enough steps were measured; what was measured before is not
    repeated.

    On aws nothing is rented before its price was shown and agreed to, and every cluster is destroyed when it is done,
    fails or is interrupted; what a killed scav left behind, the next `scav probe` destroys first.
    """
    from planner.cli.probe_aws import AwsOptions, clean_up, list_leftovers, probe_on_aws
    from planner.cli.probe_here import HereOptions, probe_here
    from planner.errors import InputError
    from planner.outside import store
    from planner.units import parse_hours, parse_usd

    _refuse_options_of_other_places(place)

    def parsed(parse: Callable[[object], float], key: str, value: str) -> float:
        try:
            return parse(value)
        except ValueError as error:
            raise InputError(str(error), key=key) from None

    longest_seconds = 3600 * parsed(parse_hours, "--max-duration", max_duration or _MAX_DURATION)
    folder = Path(store.load_job(job, {}).file).parent
    if dry_run:
        for leftover in list_leftovers(folder):
            click.echo(f"{leftover} would be destroyed: an earlier probe left it behind")
    elif (cleaned := clean_up(folder, profile)) or cleanup:
        click.echo(f"{cleaned} clusters of earlier probes destroyed", err=True)
    if cleanup:
        return
    if place == "aws":
        probe_on_aws(
            job,
            AwsOptions(
                command=script,
                nodes=nodes or _NODES[place],
                instance_types=instance_types,
                spot=spot,
                max_usd=parsed(parse_usd, "--max-cost", max_cost),
                longest_seconds=longest_seconds if max_duration else None,
                patience_seconds=3600 * parsed(parse_hours, "--patience", patience),
                profile=profile,
                dry_run=dry_run,
                yes=yes,
            ),
        )
    else:
        probe_here(
            job,
            HereOptions(
                in_containers=place == "container",
                command=script,
                writes_steps=writes_steps,
                counts=workers if place == "local" else nodes or _NODES[place],
                image=image,
                base=base,
                samples_per_step=samples_per_step,
                longest_seconds=longest_seconds,
                dry_run=dry_run,
            ),
        )


def _refuse_options_of_other_places(place: str) -> None:
    from planner.errors import InputError

    context = click.get_current_context()
    for name, places in _PLACES_OF_OPTION.items():
        if place not in places and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)
            raise InputError(f"has no meaning with --on {place}, only with --on {' or '.join(places)}", key=option)
