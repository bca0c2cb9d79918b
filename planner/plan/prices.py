"""Prices that moved by more than half since the catalogue that scav brings along.

A catalogue can arrive in the very pull request that is judged by its prices. So a review and a check name what moved
far: in the whole catalogue where it is at hand, and always in the plan's own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import NonNegativeInt, PositiveFloat

from planner.contract import Contract
from planner.inputs import Catalog, Snapshot
from planner.plan.check.comparison import Difference, difference
from planner.plan.schema import Plan
from planner.search import volume_hourly_usd

LARGEST_MOVE = 0.5
MOST_SHOWN = 10


class MovedPrice(Contract):
    name: str
    known_usd: PositiveFloat
    usd: PositiveFloat


class PriceComparison(Contract):
    """`moved`: the farthest first. `unknown`: prices that the known catalogue does not have."""

    known: str
    whole_catalog: bool
    compared: NonNegativeInt
    unknown: NonNegativeInt = 0
    moved: tuple[MovedPrice, ...] = ()


class _Price(NamedTuple):
    name: str
    known_usd: float | None
    usd: float


def compare_prices(plan: Plan, catalog: Catalog | None, known: Snapshot) -> PriceComparison:
    """`catalog`: the one that the plan was made with; None where it is not at hand."""
    prices = [*_of_plan(plan, known.catalog), *(_of_catalog(catalog, known.catalog) if catalog else ())]
    moved = [price for price in prices if price.known_usd and _move(price.known_usd, price.usd) > LARGEST_MOVE]
    return PriceComparison(
        known=known.name,
        whole_catalog=catalog is not None,
        compared=sum(price.known_usd is not None for price in prices),
        unknown=sum(price.known_usd is None for price in prices),
        moved=tuple(
            MovedPrice(name=price.name, known_usd=price.known_usd, usd=price.usd)
            for price in sorted(moved, key=_farthest_first)
            if price.known_usd
        ),
    )


def price_lines(moved: Iterable[MovedPrice]) -> Iterator[tuple[str, str, str]]:
    """Name, before and after, for people."""
    for price in moved:
        yield price.name, f"${price.known_usd:.6g}", f"${price.usd:.6g}"


def price_differences(found: PriceComparison) -> list[Difference]:
    """The farthest, and how many more."""
    shown = [
        difference(f"price of {name}", f"{before} in {found.known}", after)
        for name, before, after in price_lines(found.moved[:MOST_SHOWN])
    ]
    more = len(found.moved) - len(shown)
    return [*shown, difference("prices", "within half", f"{more:,} more moved farther")] if more else shown


def price_notes(plan: Plan, found: PriceComparison) -> list[str]:
    """What could not be compared."""
    notes = []
    if not found.whole_catalog:
        notes.append(f"prices that the plan does not hold: its catalogue {plan.inputs.catalog} is not beside it")
    if found.unknown:
        notes.append(f"{found.unknown:,} prices that the catalogue {found.known} does not have")
    return notes


def _move(known_usd: float, usd: float) -> float:
    return abs(usd / known_usd - 1)


def _farthest_first(price: _Price) -> tuple[float, str]:
    """By factors: a tenth of the price is as far as ten times the price."""
    ratio = price.usd / (price.known_usd or price.usd)
    return -max(ratio, 1 / ratio), price.name


def _of_catalog(catalog: Catalog, known: Catalog) -> list[_Price]:
    before = dict(_listed(known))
    return [_Price(name, before.get(name), usd) for name, usd in _listed(catalog)]


def _listed(catalog: Catalog) -> Iterator[tuple[str, float]]:
    """Every price under its name."""
    for offer in catalog.offers:
        name = f"{offer.instance_type} in {offer.region}"
        if offer.on_demand_usd is not None:
            yield f"{name}, on demand", offer.on_demand_usd
        yield from ((f"{name}, spot in {zone}", usd) for zone, usd in offer.spot_usd.items() if usd is not None)
    for region in catalog.regions:
        yield f"volumes in {region.name}", region.volume_usd_per_gib_month
        yield f"objects in {region.name}", region.object_storage_usd_per_gib_month


def _of_plan(plan: Plan, known: Catalog) -> Iterator[_Price]:
    """What the plan itself says that a node costs, and an hour of all of them."""
    choice = plan.choice
    offer = next(
        (row for row in known.offers if (row.instance_type, row.region) == (choice.instance_type, choice.region)), None
    )
    on_demand = offer.on_demand_usd if offer else None
    spot = offer.spot_usd.get(choice.availability_zone) if offer else None
    if plan.spot is not None:
        yield _Price("a node of this plan, on demand", on_demand, plan.spot.node_on_demand_usd)
        yield _Price("a node of this plan, spot", spot, plan.spot.node_spot_usd)
    beside = choice.checkpoint_tier.hourly_usd if choice.checkpoint_tier else 0.0
    if choice.hourly_usd > beside:
        yield _Price("an hour of this plan", _known_hour(plan, on_demand, spot, known), choice.hourly_usd - beside)


def _known_hour(plan: Plan, on_demand: float | None, spot: float | None, known: Catalog) -> float | None:
    choice = plan.choice
    if (choice.on_demand_count and on_demand is None) or (choice.spot_count and spot is None):
        return None
    region = next((row for row in known.regions if row.name == choice.region), None)
    monthly = region.volume_usd_per_gib_month if region else 0.0
    volumes = volume_hourly_usd(choice.root_volume_gib, plan.run.volume_mibps_or_default, monthly)
    machines = choice.on_demand_count * (on_demand or 0.0) + choice.spot_count * (spot or 0.0)
    return machines + choice.node_count * volumes
