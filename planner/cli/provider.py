"""`scav provider`: scav inside Terraform."""

from __future__ import annotations

from pathlib import Path

import click


@click.group("provider")
def command() -> None:
    """Install scav as a Terraform provider, whose plan is a resource."""


@command.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="Terraform's plug-in folder. [default: ~/.terraform.d/plugins]",
)
def install(folder: Path | None) -> None:
    """Write the provider's launcher to where Terraform finds it without any configuration.

    It starts this installation of scav, and only as long as its code is unchanged: run this again after an upgrade.
    Terraform's lock file holds the launcher's hash, and the launcher the hash of the code.
    """
    from planner.provider import installation

    installed = installation.install(folder or installation.plugin_folder())
    click.echo(f"Wrote {installed.executables[-1].parents[1]}/ ({len(installed.executables)} platforms). In Terraform:")
    click.echo(f'  source = "{installation.SOURCE}"')
