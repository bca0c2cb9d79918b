"""`scav tune --online`: the run itself is what is measured, and goes on to its end with the best that was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.inputs import warn
from planner.cli.probe_here import HereNotebook, HereOptions, script_of
from planner.cli.tune_here import duration_text, in_words

if TYPE_CHECKING:
    from planner.inputs import Job, Measurement
    from planner.models import ConvergenceModel
    from planner.outside.runners import SeenStretch, StretchRunner
    from planner.probing import Belief, OnlineSpace, RunChange, Stretch

_FOLDER, _JOURNAL = "scav-online", "stretches.jsonl"
_USUAL_RESTART_SECONDS = 10.0  # until the first stretch has started


def tune_online(job: Path, options: HereOptions) -> None:
    from planner.errors import InputError
    from planner.outside import store
    from planner.outside.runners import Interrupts, StretchRunner, only_probe_here
    from planner.probing import WINDOW_STEPS, WINDOWS, OnlineSpace, parse_stretches

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    online = OnlineSpace(job_file.job, [workers for _, workers in options.placements])
    notebook = HereNotebook(folder, script_of(job_file, options), options)
    home = folder / _FOLDER
    file = home / _JOURNAL
    stretches = parse_stretches(store.load_text(file), file=str(file)) if store.exists(file) else []
    if stretches and stretches[-1].run_key != notebook.ran.key:
        raise InputError("is of another script or other arguments: remove it to train anew", file=str(home))
    if options.dry_run:
        row = online.next_row(_belief(online, job_file.job, notebook, stretches))
        click.echo(f"{'then the best measured' if row is None else in_words(online.probe(row))}, to the end of the run")
        return
    with Interrupts() as interrupts, only_probe_here(job_file.job.name, folder) as mark:
        runner = StretchRunner(
            script=notebook.script,
            folder=home,
            interrupts=interrupts,
            mark=mark,
            run_key=notebook.ran.key,
            windows=WINDOWS,
            window_steps=WINDOW_STEPS,
            reference_batch=job_file.job.workload.target.reference_batch,
        )
        run = _Run(online, job_file.job, notebook, runner, file, stretches)
        run.to_its_end(options.longest_seconds)
    click.echo("\n".join(run.account()))
    click.echo(f"Trained: {home / 'checkpoints'}. Next: scav plan {job}")


class _Run:
    """What was trained and measured so far, and where to train next."""

    def __init__(
        self,
        online: OnlineSpace,
        job: Job,
        notebook: HereNotebook,
        runner: StretchRunner,
        journal: Path,
        stretches: list[Stretch],
    ) -> None:
        self.online, self.job, self.notebook, self.runner = online, job, notebook, runner
        self.journal, self.stretches = journal, stretches
        self.rows = _rows(notebook)  # before the last change
        self.change: RunChange | None = None
        self.noise: Measurement | None = None  # the newest, once it has left what was known
        self._looked = 0
        self._expected: float | None = None  # seconds per step, of the run that goes on

    @property
    def ended(self) -> bool:
        return bool(self.stretches) and self.stretches[-1].ended

    def to_its_end(self, longest_seconds: float) -> None:
        if left := self.runner.left_over():
            self._write(left)
        while not self.ended:
            belief = self._believe(self.stretches)
            row = self.online.next_row(belief, searching=self.change is None)
            self._tell(belief, row)
            if row is not None:
                self._probe(row, longest_seconds)
            else:
                self._train(self.online.choose(belief))

    def _probe(self, row: int, longest_seconds: float) -> None:
        seen = self.runner.run(self.online.probe(row), "probe", longest_seconds=longest_seconds, write=self._keep)
        self._look_back()
        if seen.looks and self.change is not None:
            self.change = self.change._replace(fresh={**self.change.fresh, row: seen.looks[-1].step_seconds})
        elif seen.looks:
            self.rows = _rows(self.notebook)

    def _train(self, row: int) -> None:
        self._looked, self._expected = 0, self._step_seconds(row)
        self.runner.run(
            self.online.probe(row),
            "run",
            longest_seconds=float("inf"),
            write=self._keep,
            is_enough=lambda seen: self._pays_elsewhere(row, seen),
        )
        self._look_back()

    def _pays_elsewhere(self, row: int, seen: SeenStretch) -> bool:
        """After each look of a run that goes on: is it worth a restart to be, or to look, elsewhere?"""
        from planner.probing import RunChange, moved

        if len(seen.looks) <= self._looked:
            return False
        self._looked = len(seen.looks)
        look, now, expected = seen.looks[-1], seen.looks[-1].step_seconds, self._expected
        ratio = 0.0 if expected is None else moved(expected, now, look.window_variation or 0.0)
        if _left_what_was_known(look, self.notebook):
            self.noise = look
        elif not ratio:
            return False
        if ratio:
            before = 0.0 if self.change is None else self.change.log_ratio
            self.change, self._expected = RunChange(before + ratio, {row: now}), now
        stretches = [*self.stretches, seen.stretch]
        belief = self._believe(stretches)
        if self.online.next_row(belief, searching=False) is not None:
            return True
        return self.online.better_than(row, belief, self._restart(stretches)) is not None

    def _step_seconds(self, row: int) -> float | None:
        from planner.probing import probe_of

        if self.change is not None and row in self.change.fresh:
            return self.change.fresh[row]
        probe = self.online.probe(row)
        own = [known.step_seconds for known in self.rows if probe_of(known) == probe]
        return own[-1] if own else None

    @property
    def samples(self) -> ConvergenceModel:
        return _samples(self.job, [self.noise] if self.noise is not None else self.notebook.known)

    def _believe(self, stretches: list[Stretch]) -> Belief:
        from planner.probing import share_done

        samples = self.samples
        return self.online.believe(
            self.rows,
            samples,
            done=share_done(stretches, samples),
            restart=self._restart(stretches),
            change=self.change,
        )

    def _restart(self, stretches: list[Stretch]) -> float:
        from planner.probing import restart_seconds

        return restart_seconds(stretches, _USUAL_RESTART_SECONDS)

    def _keep(self, seen: SeenStretch) -> None:
        self._write(seen.stretch)
        if seen.looks:
            self.notebook.add(seen.looks[-1])

    def _write(self, stretch: Stretch) -> None:
        from planner.outside import store

        store.append_line(self.journal, stretch.model_dump_json(exclude_defaults=True))
        self.stretches.append(stretch)

    def _look_back(self) -> None:
        from planner.errors import ScavError
        from planner.probing import fault_of_last, stuck_learning_rate

        if fault := fault_of_last(self.stretches):
            raise ScavError(fault)
        if note := stuck_learning_rate(self.stretches[-2:]):
            warn([note])

    def _tell(self, belief: Belief, row: int | None) -> None:
        from planner.probing import share_done
        from planner.units import counted, format_percent

        done = share_done(self.stretches, self.samples)
        known = f"{counted(len(belief.measured), 'configuration')} measured, {format_percent(done)} trained"
        if row is None:
            best = self.online.choose(belief)
            left = duration_text(float(belief.job_usd[best]))
            line = f"{known}: on to the end with {in_words(self.online.probe(best))}, about {left}"
        else:
            line = f"{known}: next with {in_words(self.online.probe(row))}"
        click.echo(line, err=True)

    def account(self) -> list[str]:
        """Of a run that came to its end."""
        from planner.probing import online_account, trained_samples
        from planner.units import format_count

        samples, last = self.samples, self.stretches[-1]
        belief = self.online.believe(_rows(self.notebook), samples, done=0.0, restart=0.0)
        chosen = self.online.row_of(last.workers, last.gpu_batch)
        if chosen is None or not belief.measured:  # over before anything could be measured
            return [f"The run is over: {format_count(trained_samples(self.stretches))} samples"]
        found = online_account(
            self.online, self.stretches, belief, samples, chosen=chosen, restart=self._restart(self.stretches)
        )
        trained = f"{format_count(trained_samples(self.stretches))} samples in {len(self.stretches)} starts"
        compared = [
            ("knowing the best before", found.oracle_hours, found.best),
            ("probing first, then training", found.offline_hours, chosen),
            ("never tuning", found.never_hours, found.never),
        ]
        first, elsewhere = duration_text(found.hours), duration_text(found.probing_hours)
        return [f"Trained {trained}, {first} in all, of it {elsewhere} elsewhere than with the last"] + [
            f"  {name}: about {duration_text(hours)}, {_more(hours / found.hours)} ({in_words(self.online.probe(row))})"
            for name, hours, row in compared
        ]


def _more(ratio: float) -> str:
    from planner.units import format_percent

    return f"{format_percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def _left_what_was_known(look: Measurement, notebook: HereNotebook) -> bool:
    """The noise, out of the interval that it had."""
    from planner.columns import Z95
    from planner.inputs import measured_noise

    before = measured_noise(notebook.known)
    if before is None or look.noise is None or not look.noise.reached:
        return False
    import math

    now = (math.log(look.noise.high) - math.log(look.noise.low)) / (2 * Z95)
    return abs(math.log(look.noise.scale / before.scale)) > Z95 * math.hypot(now, before.log_sd)


def _rows(notebook: HereNotebook) -> list[Measurement]:
    from planner.inputs import LOCAL

    return [row for row in notebook.known if row.instance_type == LOCAL and row.accumulation_steps == 1]


def _samples(job: Job, rows: list[Measurement]) -> ConvergenceModel:
    from planner.inputs import measured_noise
    from planner.models import fit_convergence

    given = job.workload.convergence.noise_scale
    return fit_convergence(job, None if given else measured_noise(rows))


def _belief(online: OnlineSpace, job: Job, notebook: HereNotebook, stretches: list[Stretch]) -> Belief:
    from planner.probing import restart_seconds, share_done

    samples = _samples(job, notebook.known)
    restart = restart_seconds(stretches, _USUAL_RESTART_SECONDS)
    return online.believe(_rows(notebook), samples, done=share_done(stretches, samples), restart=restart)
