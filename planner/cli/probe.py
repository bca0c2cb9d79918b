"""`scav probe`: measure the job's own training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.measurements import Measurement
    from planner.probe_plan import Probe
    from planner.runners.container import ContainerRunner
    from planner.runners.local import LocalRunner, Script

# Options that mean something in some places only; elsewhere they would be ignored without a word.
_PLACES_OF_OPTION = {
    "workers": ("local",),
    "nodes": ("container",),
    "image": ("container",),
    "base": ("container",),
}


@click.command("probe", context_settings={"ignore_unknown_options": False})
@click.argument("job", type=click.Path(path_type=Path), default=".", required=False)
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@click.option("--on", "place", type=click.Choice(["local", "container"]), default="local", show_default=True,
              help="Where to measure: processes on this machine, or containers on it, one per node.")  # fmt: skip
@click.option("--workers", multiple=True, type=click.IntRange(1, 64), default=(1, 2), show_default=True,
              help="Processes to spread the job over; repeatable.")  # fmt: skip
@click.option("--nodes", multiple=True, type=click.IntRange(1, 64), default=(1, 2), show_default=True,
              help="Containers to spread the job over; repeatable.")  # fmt: skip
@click.option("--image", help="A container image built from probes/Containerfile, instead of building one.")
@click.option("--base", help="The image to build on, instead of a deep learning container of AWS.")
@click.option("--writes-steps", is_flag=True, help="For any program: it writes its step times to SCAV_PROBE_STEPS.")
@click.option("--max-duration", default="10min", show_default=True, help="End a probe that takes longer.")
@click.option("--dry-run", is_flag=True, help="Only print the probes that would be run.")
def command(
    job: Path,
    script: tuple[str, ...],
    place: str,
    workers: tuple[int, ...],
    nodes: tuple[int, ...],
    image: str | None,
    base: str | None,
    writes_steps: bool,
    max_duration: str,
    dry_run: bool,
) -> None:
    """Measure the training of JOB and append to its measurements.jsonl.

    The script is run.command of the job file, or what follows `--`: scav probe my-job -- train.py --data here. It is
    run unchanged under torchrun, takes its batch size from SCAV_GPU_BATCH, and is ended when enough steps were
    measured. Probes that were measured before are not repeated.
    """
    from planner import store
    from planner.errors import InputError
    from planner.probe_plan import LOCAL, container_probes, local_probes, missing
    from planner.runners.local import LocalRunner, Script
    from planner.units import parse_hours

    _refuse_options_of_other_places(place)
    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    file = folder / store.MEASUREMENTS_FILE
    known, _ = store.load_measurements(file)
    try:
        timeout_seconds = parse_hours(max_duration) * 3600
    except ValueError as error:
        raise InputError(str(error), key="--max-duration") from None
    chosen = Script(folder=folder, command=script or job_file.job.run.command, writes_steps=writes_steps).checked()
    if writes_steps and place == "container" and max(nodes) > 1:
        raise InputError("measures a program on one node: add --nodes 1", key="--writes-steps")
    probes = local_probes(job_file.job, workers) if place == "local" else container_probes(job_file.job, nodes)
    to_do = missing(probes, known.rows)
    click.echo(f"{len(probes)} probes on {place}, {len(probes) - len(to_do)} measured before", err=True)
    if dry_run:
        click.echo("\n".join(f"{p.nodes} x {p.gpus_per_node} workers, local batch {p.gpu_batch}" for p in to_do))
        return
    rows = [*known.rows]
    if to_do:
        runner: LocalRunner | ContainerRunner = (
            LocalRunner(script=chosen, timeout_seconds=timeout_seconds)
            if place == "local"
            else _in_containers(chosen, timeout_seconds, image, base)
        )
        for measurement in _measured(runner, to_do, job_file.job.workload.target.reference_batch):
            store.append_line(file, measurement.model_dump_json(exclude_defaults=True))
            rows.append(measurement)
    click.echo("\n".join(_table([row for row in rows if row.instance_type == LOCAL])))
    click.echo(f"\n{file} has {len(rows)} measurements.")


def _refuse_options_of_other_places(place: str) -> None:
    from planner.errors import InputError

    context = click.get_current_context()
    for name, places in _PLACES_OF_OPTION.items():
        if place not in places and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"has no meaning with --on {place}, only with --on {' or '.join(places)}", key=f"--{name}")


def _in_containers(script: Script, timeout_seconds: float, image: str | None, base: str | None) -> ContainerRunner:
    from planner.runners.container import ContainerRunner

    if image is None:
        click.echo("Building the container image (minutes the first time, seconds later)", err=True)
    return ContainerRunner.prepared(script, timeout_seconds, image=image, base=base)


def _measured(
    runner: LocalRunner | ContainerRunner, probes: Sequence[Probe], reference_batch: int
) -> Iterator[Measurement]:
    """One after the other, with a bar on stderr if somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Probing", total=len(probes))
        for probe in probes:
            progress.update(
                task, description=f"{probe.nodes} x {probe.gpus_per_node} workers, local batch {probe.gpu_batch}"
            )
            yield runner.run(probe, reference_batch=reference_batch, measure_noise=True)
            progress.advance(task)


def _table(rows: Sequence[Measurement]) -> list[str]:
    from planner.review.text import table

    heading = ("workers", "local batch", "step ms", "p90 ms", "sync ms", "data ms", "spread", "noise scale (90 %)")
    body = [
        (
            f"{row.nodes} x {row.gpus_per_node}",
            f"{row.gpu_batch:,}",
            _milliseconds(row.step_seconds),
            _milliseconds(row.step_seconds_p90),
            _milliseconds(row.exposed_sync_seconds),
            _milliseconds(row.data_wait_seconds),
            "-" if row.window_variation is None else f"{row.window_variation:.0%}",
            "-" if row.noise is None else f"{row.noise.scale:,.0f} ({row.noise.low:,.0f} to {row.noise.high:,.0f})",
        )
        for row in rows
    ]
    return table([heading, *body], "<>>>>>>>")


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"
