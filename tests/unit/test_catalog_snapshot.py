"""The embedded snapshot tells no lies that a machine can find, and catalogues survive being written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from planner.errors import InputError
from planner.inputs.catalog.snapshot import format_catalog, parse_catalog
from planner.inputs.catalog.tables import Catalog
from planner.outside import assets

TEXT = assets.embedded_catalog().read_text(encoding="utf-8")
CATALOG = parse_catalog(TEXT, file="snapshot.json")
FAMILIES = [
    "g4dn",
    "g5",
    "g6",
    "gr6",
    "g6e",
    "g7e",
    "p3",
    "p3dn",
    "p4d",
    "p4de",
    "p5",
    "p5e",
    "p5en",
    "p6-b200",
    "p6-b300",
]
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")


def test_reformatting_changes_no_byte():
    assert format_catalog(CATALOG) == TEXT


def test_a_catalogue_survives_being_written():
    assert parse_catalog(format_catalog(CATALOG), file="again.json") == CATALOG


def test_parsing_is_fast_enough_for_every_command():
    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    reading = min(seconds(lambda: json.loads(TEXT)) for _ in range(5))
    assert min(seconds(lambda: parse_catalog(TEXT, file="snapshot.json")) for _ in range(5)) < 20 * reading


def test_each_family_is_there():
    assert {kind.family for kind in CATALOG.instance_types} == set(FAMILIES)


def test_each_fact_has_a_source_and_each_source_is_used():
    assert CATALOG.cited_sources() == set(CATALOG.sources)
    assert all(source.title and source.date <= CATALOG.date for source in CATALOG.sources.values())
    assert all(source.url and source.url.startswith("https://") for source in CATALOG.sources.values())


def test_no_path_of_any_machine_is_in_it():
    assert not any(word in TEXT for word in ("/work", "/home", "/tmp", "/root"))  # noqa: S108


@pytest.mark.parametrize("gpu", CATALOG.gpus, ids=lambda gpu: gpu.name)
def test_a_narrower_precision_is_never_slower(gpu):
    peaks = [gpu.dense_tflops[precision] for precision in PRECISIONS if precision in gpu.dense_tflops]
    assert peaks == sorted(peaks)
    assert {"fp32", "fp16"} <= set(gpu.dense_tflops)
    assert ("tf32" in gpu.dense_tflops) == ("bf16" in gpu.dense_tflops)


@pytest.mark.parametrize("gpu", CATALOG.gpus, ids=lambda gpu: gpu.name)
def test_usable_and_nominal_memory_agree(gpu):
    """Nominal is decimal for some cards and binary for others, so usable lies between the two."""
    assert gpu.nominal_memory_gb / 1.0738 <= gpu.memory_gib <= gpu.nominal_memory_gb


@pytest.mark.parametrize("kind", CATALOG.instance_types, ids=lambda kind: kind.name)
def test_a_machine_is_plausible(kind):
    assert kind.gpu_count in (1, 2, 4, 8)
    assert kind.network_baseline_gbps <= kind.network_peak_gbps
    assert kind.efa_interfaces <= kind.network_cards
    assert kind.ram_gib >= 2 * kind.vcpu
    assert (kind.measured_allreduce_gbps is None) == (kind.measured_allreduce_source is None)
    assert kind.measured_allreduce_gbps is None or kind.measured_allreduce_gbps < kind.network_peak_gbps


@pytest.mark.parametrize(
    ("name", "gbps", "cards", "efa"),
    [
        ("g6e.24xlarge", 200, 2, 2),
        ("g6e.48xlarge", 400, 4, 4),
        ("p4d.24xlarge", 400, 4, 4),
        ("p5.4xlarge", 100, 1, 1),
        ("p5.48xlarge", 3200, 32, 32),
        ("p5en.48xlarge", 3200, 16, 16),
        ("p6-b200.48xlarge", 3200, 8, 8),
        ("p6-b300.48xlarge", 6400, 17, 16),
    ],
)
def test_network_of_nodes_with_several_cards(name, gbps, cards, efa):
    kind = CATALOG.instance_type_by_name[name]
    assert (kind.network_peak_gbps, kind.network_cards, kind.efa_interfaces) == (gbps, cards, efa)


def test_spot_is_never_dearer_than_on_demand():
    """AWS caps spot at the on-demand price; the source rounds spot to four decimals."""
    dearer = [
        (offer.instance_type, zone)
        for offer in CATALOG.offers
        for zone, spot in offer.spot_usd.items()
        if spot and offer.on_demand_usd and spot > offer.on_demand_usd + 0.00006
    ]
    assert dearer == []


def test_prices_per_gpu_are_plausible():
    for offer in CATALOG.offers:
        kind = CATALOG.instance_type_by_name[offer.instance_type]
        prices = [price for price in (offer.on_demand_usd, *offer.spot_usd.values()) if price is not None]
        assert all(0.05 < price / kind.gpu_count < 30 for price in prices), offer


def test_zones_belong_to_their_region():
    """Local zones are not offered: their IDs have a city in the middle."""
    prefixes = {}
    for offer in CATALOG.offers:
        prefixes.setdefault(offer.region, set()).update(zone.rpartition("-")[0] for zone in offer.spot_usd)
    assert all(len(found) == 1 and "-" not in min(found) for found in prefixes.values()), prefixes


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-west-1", "ap-northeast-1"])
def test_main_regions_are_priced(region):
    offers = [offer for offer in CATALOG.offers if offer.region == region]
    assert len(offers) >= 15
    assert all(offer.on_demand_usd for offer in offers if not offer.instance_type.startswith("p5e."))
    assert all(any(offer.spot_usd.values()) for offer in offers)


def test_old_p3_is_known_but_not_sold_and_p5e_only_as_spot():
    sold = {offer.instance_type for offer in CATALOG.offers}
    assert not {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"} & sold
    assert {kind.name for kind in CATALOG.instance_types} - sold == {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}
    assert {offer.on_demand_usd for offer in CATALOG.offers if offer.instance_type == "p5e.48xlarge"} == {None}


def test_interruption_classes_name_their_source():
    with_class = [offer for offer in CATALOG.offers if offer.interruption_class is not None]
    assert len(with_class) > 200
    assert {offer.interruption_source for offer in with_class} == {"aws-spot-advisor"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('{\n"schema_version"', '{\n,"schema_version"', "bad.json: is no JSON: "),
        ('"vcpu": 4,', '"vcpu": -4,', "bad.json: instance_types[0] (g4dn.xlarge).vcpu: input should be greater than 0"),
        (
            '"vcpu": 4,',
            '"vcpu": 4, "vpcu": 4,',
            "bad.json: instance_types[0] (g4dn.xlarge).vpcu: unknown key; did you mean vcpu?",
        ),
        ('"gpu": "T4"', '"gpu": "T5"', "bad.json: g4dn.xlarge names GPU T5, which has no data sheet row"),
        ('"on_demand_usd": ', '"on_demand_usd": -', "bad.json: offers[0] (g4dn.xlarge in af-south-1).on_demand_usd: "),
        ('"name": "g4dn.2xlarge"', '"name": "g4dn.xlarge"', "bad.json: instance type g4dn.xlarge is listed twice"),
        ('"source": "aws-prices"', '"source": "hearsay"', "bad.json: rows cite unknown sources: hearsay"),
        ('"schema_version": 1', '"schema_version": 2', "bad.json: schema_version: 2 is not 1"),
    ],
)
def test_a_fault_is_named_on_one_line(before, after, message):
    with pytest.raises(InputError) as caught:
        parse_catalog(TEXT.replace(before, after, 1), file="bad.json")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[" * 100_000, '{"offers": {"a": 1}}', '"\ud800"'])
def test_any_other_text_is_an_input_error(text):
    with pytest.raises(InputError):
        parse_catalog(text, file="bad.json")


def test_an_empty_catalogue_is_a_catalogue():
    empty = Catalog(date="2026-01-01", sources={}, gpus=(), instance_types=(), regions=(), offers=())
    assert parse_catalog(format_catalog(empty), file="empty.json") == empty
