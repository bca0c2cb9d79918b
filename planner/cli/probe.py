"""`scav probe`: measure the job's own training."""

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
    "nodes": ("container", "ray", "aws"),
    "image": ("container",),
    "base": ("container",),
    "writes_steps": ("local", "container"),
    "samples_per_step": ("local", "container", "ray"),
    "checkpoint": ("local", "container", "ray"),
    "ray_address": ("ray",),
    "instance_types": ("aws",),
    "spot": ("aws",),
    "max_cost": ("aws",),
    "patience": ("ray", "aws"),
    "yes": ("aws",),
}
_NODES_ON_AWS = (1, 2, 4)
_FEW_NODES = (1, 2)
_MAX_DURATION = "10min"


@click.command("probe", cls=ScriptCommand)
@job_argument
@script_argument
@place_option
@click.option(
    "--workers",
    multiple=True,
    type=click.IntRange(1, 64),
    default=(1, 2),
    show_default=True,
    help="Processes to spread the job over, on ray of each node; repeatable. On ray, one if not named.",
)
@click.option(
    "--nodes",
    multiple=True,
    type=click.IntRange(1, 64),
    help="Containers or machines to spread the job over; repeatable. [default: 1, 2; on aws also 4]",
)
@click.option(
    "--strategy",
    metavar="SHARDING[,…]",
    help="How the script is to spread its model: ddp, zero1, zero2, fsdp or hsdp, and tensor_parallel=2, "
    "recompute=full. [default: as it likes, or else ddp; on aws as would be planned]",
)
@ray_address_option
@image_option
@base_option
@writes_steps_option
@click.option(
    "--samples-per-step",
    metavar="N|asked",
    help="Where samples cannot be counted: the script's own per process and optimizer step, or as many as asked for.",
)
@click.option(
    "--from-checkpoint",
    "checkpoint",
    type=click.Path(path_type=Path),
    help="Measure the gradient noise at the parameters in this file of the script's, later in training.",
)
@instance_types_option
@spot_option
@max_cost_option
@click.option(
    "--max-duration",
    help="End a probe, on aws a cluster, that takes longer. [default: 10min, on aws about twice what is expected]",
)
@patience_option
@profile_option
@click.option("--cleanup", is_flag=True, help="Only destroy what earlier probes of JOB left running on AWS.")
@click.option("--force", is_flag=True, help="Measure again what was measured before; both then count.")
@click.option("--dry-run", is_flag=True, help="Only print the probes that would be run, on aws with price and time.")
@yes_option
def command(
    job: Path,
    script: tuple[str, ...],
    place: str,
    workers: tuple[int, ...],
    nodes: tuple[int, ...],
    strategy: str | None,
    ray_address: str,
    image: str | None,
    base: str | None,
    writes_steps: bool,
    samples_per_step: str | None,
    checkpoint: Path | None,
    instance_types: tuple[str, ...],
    spot: bool,
    max_cost: str,
    max_duration: str | None,
    patience: str,
    profile: str | None,
    cleanup: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Measure the training of JOB and append to its measurements.jsonl.

    The script is run.command of the job file, or what follows `--`: scav probe my-job -- train.py --batch {gpu_batch}.
    It is run unchanged under torchrun and gets its batch size by placeholders in the command ({gpu_batch},
    {accumulation_steps}, {global_batch}, {lr_scale}) or from SCAV_GPU_BATCH; Hugging Face's Trainer, Accelerate and
    Lightning get it without either. --strategy reaches it as SCAV_STRATEGY, or by {strategy}, {tensor_parallel},
    {pipeline} and {recompute}. Its samples are counted: a script that trains with another batch is refused. It is
    ended when enough steps were measured; what was measured before, with the same script, arguments and software, is
    not repeated. One probe runs on a machine at a time, and on a Ray cluster.

    On aws nothing is rented before its price was shown and agreed to, and every cluster is destroyed when it is done,
    fails or is interrupted; what a killed scav left behind, the next `scav probe` destroys first.
    """
    from planner.cli.inputs import dollars, duration
    from planner.cli.probe_aws import AwsOptions, clean_up, list_leftovers, probe_on_aws
    from planner.cli.probe_here import HereOptions, probe_here
    from planner.inputs import parse_strategy
    from planner.outside import store
    from planner.probing import workers_of_a_model
    from planner.units import counted

    refuse_options_of_other_places(_PLACES_OF_OPTION, place)
    asked = parse_strategy(strategy) if strategy is not None else None
    longest_seconds = 3600 * duration("--max-duration", max_duration or _MAX_DURATION)
    patience_seconds = 3600 * duration("--patience", patience)
    folder = Path(store.load_job(job, {}).file).parent
    if dry_run:
        for leftover in list_leftovers(folder):
            click.echo(f"{leftover} would be destroyed: an earlier probe left it behind")
    elif (cleaned := clean_up(folder, profile)) or cleanup:
        click.echo(f"{counted(cleaned, 'cluster')} of earlier probes destroyed", err=True)
    if cleanup:
        return
    if place == "aws":
        probe_on_aws(
            job,
            AwsOptions(
                command=script,
                nodes=nodes or _NODES_ON_AWS,
                instance_types=instance_types,
                spot=spot,
                max_usd=dollars("--max-cost", max_cost),
                longest_seconds=longest_seconds if max_duration else None,
                patience_seconds=patience_seconds,
                profile=profile,
                force=force,
                dry_run=dry_run,
                yes=yes,
                strategy=asked,
            ),
        )
    else:
        probe_here(
            job,
            HereOptions(
                place=place,
                command=script,
                writes_steps=writes_steps,
                placements=placements(place, nodes or _FEW_NODES, workers, workers_of_a_model(asked)),
                ray_address=ray_address,
                patience_seconds=patience_seconds,
                strategy=asked,
                image=image,
                base=base,
                samples_per_step=samples_per_step,
                checkpoint=checkpoint,
                longest_seconds=longest_seconds,
                force=force,
                dry_run=dry_run,
            ),
        )
    if not dry_run:
        _remember(job, script)


def _remember(job: Path, script: tuple[str, ...]) -> None:
    """A command with placeholders that was measured: a plan hands over its batch by the same line."""
    from planner.inputs import with_command, written_command
    from planner.outside import store
    from planner.outside.runners import hold_batch

    if not hold_batch(script):
        return
    job_file = store.load_job(job, {})
    if job_file.job.run.command == script:
        return
    changed = with_command(store.load_text(Path(job_file.file)), script)
    if changed is None:
        line = f"{job_file.file}: run.command is another; for plans to use the line that was measured, write"
        click.echo(f"{line} {written_command(script)}", err=True)
        return
    store.write_text_atomically(Path(job_file.file), changed)
    click.echo(f"Wrote the command to {job_file.file} (run.command), for plans and further probes.", err=True)
