"""`scav probe` where nothing is rented: processes here, containers that stand for nodes, or a Ray cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from planner.cli.inputs import warn
from planner.cli.probe_table import adapter_note, probe_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.inputs import JobFile, Measurement, ParallelStrategy
    from planner.outside.runners import ContainerRunner, Interrupts, LocalRunner, NoiseState, RayRunner, Script
    from planner.probing import Probe

    Runner = LocalRunner | ContainerRunner | RayRunner


class HereOptions(NamedTuple):
    """What the command line says about measuring where nothing is rented."""

    place: str
    command: tuple[str, ...]
    writes_steps: bool
    placements: tuple[tuple[int, int], ...]  # nodes, and workers on each
    ray_address: str
    patience_seconds: float  # for room on a Ray cluster
    image: str | None
    base: str | None
    samples_per_step: str | None  # a number, or `asked`
    strategy: ParallelStrategy | None
    checkpoint: Path | None  # to measure the noise at, instead of what the first probe comes to
    longest_seconds: float
    force: bool
    dry_run: bool


def probe_here(job: Path, options: HereOptions) -> None:
    from planner.errors import InputError
    from planner.inputs import LOCAL, measured_noise
    from planner.outside import store
    from planner.outside.runners import Interrupts, noise_state, only_probe_here
    from planner.probing import at_one_batch, spread_probes
    from planner.units import counted

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    script = script_of(job_file, options)
    if options.writes_steps and max(options.placements) >= (2,):
        raise InputError("measures a program on one node: add --nodes 1", key="--writes-steps")
    if options.writes_steps and options.checkpoint is not None:
        raise InputError("has no meaning with --writes-steps, which measures no noise", key="--from-checkpoint")
    probes = spread_probes(job_file.job, _divisible(options), options.strategy)
    own_batch = _own_batch(options.samples_per_step)
    if own_batch is not None:
        probes = at_one_batch(probes, own_batch)
    notebook = HereNotebook(folder, script, options)
    if options.dry_run and options.place != "ray":  # what is the same there, only the cluster knows
        click.echo("\n".join(shown(probe) for probe in notebook.missing(probes)))
        return
    reference = job_file.job.workload.target.reference_batch
    with (
        Interrupts() as interrupts,
        only_probe_here(job_file.job.name, folder) as mark,
        noise_state(options.checkpoint) as state,
        open_runner(script, options, interrupts, mark, state) as runner,
    ):
        notebook.ran = runner.ran()
        to_do = notebook.missing(probes)
        tried = [] if notebook.measures_all else notebook.known
        for row in measured(runner, () if options.dry_run else to_do, tried, reference, search=own_batch is None):
            notebook.add(row)
        if not to_do and not options.dry_run:
            notebook.count_as_newest()
        interrupts.raise_if_received()
    if options.dry_run:
        click.echo("\n".join(map(shown, to_do)))
        return
    click.echo("\n".join(probe_table([row for row in notebook.known if row.instance_type == LOCAL])))
    click.echo(f"\n{notebook.file} has {counted(len(notebook.rows), 'measurement')}.")
    if noise := measured_noise(notebook.known):
        click.echo(f"Gradient noise scale: {noise}.")
        warn([*several_states(notebook.added), *noise.warnings])
    if note := adapter_note(notebook.added):
        click.echo(note, err=True)


def script_of(job_file: JobFile, options: HereOptions) -> Script:
    """What the command line names, else the job file."""
    from planner.outside.runners import Script

    return Script(
        folder=Path(job_file.file).parent,
        command=options.command or job_file.job.run.command,
        writes_steps=options.writes_steps,
        samples_are_stated=options.samples_per_step is not None,
    ).checked()


def several_states(rows: Sequence[Measurement]) -> list[str]:
    """All probes of a sweep should have measured the noise at the same parameters."""
    count = len({row.noise.state for row in rows if row.noise is not None})
    reason = "its parameters have other names or shapes, or there was no room on the disk to save them"
    return [f"the model came to {count} states, at which the noise was measured: {reason}"] if count > 1 else []


def _divisible(options: HereOptions) -> tuple[tuple[int, int], ...]:
    """The placements, all of whose nodes can hold whole groups of workers that hold one model."""
    from planner.errors import InputError
    from planner.probing import workers_of_a_model

    group = workers_of_a_model(options.strategy)
    if group > 1 and options.place == "container":
        raise InputError("has one worker per container, and layers are cut within a node: --on local", key="--strategy")
    for _, count in options.placements:
        if count % group:
            raise InputError(f"{count} cannot be groups of {group} that hold one model together", key="--workers")
    return options.placements


class HereNotebook:
    """The job's measurements: those of the run that is probed now, and the others."""

    def __init__(self, folder: Path, script: Script, options: HereOptions) -> None:
        from planner.outside import store
        from planner.outside.what_ran import ran_here

        self.file, self.script = folder / store.MEASUREMENTS_FILE, script
        # A state of the training that is given was not measured before, whatever else was.
        self.measures_all = options.force or options.checkpoint is not None
        self.place = options.place
        self.rows = [*store.load_measurements(self.file)[0].rows]
        self.added: list[Measurement] = []
        # Until its image is built, or its cluster asked, nobody knows the key of what runs elsewhere.
        ran = ran_here(script.folder, script.command, in_python=not script.writes_steps)
        self.ran = ran if self.place == "local" else ran._replace(key=None)

    @property
    def known(self) -> list[Measurement]:
        return self.ran.known(self.rows)

    def missing(self, probes: Sequence[Probe]) -> list[Probe]:
        from planner.probing import missing
        from planner.units import counted

        to_do = [*probes] if self.measures_all else missing(probes, self.known)
        before = len(probes) - len(to_do)
        click.echo(f"{counted(len(probes), 'probe')} on {self.place}, {before} measured before", err=True)
        return to_do

    def add(self, row: Measurement) -> None:
        from planner.outside import store

        marked = self.ran.mark(row)
        store.append_line(self.file, marked.model_dump_json(exclude_defaults=True))
        self.rows.append(marked)
        self.added.append(marked)

    def count_as_newest(self) -> None:
        """After a change was taken back: what was measured before it counts again."""
        from planner.outside import store

        if self.ran.key is not None:
            store.move_to_the_end(self.file, self.ran.key)


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


@contextlib.contextmanager
def open_runner(
    script: Script, options: HereOptions, interrupts: Interrupts, mark: str, state: NoiseState
) -> Iterator[Runner]:
    from planner.outside.runners import ContainerRunner, LocalRunner, RayRunner

    longest = options.longest_seconds
    if options.place == "local":
        yield LocalRunner(script=script, timeout_seconds=longest, interrupts=interrupts, mark=mark, noise_state=state)
    elif options.place == "container":
        if options.image is None:
            click.echo("Building the container image (minutes the first time, seconds later)", err=True)
        yield ContainerRunner.prepared(
            script, longest, interrupts, image=options.image, base=options.base, noise_state=state
        )
    else:
        with RayRunner.connected(
            options.ray_address,
            options.placements,
            script,
            longest,
            interrupts,
            patience_seconds=options.patience_seconds,
            noise_state=state,
            say=_say,
        ) as runner:
            yield runner


def _say(line: str) -> None:
    click.echo(line, err=True)


def measured(
    runner: Runner,
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
        yield from measure_what_fits(run, probes, known=known, say=_say)


def shown(probe: Probe) -> str:
    from planner.inputs import strategy_text

    spread = f", {strategy_text(probe.strategy)}" if probe.strategy else ""
    return f"{probe.nodes} x {probe.gpus_per_node} workers, local batch {probe.gpu_batch}{spread}"
