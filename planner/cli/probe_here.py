"""`scav probe` on this machine: processes, or containers that stand for nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from planner.cli.probe_table import probe_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.inputs import Measurement
    from planner.outside.runners import ContainerRunner, Interrupts, LocalRunner, Script
    from planner.probing import Probe


class HereOptions(NamedTuple):
    """What the command line says about measuring here."""

    in_containers: bool
    command: tuple[str, ...]
    writes_steps: bool
    counts: tuple[int, ...]  # of workers, or of containers
    image: str | None
    base: str | None
    samples_per_step: str | None  # a number, or `asked`
    longest_seconds: float
    dry_run: bool


def probe_here(job: Path, options: HereOptions) -> None:
    from planner.errors import InputError
    from planner.outside import store
    from planner.outside.runners import Interrupts, Script
    from planner.probing import LOCAL, at_one_batch, container_probes, local_probes, missing
    from planner.units import counted

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    file = folder / store.MEASUREMENTS_FILE
    known, _ = store.load_measurements(file)
    command = options.command or job_file.job.run.command
    script = Script(
        folder=folder,
        command=command,
        writes_steps=options.writes_steps,
        samples_are_stated=options.samples_per_step is not None,
    ).checked()
    if options.writes_steps and options.in_containers and max(options.counts) > 1:
        raise InputError("measures a program on one node: add --nodes 1", key="--writes-steps")
    make = container_probes if options.in_containers else local_probes
    probes = make(job_file.job, options.counts)
    own_batch = _own_batch(options.samples_per_step)
    if own_batch is not None:
        probes = at_one_batch(probes, own_batch)
    to_do = missing(probes, known.rows)
    place = "container" if options.in_containers else "local"
    click.echo(f"{counted(len(probes), 'probe')} on {place}, {len(probes) - len(to_do)} measured before", err=True)
    if options.dry_run:
        click.echo("\n".join(shown(probe) for probe in to_do))
        return
    rows = [*known.rows]
    if to_do:
        reference = job_file.job.workload.target.reference_batch
        with Interrupts() as interrupts:
            runner = _runner(script, options, interrupts)
            for measurement in _measured(runner, to_do, known.rows, reference, search=own_batch is None):
                store.append_line(file, measurement.model_dump_json(exclude_defaults=True))
                rows.append(measurement)
            interrupts.raise_if_received()
    click.echo("\n".join(probe_table([row for row in rows if row.instance_type == LOCAL])))
    click.echo(f"\n{file} has {counted(len(rows), 'measurement')}.")


def _own_batch(samples_per_step: str | None) -> int | None:
    """Of a script that takes no other; None where it takes the batch that it is given."""
    from planner.errors import InputError
    from planner.inputs import LARGEST_BATCH
    from planner.units import parse_count

    if samples_per_step in (None, "asked"):
        return None
    try:
        samples = parse_count(samples_per_step)
    except ValueError:
        samples = 0
    if not 0 < samples <= LARGEST_BATCH:
        raise InputError("write the samples of one process in one optimizer step, or asked", key="--samples-per-step")
    return samples


def _runner(script: Script, options: HereOptions, interrupts: Interrupts) -> LocalRunner | ContainerRunner:
    if not options.in_containers:
        from planner.outside.runners import LocalRunner

        return LocalRunner(script=script, timeout_seconds=options.longest_seconds, interrupts=interrupts)
    from planner.outside.runners import ContainerRunner

    if options.image is None:
        click.echo("Building the container image (minutes the first time, seconds later)", err=True)
    return ContainerRunner.prepared(script, options.longest_seconds, interrupts, image=options.image, base=options.base)


def _measured(
    runner: LocalRunner | ContainerRunner,
    probes: Sequence[Probe],
    known: Sequence[Measurement],
    reference_batch: int,
    *,
    search: bool,
) -> Iterator[Measurement]:
    """One after the other, with a bar on stderr if somebody watches; `search` for a batch that fits, or only these."""
    from rich.console import Console
    from rich.progress import Progress

    from planner.outside.runners import measure_what_fits

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Probing", total=len(probes))

        def run(probe: Probe) -> Measurement:
            progress.update(task, description=shown(probe))
            row = runner.run(probe, reference_batch=reference_batch, measure_noise=True)
            progress.advance(task)
            return row

        if not search:
            yield from map(run, probes)
            return
        yield from measure_what_fits(run, probes, known=known, say=lambda line: click.echo(line, err=True))


def shown(probe: Probe) -> str:
    return f"{probe.nodes} x {probe.gpus_per_node} workers, local batch {probe.gpu_batch}"
