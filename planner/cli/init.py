"""`scav init`: a job file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("init")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=".", required=False)
def command(folder: Path) -> None:
    """Write a commented scav.yaml into DIR (default: here)."""
    from planner.errors import InputError
    from planner.outside import assets, store

    path = folder / store.JOB_FILE
    if store.exists(path):
        raise InputError("already exists; scav init does not overwrite", file=str(path))
    store.write_text_atomically(path, assets.load_starter_job())
    click.echo(f"Wrote {path}. Describe your job there, then run: scav plan {shlex.quote(str(folder))}")
