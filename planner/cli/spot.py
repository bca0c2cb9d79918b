"""`scav spot`: what can be known of spot capacity without renting any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.options import catalog_option, job_argument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.inputs import Observed
    from planner.outside import spot_records


@click.group()
def command() -> None:
    """What can be known of spot capacity without renting any."""


@command.command()
@job_argument
@catalog_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to append, a file for each type and zone. [default: spot-history beside the job, where plans look]",
)
@click.option("--nodes", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many a score is for.")
@click.option("--every", default="10min", show_default=True, help="How often to ask.")
@click.option("--once", is_flag=True, help="Ask once and end: for a scheduled pipeline.")
@click.option("--profile", help="AWS profile.")
def record(
    job: Path,
    catalog_file: Path | None,
    directory: Path | None,
    nodes: int,
    every: str,
    once: bool,
    profile: str | None,
) -> None:
    """Note what AWS says of the spot capacity that JOB could use.

    Placement scores and prices of its types and zones, and what became of the account's own spot nodes: launched,
    refused for want of capacity, taken back. Needs AWS credentials that may call ec2:Describe*,
    ec2:GetSpotPlacementScores and autoscaling:Describe*; the calls read only and cost nothing.
    """
    import time

    from planner.cli.inputs import duration
    from planner.outside import aws

    pause_hours = duration("--every", every)
    regions, names, folder = _asked(job, catalog_file)
    session = aws.open_session(profile)

    def clients(region: str) -> Any:
        return lambda service: aws.open_client(session, service, region)

    while True:
        _record_once(clients, regions, names, directory or folder, nodes)
        if once:
            return
        time.sleep(pause_hours * 3600)


def _asked(job: Path, catalog_file: Path | None) -> tuple[Sequence[str], list[str], Path]:
    """Regions and types that the job allows, and where plans of it look for recordings."""
    from planner.inputs import select_instance_types
    from planner.outside import store

    job_file = store.load_job(job, {})
    folder = Path(job_file.file).parent
    catalog = store.load_catalog(catalog_file, beside=folder).catalog
    constraints = job_file.job.constraints
    every = [region.name for region in catalog.regions]
    regions = every if constraints.regions == ("all",) else list(constraints.regions)
    names = [one.name for one in select_instance_types(catalog, constraints.instance_types)]
    sold = {(offer.region, offer.instance_type) for offer in catalog.offers}
    return (
        regions,
        [name for name in names if any((region, name) in sold for region in regions)],
        (folder / store.SPOT_HISTORY_FOLDER),
    )


def _record_once(clients: Any, regions: Sequence[str], names: Sequence[str], folder: Path, nodes: int) -> None:
    from datetime import UTC, datetime

    from planner.cli.inputs import warn
    from planner.outside import spot_records, store

    before = store.load_every_observed(folder)
    count = 0
    for region in regions:
        now = datetime.now(UTC).replace(microsecond=0)
        found, warnings = spot_records.fetch_observations(
            clients(region), region, names, nodes=nodes, now=now, known=_known(before)
        )
        warn(warnings)
        for (name, zone), observation in found:
            store.append_line(folder / f"{name}@{zone}.jsonl", observation.model_dump_json(exclude_none=True))
        count += len(found)
    click.echo(f"{count} observations added to {folder}")


def _known(before: Mapping[tuple[str, str], Observed]) -> spot_records.Known:
    from planner.outside import spot_records

    rows = [(place, row) for place, observed in before.items() for row in observed.rows]
    return spot_records.Known(
        activities=frozenset(row.activity for _, row in rows if row.activity),
        instances={row.instance: place for place, row in rows if row.instance},
    )
