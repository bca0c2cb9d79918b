"""`scav fit`: how good the predictions are, and what would make them better."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.inputs import load_inputs, warn
from planner.cli.options import catalog_option, history_option, job_argument, json_option


@click.command("fit")
@job_argument
@catalog_option
@history_option
@json_option
def command(job: Path, catalog_file: Path | None, history: Path | None, as_json: bool) -> None:
    """Fit the models of JOB to its measurements and say how good they are.

    Every probe is left out in turn and predicted from the others, beside a plain random forest and the plain
    physical form. Then: what limits the accuracy, and which one further probe would help most. Works with any
    number of measurements, and without any.
    """
    from planner.plan import fit_text
    from planner.probing import report_fit
    from planner.search import take_survey

    inputs = load_inputs(job, {}, catalog_file, history=history)
    report = report_fit(inputs, take_survey(inputs))
    warn(report.warnings)
    click.echo(report.model_dump_json(indent=2) if as_json else fit_text(report).rstrip("\n"))
