"""The question before anything that spends."""

from __future__ import annotations

import sys

import click

from planner.errors import ScavError


def confirm_spending(what: str, max_usd: float, *, yes: bool) -> None:
    """Shows the most it can cost and asks; without a terminal and without --yes it refuses."""
    from planner.units import format_usd

    sentence = f"{what} It can cost at most {format_usd(max_usd)}."
    if yes:
        click.echo(sentence, err=True)
    elif not sys.stdin.isatty():
        raise ScavError(f"{sentence} Nobody is here to be asked: add --yes to go on")
    elif not click.confirm(f"{sentence} Go on?", err=True):
        raise ScavError("nothing was changed")
