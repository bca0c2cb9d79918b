"""The question before anything that spends or removes."""

from __future__ import annotations

import sys

import click

from planner.errors import ScavError


def confirm_spending(what: str, max_usd: float, *, yes: bool) -> None:
    """Shows the most it can cost, and asks."""
    from planner.units import format_usd

    confirm(f"{what} It can cost at most {format_usd(max_usd)}.", yes=yes)


def confirm(sentence: str, *, yes: bool, option: str = "--yes") -> None:
    """Without a terminal and without the option it refuses."""
    if yes:
        click.echo(sentence, err=True)
    elif not sys.stdin.isatty():
        raise ScavError(f"{sentence} Nobody is here to be asked: add {option} to go on")
    elif not click.confirm(f"{sentence} Go on?", err=True):
        raise ScavError("nothing was changed")
