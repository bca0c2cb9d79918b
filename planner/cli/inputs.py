"""The options that name inputs, read and handed on; what cannot be used of the files is said on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.inputs import PlanInputs


def load_inputs(
    job: Path,
    overrides: dict[str, Any],
    catalog_file: Path | None,
    *,
    history: Path | None = None,
    spot_history: Path | None = None,
    spot_history_age: str | None = None,
    frozen_to: Path | None = None,
) -> PlanInputs:
    from planner.outside.input_files import load_plan_inputs

    inputs = load_plan_inputs(
        job,
        overrides,
        catalog_file,
        history=history,
        spot_history=spot_history,
        spot_history_age_hours=duration("--spot-history-age", spot_history_age) if spot_history_age else 0.0,
        frozen_to=frozen_to,
    )
    warn(inputs.warnings)
    return inputs


def duration(option: str, text: str) -> float:
    """In hours, from an option."""
    from planner.units import parse_hours

    return _parsed(parse_hours, option, text)


def dollars(option: str, text: str) -> float:
    from planner.units import parse_usd

    return _parsed(parse_usd, option, text)


def _parsed(parse: Callable[[object], float], option: str, text: str) -> float:
    from planner.errors import InputError

    try:
        return parse(text)
    except ValueError as error:
        raise InputError(str(error), key=option) from None


def warn(warnings: Iterable[str]) -> None:
    from planner.errors import one_line

    for warning in warnings:
        click.echo(f"Warning: {one_line(warning)}", err=True)
