"""What a catalogue becomes once AWS has answered for some regions.

AWS serves machines, zones, prices and, in a file of its own, spot interruption classes. It serves no data sheets (peak
TFLOPS, GPU links): those are carried over, and a machine whose GPU nobody has a data sheet for is left out and named.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.inputs.catalog.advisor import ADVISOR_URL
from planner.inputs.catalog.gpu_query import comparable
from planner.inputs.catalog.tables import Catalog, Gpu, InstanceType, Offer, Source

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What AWS says about one instance type with NVIDIA GPUs."""

    name: str
    gpu_name: str
    gpu_memory_gib: float
    gpu_count: int
    vcpu: int
    ram_gib: float
    network_baseline_gbps: float
    network_peak_gbps: float
    network_cards: int
    efa_interfaces: int
    local_ssd_gb: int

    def row_fields(self) -> dict[str, Any]:
        own = ("name", "gpu_count", "vcpu", "ram_gib", "local_ssd_gb", "efa_interfaces")
        network = ("network_baseline_gbps", "network_peak_gbps", "network_cards")
        return {field: getattr(self, field) for field in (*own, *network)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionAnswer:
    """What AWS says about one region; prices in USD per node and hour."""

    region: str
    machines: Sequence[Machine]
    zones: Mapping[str, Sequence[str]]
    on_demand_usd: Mapping[str, float]
    spot_usd: Mapping[tuple[str, str], float]


def refresh_catalog(
    old: Catalog,
    sheets: Catalog,
    answers: Sequence[RegionAnswer],
    *,
    date: datetime.date,
    classes: Mapping[tuple[str, str], int] | None = None,
) -> tuple[Catalog, list[str]]:
    """The catalogue of `date`, and a line for each GPU that was left out.

    `sheets` brings the data sheets of this release, which may know GPUs that `old` does not. `classes`: interruption
    classes by region and instance type; those that are not among them stay.
    """
    source_name = f"aws-api-{date.isoformat()}"
    advice = _Advice(classes or {}, f"aws-spot-advisor-{date.isoformat()}")
    gpus = _united(old.gpus, sheets.gpus)
    rows = {instance_type.name: instance_type for instance_type in _united(old.instance_types, sheets.instance_types)}
    machines = {machine.name: machine for answer in answers for machine in answer.machines}
    without_sheet: dict[str, list[str]] = defaultdict(list)
    for machine in machines.values():
        row = _refreshed_row(machine, rows, gpus, source_name)
        if row is None:
            without_sheet[machine.gpu_name].append(machine.name)
        else:
            rows[machine.name] = row

    answered = {answer.region for answer in answers}
    offers = [offer for offer in old.offers if offer.region not in answered]
    for answer in answers:
        offers += _offers(answer, rows.values(), old, source_name, advice)
    refreshed = Catalog.model_construct(
        date=date,
        sources=old.sources | sheets.sources | {source_name: _source(date), advice.source: _advisor_source(date)},
        gpus=tuple(gpus),
        instance_types=tuple(rows.values()),
        regions=tuple(_united(old.regions, sheets.regions)),
        offers=tuple(sorted(offers, key=lambda offer: offer.region)),
    )
    cited = refreshed.cited_sources()
    sources = {name: source for name, source in refreshed.sources.items() if name in cited}
    checked = Catalog.model_validate(dict(refreshed) | {"sources": sources})
    return checked, [
        f"left out {', '.join(sorted(names))}: no data sheet or link for the GPU {gpu}"
        for gpu, names in sorted(without_sheet.items())
    ]


def _source(date: datetime.date) -> Source:
    title = "AWS APIs: DescribeInstanceTypes, offerings, spot price history and price list"
    return Source(title=title, date=date, url="https://docs.aws.amazon.com/AWSEC2/latest/APIReference/")


def _advisor_source(date: datetime.date) -> Source:
    return Source(title="AWS Spot Instance Advisor", date=date, url=ADVISOR_URL)


class _Advice(NamedTuple):
    classes: Mapping[tuple[str, str], int]
    source: str


def _united(old: Iterable[Any], newer: Iterable[Any]) -> list[Any]:
    """Rows of both by name; where both have one, the newer."""
    return list(({row.name: row for row in old} | {row.name: row for row in newer}).values())


def _refreshed_row(
    machine: Machine, rows: Mapping[str, InstanceType], gpus: Iterable[Gpu], source: str
) -> InstanceType | None:
    fresh = {**machine.row_fields(), "source": source}
    if machine.name in rows:
        return rows[machine.name].model_copy(update=fresh)
    gpu = next((gpu for gpu in gpus if _is_same_gpu(gpu, machine)), None)
    family = machine.name.partition(".")[0]
    # A single GPU hangs on PCIe where larger sisters have NVLink, so a sister of the same kind comes first.
    sisters = sorted(
        (instance_type for instance_type in rows.values() if instance_type.family == family),
        key=lambda instance_type: (instance_type.gpu_count > 1) != (machine.gpu_count > 1),
    )
    if gpu is None or not sisters:
        return None
    link = {"gpu_link": sisters[0].gpu_link, "gpu_link_gb_per_second": sisters[0].gpu_link_gb_per_second}
    return InstanceType(gpu=gpu.name, **fresh, **link)


def _is_same_gpu(gpu: Gpu, machine: Machine) -> bool:
    # AWS says `RTX PRO Server 6000` where NVIDIA and everyone else say `RTX PRO 6000`.
    aws_name = comparable(machine.gpu_name.replace("Server", ""))
    named = aws_name in {comparable(gpu.name), comparable(gpu.model)}
    return named and abs(gpu.memory_gib - machine.gpu_memory_gib) < 0.05 * gpu.memory_gib


def _offers(
    answer: RegionAnswer, instance_types: Iterable[InstanceType], old: Catalog, source: str, advice: _Advice
) -> Iterable[Offer]:
    before = {offer.instance_type: offer for offer in old.offers if offer.region == answer.region}
    for instance_type in instance_types:
        zones = sorted(answer.zones.get(instance_type.name, ()))
        if not zones:
            continue
        known = before.get(instance_type.name)
        fresh = advice.classes.get((answer.region, instance_type.name))
        carried = known.interruption_class if known else None
        yield Offer(
            instance_type=instance_type.name,
            region=answer.region,
            on_demand_usd=answer.on_demand_usd.get(instance_type.name),
            spot_usd={zone: answer.spot_usd.get((instance_type.name, zone)) for zone in zones},
            interruption_class=carried if fresh is None else fresh,
            interruption_source=advice.source
            if fresh is not None
            else (known.interruption_source or known.source)
            if known and carried is not None
            else None,
            source=source,
        )


def network_gbps(wording: str) -> float | None:
    """The bandwidth of a node as AWS words it: `Up to 25 Gigabit`, `4x 100 Gigabit`, `3200 Gigabit`."""
    words = re.fullmatch(r"(?:Up to )?(?:(\d+)x )?(\d+(?:\.\d+)?) Gigabit", wording)
    return float(words[2]) * int(words[1] or 1) if words else None
