"""`scav tune` on this machine: probes where they are expected to save more time than they take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.probe_here import HereNotebook, HereOptions, measured, open_runner, script_of
from planner.cli.probe_table import probe_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.inputs import Job, Measurement
    from planner.models import ConvergenceModel
    from planner.probing import Belief, ChoiceHere, Probe, SpaceHere, Visit


def tune_here(job: Path, options: HereOptions) -> None:
    from planner.outside import store
    from planner.outside.runners import Interrupts, noise_state, only_probe_here
    from planner.probing import SpaceHere, probe_in_turn

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    here = SpaceHere(job_file.job, sorted(set(options.placements)))
    notebook = HereNotebook(folder, script_of(job_file, options), options)
    search = _HereSearch(here, job_file.job, notebook)
    if options.dry_run:
        click.echo("\n".join(in_words(here.probe(row)) for row in here.start()))
        click.echo("then whatever is expected to save more time than measuring it takes")
        return
    with (
        Interrupts() as interrupts,
        only_probe_here(job_file.job.name, folder) as mark,
        noise_state(options.checkpoint) as state,
        open_runner(notebook.script, options, interrupts, mark, state) as runner,
    ):
        notebook.ran = runner.ran()

        def measure(visit: Visit) -> bool:
            probes = [here.probe(row) for row in visit.rows]
            reference = job_file.job.workload.target.reference_batch
            for row in measured(runner, probes, notebook.known, reference, search=True):
                notebook.add(row)
            interrupts.raise_if_received()
            return True

        probe_in_turn(here.space, here.start(), search.believe, measure, tell=search.tell)
    click.echo("\n".join(probe_table(search.rows)))
    click.echo(f"\n{_choice_in_words(here.choose(search.rows, search.samples), job)}")


class _HereSearch:
    """What is known so far, and saying so."""

    def __init__(self, here: SpaceHere, job: Job, notebook: HereNotebook) -> None:
        self.here, self.job, self.notebook = here, job, notebook

    @property
    def rows(self) -> Sequence[Measurement]:
        from planner.inputs import LOCAL

        return [row for row in self.notebook.known if row.instance_type == LOCAL and row.accumulation_steps == 1]

    @property
    def samples(self) -> ConvergenceModel:
        from planner.inputs import measured_noise
        from planner.models import fit_convergence

        given = self.job.workload.convergence.noise_scale
        return fit_convergence(self.job, None if given else measured_noise(self.notebook.known))

    def believe(self) -> Belief:
        return self.here.believe(self.rows, self.samples)

    def tell(self, belief: Belief, visit: Visit | None) -> None:
        from planner.probing import best_measured
        from planner.units import counted

        best = best_measured(belief.measured)
        if best is None:
            return
        known = f"{counted(len(self.rows), 'probe')}: best so far {in_words(self.here.probe(best))}"
        line = f"{known}, {duration_text(belief.measured[best])} to the target"
        if visit is None:
            line += "; no further probe is expected to save what it takes"
        elif visit.gain_usd:
            line += f"; the next is expected to save {duration_text(visit.gain_usd)}"
        click.echo(line, err=True)


def in_words(probe: Probe) -> str:
    from planner.units import counted

    nodes = f"{probe.nodes} x " if probe.nodes > 1 else ""
    return f"{nodes}{counted(probe.gpus_per_node, 'worker')}, local batch {probe.gpu_batch:,}"


def _choice_in_words(choice: ChoiceHere, job: Path) -> str:
    low, middle, high = (duration_text(hours) for hours in choice.hours)
    how = "measured" if choice.is_measured else "predicted from the others"
    return (
        f"Best here: {in_words(choice.probe)} (global batch {choice.probe.global_batch:,}), {middle} to the target "
        f"({low} to {high}), {how}.\nNext: scav plan {job}"
    )


def duration_text(hours: float) -> str:
    """Here runs may be short."""
    from planner.units import format_hours

    return f"{hours * 3600:.0f} s" if hours < 1 / 30 else format_hours(hours)
