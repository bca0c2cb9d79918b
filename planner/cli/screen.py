"""What a command shows: as wide as the terminal, with its colours; in a pipe plain and of a fixed width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def show(page: RenderableType) -> None:
    from planner.plan import page_text

    click.echo(page_text(page, screen()), nl=False)


def screen() -> Console:
    """COLUMNS and NO_COLOR are honoured by rich; a pipe is 80 columns wide unless COLUMNS says otherwise."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)
