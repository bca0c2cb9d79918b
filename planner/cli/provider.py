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


@command.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the mirror.")
@click.option(
    "--self-contained", is_flag=True, help="With Python and all that plans inside, by PyInstaller; of this platform."
)
def package(out: Path, self_contained: bool) -> None:
    """Write the provider as archives, in the layout of Terraform's mirror folders.

    Without --self-contained they hold launchers, which need this installation of scav at the same path.
    """
    from planner.provider.package import package as package_launchers
    from planner.provider.package import package_self_contained

    for path in package_self_contained(out) if self_contained else package_launchers(out):
        click.echo(path)
