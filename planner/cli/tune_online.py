"""`scav tune --online`: the run itself is what is measured, and goes on to its end with the best that was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.inputs import warn
from planner.cli.probe_here import HereNotebook, HereOptions, script_of
from planner.cli.tune_here import duration_text, in_words

if TYPE_CHECKING:
    from planner.outside.runners import SeenStretch, StretchRunner
    from planner.probing import Belief, OnlineRun, Stretch

_FOLDER, _JOURNAL = "scav-online", "stretches.jsonl"


def tune_online(job: Path, options: HereOptions) -> None:
    from planner.errors import InputError
    from planner.outside import store
    from planner.outside.runners import Interrupts, StretchRunner, WarmProcesses, only_probe_here
    from planner.probing import WINDOW_STEPS, WINDOWS, OnlineRun, parse_stretches

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    notebook = HereNotebook(folder, script_of(job_file, options), options)
    home = folder / _FOLDER
    file = home / _JOURNAL
    stretches = parse_stretches(store.load_text(file), file=str(file)) if store.exists(file) else []
    if stretches and stretches[-1].run_key != notebook.ran.key:
        raise InputError("is of another script or other arguments: remove it to train anew", file=str(home))
    run = OnlineRun(job_file.job, [workers for _, workers in options.placements], stretches, notebook.known)
    if options.dry_run:
        row = run.next_row(run.believe())
        first = "then the best measured" if row is None else in_words(run.online.probe(row))
        click.echo(f"{first}, to the end of the run")
        return
    with (
        Interrupts() as interrupts,
        only_probe_here(job_file.job.name, folder) as mark,
        WarmProcesses(mark) as warm,
    ):
        runner = StretchRunner(
            script=notebook.script,
            folder=home.resolve(),  # the script runs elsewhere
            interrupts=interrupts,
            warm=warm,
            run_key=notebook.ran.key,
            windows=WINDOWS,
            window_steps=WINDOW_STEPS,
            reference_batch=job_file.job.workload.target.reference_batch,
        )
        _Running(run, notebook, runner, file).to_its_end(options.longest_seconds)
    click.echo("\n".join(_account(run)))
    click.echo(f"Trained: {home / 'checkpoints'}. Next: scav plan {job}")


class _Running:
    """Starts what the run decides, writes down what comes of it, and says so."""

    def __init__(self, run: OnlineRun, notebook: HereNotebook, runner: StretchRunner, journal: Path) -> None:
        self.decides, self.notebook, self.runner, self.journal = run, notebook, runner, journal

    def to_its_end(self, longest_seconds: float) -> None:
        from planner.errors import OutOfMemory

        if left := self.runner.left_over():
            self._write(left)
        while not self.decides.ended:
            belief = self.decides.believe()
            row = self.decides.next_row(belief)
            click.echo(_next_in_words(self.decides, belief, row), err=True)
            try:
                if row is not None:
                    self._probe(row, longest_seconds)
                else:
                    self._train(self.decides.online.choose(belief))
            except OutOfMemory as error:
                warn([str(error)])
                self.decides.was_refused()

    def _probe(self, row: int, longest_seconds: float) -> None:
        probe = self.decides.online.probe(row)
        seen = self.runner.run(probe, "probe", longest_seconds=longest_seconds, write=self._keep)
        self._look_back()
        self.decides.was_measured(row, seen.looks)

    def _train(self, row: int) -> None:
        self.decides.trains_on(row)
        self.runner.run(
            self.decides.online.probe(row),
            "run",
            longest_seconds=float("inf"),
            write=self._keep,
            is_enough=lambda seen: self.decides.pays_elsewhere(row, *seen),
        )
        self._look_back()

    def _keep(self, seen: SeenStretch) -> None:
        self._write(seen.stretch)
        if seen.looks:
            self.notebook.add(seen.looks[-1])
            self.decides.known = self.notebook.known

    def _write(self, stretch: Stretch) -> None:
        from planner.outside import store

        store.append_line(self.journal, stretch.model_dump_json(exclude_defaults=True))
        self.decides.was(stretch)

    def _look_back(self) -> None:
        from planner.errors import ScavError
        from planner.probing import fault_of_last, stuck_learning_rate

        if fault := fault_of_last(self.decides.stretches):
            raise ScavError(fault)
        if note := stuck_learning_rate(self.decides.stretches[-2:]):
            warn([note])


def _next_in_words(run: OnlineRun, belief: Belief, row: int | None) -> str:
    from planner.units import counted, format_percent

    known = f"{counted(len(belief.measured), 'configuration')} measured, {format_percent(run.done)} trained"
    if row is not None:
        return f"{known}: next with {in_words(run.online.probe(row))}"
    best = run.online.choose(belief)
    left = duration_text(float(belief.job_usd[best]))
    return f"{known}: on to the end with {in_words(run.online.probe(best))}, about {left}"


def _account(run: OnlineRun) -> list[str]:
    """Of a run that came to its end."""
    from planner.probing import trained_samples
    from planner.units import format_count

    samples, found = format_count(trained_samples(run.stretches)), run.account()
    if found is None:
        return [f"The run is over: {samples} samples"]
    compared = [
        ("knowing the best before", found.oracle_hours, found.best),
        ("probing first, then training", found.offline_hours, found.chosen),
        ("never tuning", found.never_hours, found.never),
    ]
    whole, elsewhere = duration_text(found.hours), duration_text(found.probing_hours)
    trained = f"Trained {samples} samples in {len(run.stretches)} starts, {whole} in all"
    lines = [f"{trained}, of it {elsewhere} elsewhere than with the last"]
    for name, hours, row in compared:
        where = in_words(run.online.probe(row))
        lines.append(f"  {name}: about {duration_text(hours)}, {_more(hours / found.hours)} ({where})")
    return lines


def _more(ratio: float) -> str:
    from planner.units import format_percent

    return f"{format_percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"
