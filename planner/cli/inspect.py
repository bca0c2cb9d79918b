"""`scav inspect`: what a training script's steps take, without a GPU and without a job file."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options import ScriptCommand, inspection_options, json_option


@click.command("inspect", cls=ScriptCommand)
@click.argument("job", type=click.Path(path_type=Path), default=".", required=False)
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@inspection_options
@json_option
def command(
    job: Path,
    script: tuple[str, ...],
    gpu_batch: int | None,
    samples_per_step: int | None,
    max_duration: str,
    as_json: bool,
) -> None:
    """Report what the steps of a training script take, without a GPU.

    Parameters, flops, activations, batch, input. The script is what follows `--` (scav inspect -- train.py --lr 0.1),
    run in JOB's folder, or run.command of JOB. Its first steps are run unchanged on this machine, GPU or not, in one
    process, and counted; then it is ended. What could not be found is said, with the reason. `scav init --from` writes
    a job file from the same.
    """
    from planner.cli.inspected import found_in, inspection_lines

    folder, words = _script_of(job, script)
    found = found_in(folder, words, gpu_batch, samples_per_step, max_duration)
    click.echo(found.model_dump_json(exclude_none=True) if as_json else "\n".join(inspection_lines(found)))


def _script_of(job: Path, script: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Its folder and its command; a job file is only needed where no script is named."""
    from planner.outside import store

    if script:
        return (job if job.is_dir() else job.parent), script
    job_file = store.load_job(job, {})
    return Path(job_file.file).parent, job_file.job.run.command
