"""`scav schema`: the file formats as JSON Schema."""

from __future__ import annotations

import click

CONTRACTS = ("job", "measurement", "plan", "cost", "catalog")


@click.command("schema")
@click.argument("contract", type=click.Choice(CONTRACTS))
def command(contract: str) -> None:
    """Print the JSON Schema of a file that scav reads or writes."""
    import json

    from planner.contract import Contract
    from planner.inputs import Catalog, Job, Measurement
    from planner.plan import Cost, Plan

    models: dict[str, type[Contract]] = {
        "job": Job,
        "measurement": Measurement,
        "plan": Plan,
        "cost": Cost,
        "catalog": Catalog,
    }
    # A job is what a user writes, so human units are allowed; the others are what scav writes.
    schema = models[contract].model_json_schema(mode="validation")
    click.echo(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2))
