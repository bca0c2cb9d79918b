"""`scav init`: a job file to start from, or one that writes itself, from a script or from a model's configuration."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from planner.cli.options import ScriptCommand, inspection_options

# Options that say more about another one; without it they would be ignored without a word.
_NEEDED = {
    "sequence_length": "model",
    "gpu_batch": "training_script",
    "samples_per_step": "training_script",
    "max_duration": "training_script",
}


@click.command("init", cls=ScriptCommand)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=".", required=False)
@click.argument("script", metavar="[-- ARGS]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--from",
    "training_script",
    type=click.Path(path_type=Path),
    metavar="TRAIN.PY",
    help="Write it from what `scav inspect` finds in this script, called with ARGS; the script is inside DIR.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="CONFIG.JSON",
    help="Write it from the configuration of a Hugging Face model, by formula.",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Of a sample, with --model. [default: what the model can read, at most 8,192]",
)
@click.option(
    "--terraform",
    "with_terraform",
    is_flag=True,
    help="Also write main.tf and its modules: the plan as a resource, for `scav provider`.",
)
@inspection_options
def command(
    folder: Path,
    script: tuple[str, ...],
    training_script: Path | None,
    model: Path | None,
    sequence_length: int | None,
    with_terraform: bool,
    gpu_batch: int | None,
    samples_per_step: int | None,
    max_duration: str,
) -> None:
    """Write a commented scav.yaml into DIR (default: here).

    With --from or --model it has every value that can be found, each with its origin. Target, deadline and budget are
    left to you. With --terraform, a scav.yaml that is there already is the one that is planned.
    """
    from planner.outside import assets, store

    _refuse_options_without_their_own(script)
    path = folder / store.JOB_FILE
    described = training_script is not None or model is not None
    has_job = with_terraform and not described and store.exists(path)
    if not has_job:
        _refuse_existing(path)
    if with_terraform:
        _refuse_existing(folder / "main.tf")
    if has_job:
        _write_root(folder)
        return
    task = "Say there what is required"
    if training_script is not None:
        text = _from_script(folder, training_script, script, gpu_batch, samples_per_step, max_duration)
    elif model is not None:
        text = _from_model(model, sequence_length)
    else:
        text, task = assets.load_starter_job(), "Describe your job there"
    store.write_text_atomically(path, text)
    if with_terraform:
        click.echo(f"Wrote {path}. {task}")
        _write_root(folder)
    else:
        click.echo(f"Wrote {path}. {task}, then run: scav plan {shlex.quote(str(folder))}")


def _refuse_existing(path: Path) -> None:
    from planner.errors import InputError
    from planner.outside import store

    if store.exists(path):
        raise InputError("already exists; scav init does not overwrite", file=str(path))


def _write_root(folder: Path) -> None:
    """A root module around the plan as a resource, with the modules that it uses."""
    from planner.outside import assets, store
    from planner.outside.render import render_root
    from planner.provider import installation

    modules = {name: assets.load_module(name) for name in ("gpu-cluster", "planned-cluster")}
    files = render_root(assets.load_templates("provider"), modules, source=installation.SOURCE)
    for name, text in files.items():
        store.write_text_atomically(folder / name, text)
    click.echo(f"Wrote {folder / 'main.tf'} and its modules ({len(files)} files). Next:")
    click.echo("  scav provider install")
    click.echo(f"  terraform {shlex.quote(f'-chdir={folder}')} init")


def _refuse_options_without_their_own(script: tuple[str, ...]) -> None:
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name, needed in _NEEDED.items():
        said = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if said and context.params[needed] is None:
            raise click.UsageError(f"{options[name]} needs {options[needed]}")
    if script and context.params["training_script"] is None:
        raise click.UsageError("arguments of a script need the script: scav init --from train.py -- --lr 0.1")
    if context.params["training_script"] is not None and context.params["model"] is not None:
        raise click.UsageError("--from and --model exclude each other")


def _from_script(
    folder: Path,
    script: Path,
    arguments: tuple[str, ...],
    gpu_batch: int | None,
    samples_per_step: int | None,
    max_duration: str,
) -> str:
    from planner.cli.inspected import found_in
    from planner.errors import InputError
    from planner.inputs import drafted_job, job_name, job_notes, job_values

    inside = folder.resolve()
    if not script.resolve().is_relative_to(inside):
        raise InputError("must be inside DIR, from where the job's command is run", key="--from")
    command = (script.resolve().relative_to(inside).as_posix(), *arguments)
    found = found_in(folder, command, gpu_batch, samples_per_step, max_duration)
    values = job_values(found, asked_batch=gpu_batch is not None)
    source = f"{script.name} by scav inspect, on {found.device}"
    return drafted_job(job_name(inside.name), values, source=source, command=command, notes=job_notes(found))


def _from_model(file: Path, sequence_length: int | None) -> str:
    from planner.inputs import described_model, drafted_job
    from planner.outside import store

    model = described_model(store.load_text(file), file=str(file), sequence_length=sequence_length)
    return drafted_job(
        model.name,
        model.values,
        source=f"{file.name} ({model.kind})",
        notes=[model.sample],
        transformer=model.transformer,
    )
