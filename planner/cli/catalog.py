"""`scav catalog`: look at GPU machines and their prices, and refresh them from AWS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.inputs import warn
from planner.cli.options import PRECISIONS, catalog_option, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from planner.inputs import Catalog, InstanceType, Order, Precision


@click.group("catalog")
def command() -> None:
    """GPU machines, their prices and where the numbers come from."""


@command.command("list")
@click.argument("queries", metavar="[QUERY]...", nargs=-1)
@click.option(
    "--region",
    "regions",
    multiple=True,
    default=("us-east-1",),
    show_default=True,
    help="Repeatable, or `all`.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["type", "price", "price-per-gpu", "price-per-tflop", "spot"]),
    default="type",
    show_default=True,
    help="Cheapest first; machines without that price come last.",
)
@click.option(
    "--precision",
    type=PRECISIONS,
    default="bf16",
    show_default=True,
    help="Arithmetic that TFLOPS are counted in.",
)
@click.option("--spot/--on-demand", "on_spot", default=False, show_default="on-demand", help="Which price is divided.")
@catalog_option
@json_option
def list_command(
    queries: tuple[str, ...],
    regions: tuple[str, ...],
    order: Order,
    precision: Precision,
    on_spot: bool,
    catalog_file: Path | None,
    as_json: bool,
) -> None:
    """List the GPU machines that any QUERY means.

    A QUERY is an instance type (p4d.24xlarge, g5.*) or a GPU (A100:80GB, L4,L40S, 24GB..:8, where a lone
    number is GPUs per node). TFLOPS are dense peaks of the node, spot is the cheapest zone, $/PFLOPS is the
    hourly price of 1000 TFLOPS.
    """
    from planner.cli.catalog_tables import console, listing_table
    from planner.inputs import checked_regions, list_machines, select_instance_types, sort_listings
    from planner.outside.store import load_catalog

    loaded, name, sha256 = load_catalog(catalog_file, beside=Path())
    chosen = None if "all" in regions else checked_regions(loaded, regions)
    machines = select_instance_types(loaded, queries)
    listings = list_machines(loaded, machines, chosen, precision=precision, on_spot=on_spot)
    listings = sort_listings(listings, order, on_spot=on_spot)
    if as_json:
        rows = [listing.as_json() for listing in listings]
        _echo_json({"catalog": name, "sha256": sha256, "precision": precision, "machines": rows})
        return
    with_regions = chosen is None or len(chosen) > 1
    places = "all regions" if chosen is None else ", ".join(chosen)
    divided = "spot" if on_spot else "on-demand"
    click.echo(f"Catalogue {name}; USD per hour in {places}")
    click.echo(f"GiB per GPU, dense {precision} TFLOPS of the node; $/GPU and $/PFLOPS are {divided}\n")
    console().print(listing_table(listings, with_regions))


@command.command()
@click.argument("instance_type", metavar="TYPE")
@click.option("--region", "regions", multiple=True, default=("all",), show_default=True, help="Repeatable, or `all`.")
@catalog_option
@json_option
def show(instance_type: str, regions: tuple[str, ...], catalog_file: Path | None, as_json: bool) -> None:
    """Show everything known about the machine TYPE, and the sources."""
    from planner.cli.catalog_tables import console, fact_lines, offer_table, source_lines
    from planner.inputs import checked_regions, named_instance_type
    from planner.outside.store import load_catalog

    loaded, name, sha256 = load_catalog(catalog_file, beside=Path())
    machine = named_instance_type(loaded, instance_type)
    chosen = None if "all" in regions else checked_regions(loaded, regions)
    facts = _facts_as_json(loaded, machine, chosen)
    if as_json:
        _echo_json({"catalog": name, "sha256": sha256, **facts})
        return
    click.echo(f"{machine.name} in the catalogue {name}")
    click.echo("\n".join(fact_lines(loaded, machine)) + "\n")
    if facts["offers"]:
        console().print(offer_table(facts["offers"]))
    else:
        click.echo("Not offered" + ("." if chosen is None else f" in {', '.join(chosen)}."))
    click.echo("\nSources")
    click.echo("\n".join(source_lines(list(facts["sources"].values()))))


@command.command()
@click.option("--region", "regions", multiple=True, help="Repeatable; by default all that the account has enabled.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="Where to write catalog-DATE.json: beside the job.",
)
@click.option("--profile", help="AWS profile.")
@click.option("--frozen", is_flag=True, envvar="SCAV_FROZEN", help="Refuse to refresh.  [env: SCAV_FROZEN]")
def update(regions: tuple[str, ...], directory: Path, profile: str | None, frozen: bool) -> None:
    """Ask AWS for today's machines, prices and spot interruption classes and write them to catalog-DATE.json.

    Needs AWS credentials that may call ec2:Describe* and pricing:GetProducts; the calls read only and cost
    nothing. Regions that are not asked for keep the rows and the dates they have.
    """
    import datetime

    from planner.errors import ScavError
    from planner.inputs import checked_regions
    from planner.outside.store import load_catalog, write_text_atomically

    if frozen:
        raise ScavError("the catalogue is frozen (--frozen or SCAV_FROZEN): not refreshed")
    old, _, _ = load_catalog(None, beside=directory)
    today = datetime.datetime.now(datetime.UTC).date()
    text, warnings = _refresh(old, checked_regions(old, regions), profile, today)
    warn(warnings)
    file = directory / f"catalog-{today.isoformat()}.json"
    write_text_atomically(file, text)
    click.echo(f"Wrote {file}")


ADVISOR_VARIABLE = "SCAV_SPOT_ADVISOR_URL"  # for a mirror, where AWS's public file is out of reach


def _refresh(old: Catalog, asked: Sequence[str], profile: str | None, today: date) -> tuple[str, list[str]]:
    from planner.errors import AwsFailed
    from planner.inputs import ADVISOR_URL, format_catalog, refresh_catalog
    from planner.outside import assets, aws
    from planner.outside.store import load_catalog

    session = aws.open_session(profile)
    pricing = aws.open_pricing(session)
    warnings = []
    if not asked:
        enabled = aws.fetch_enabled_regions(aws.open_ec2(session, aws.PRICE_LIST_REGION))
        asked = [region.name for region in old.regions if region.name in enabled]
        left = [region.name for region in old.regions if region.name not in enabled]
        warnings += [f"kept the old rows of {', '.join(left)}: not enabled in this account"] if left else []
    answers = [
        aws.fetch_region(aws.open_ec2(session, region), pricing, region, date=today) for region in _with_progress(asked)
    ]
    sheets, _, _ = load_catalog(assets.embedded_catalog(), beside=Path())
    classes = None
    try:
        classes = aws.fetch_interruption_classes(os.environ.get(ADVISOR_VARIABLE) or ADVISOR_URL)
    except AwsFailed as error:  # prices are worth having without them
        warnings.append(f"kept the old interruption classes: {error}")
    refreshed, left_out = refresh_catalog(old, sheets, answers, date=today, classes=classes)
    return format_catalog(refreshed), warnings + left_out


def _with_progress(regions: Sequence[str]) -> Iterator[str]:
    """The regions, one after the other, with a bar on stderr if somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Asking AWS", total=len(regions))
        for region in regions:
            progress.update(task, description=f"Asking AWS about {region}")
            yield region
            progress.advance(task)


def _facts_as_json(catalog: Catalog, machine: InstanceType, regions: Sequence[str] | None) -> dict[str, Any]:
    gpu = catalog.gpu_of(machine)
    offers = [
        offer
        for offer in catalog.offers
        if offer.instance_type == machine.name and (regions is None or offer.region in regions)
    ]
    cited = [machine.source, machine.measured_allreduce_source, gpu.source]
    cited += [name for offer in offers for name in (offer.source, offer.interruption_source)]
    return {
        "instance_type": machine.model_dump(mode="json"),
        "gpu": gpu.model_dump(mode="json"),
        "offers": [offer.model_dump(mode="json") for offer in offers],
        "sources": {name: catalog.sources[name].model_dump(mode="json") for name in dict.fromkeys(cited) if name},
    }


def _echo_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
