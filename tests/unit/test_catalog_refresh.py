"""What a refresh keeps, replaces and leaves out."""

from __future__ import annotations

import datetime

import pytest

from planner.inputs.catalog.refresh import Machine, RegionAnswer, network_gbps, refresh_catalog
from planner.inputs.catalog.snapshot import format_catalog, parse_catalog
from planner.outside import assets

OLD = parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="snapshot.json")
TODAY = datetime.date(2026, 11, 16)
SOURCE = "aws-api-2026-11-16"


def machine(name, **changes):
    """The machine as the snapshot has it, unless changed."""
    kind = OLD.instance_type_by_name.get(name, OLD.instance_type_by_name["g5.xlarge"])
    gpu = OLD.gpu_of(kind)
    fields = {field: getattr(kind, field) for field in Machine.__dataclass_fields__ if hasattr(kind, field)}
    return Machine(**fields | {"name": name, "gpu_name": gpu.model, "gpu_memory_gib": gpu.memory_gib} | changes)


def answer(*machines, region="us-east-1", **changes):
    fields = {
        "zones": {each.name: ["use1-az2", "use1-az1"] for each in machines},
        "on_demand_usd": {each.name: 2.0 for each in machines},
        "spot_usd": {(each.name, "use1-az1"): 0.5 for each in machines},
    }
    return RegionAnswer(region=region, machines=machines, **fields | changes)


def refresh(*answers):
    return refresh_catalog(OLD, OLD, answers, date=TODAY)


def offers(catalog, region):
    return {offer.instance_type: offer for offer in catalog.offers if offer.region == region}


def test_an_answered_region_is_replaced_and_the_others_stay():
    new, left_out = refresh(answer(machine("g5.xlarge")))
    assert left_out == []
    assert new.date == TODAY
    assert list(offers(new, "us-east-1")) == ["g5.xlarge"]
    offer = offers(new, "us-east-1")["g5.xlarge"]
    assert (offer.on_demand_usd, offer.spot_usd) == (2.0, {"use1-az1": 0.5, "use1-az2": None})
    assert (offer.source, new.sources[SOURCE].date) == (SOURCE, TODAY)
    assert offers(new, "eu-west-1") == offers(OLD, "eu-west-1")


def test_interruption_classes_are_carried_over_with_their_source():
    before = offers(OLD, "us-east-1")["g5.xlarge"]
    after = offers(refresh(answer(machine("g5.xlarge")))[0], "us-east-1")["g5.xlarge"]
    assert before.interruption_class is not None
    assert (after.interruption_class, after.interruption_source) == (before.interruption_class, "aws-spot-advisor")


def test_machine_facts_are_refreshed_and_data_sheet_facts_kept():
    new, _ = refresh(answer(machine("g4dn.12xlarge", vcpu=52)))
    row, old = new.instance_type_by_name["g4dn.12xlarge"], OLD.instance_type_by_name["g4dn.12xlarge"]
    assert (row.vcpu, row.source) == (52, SOURCE)
    assert (row.gpu_link, row.measured_allreduce_gbps) == (old.gpu_link, old.measured_allreduce_gbps)
    assert new.gpus == OLD.gpus


def test_a_new_size_of_a_known_family_gets_its_familys_link():
    new, left_out = refresh(answer(machine("p5.24xlarge", gpu_name="H100", gpu_memory_gib=80.0, gpu_count=4)))
    row = new.instance_type_by_name["p5.24xlarge"]
    assert left_out == []
    assert (row.gpu, row.gpu_link, row.gpu_link_gb_per_second) == ("H100", "NVLink 4", 450)


def test_what_has_no_data_sheet_is_left_out_and_named():
    strange = [machine("g7.8xlarge", gpu_name="RTX PRO 4500"), machine("g7.2xlarge", gpu_name="RTX PRO 4500")]
    new, left_out = refresh(answer(*strange, machine("g5.xlarge")))
    assert left_out == ["left out g7.2xlarge, g7.8xlarge: no data sheet or link for the GPU RTX PRO 4500"]
    assert set(offers(new, "us-east-1")) == {"g5.xlarge"}


def test_a_machine_without_prices_is_offered_without_prices():
    new, _ = refresh(answer(machine("p5e.48xlarge"), on_demand_usd={}, spot_usd={}))
    offer = offers(new, "us-east-1")["p5e.48xlarge"]
    assert (offer.on_demand_usd, set(offer.spot_usd.values())) == (None, {None})


def test_data_sheets_of_this_release_reach_an_old_catalogue():
    older = OLD.model_copy(
        update={
            "gpus": tuple(gpu for gpu in OLD.gpus if gpu.name != "B300"),
            "instance_types": tuple(kind for kind in OLD.instance_types if kind.gpu != "B300"),
            "offers": tuple(offer for offer in OLD.offers if not offer.instance_type.startswith("p6-b300")),
        }
    )
    new, _ = refresh_catalog(older, OLD, [answer(machine("p6-b300.48xlarge"))], date=TODAY)
    assert "B300" in {gpu.name for gpu in new.gpus}
    assert set(offers(new, "us-east-1")) == {"p6-b300.48xlarge"}


def test_the_result_is_a_catalogue_whose_sources_are_all_cited():
    new, _ = refresh(answer(machine("g5.xlarge")), answer(machine("g6.xlarge"), region="eu-west-1"))
    assert parse_catalog(format_catalog(new), file="new.json") == new
    assert new.cited_sources() == set(new.sources)


@pytest.mark.parametrize(
    ("wording", "gbps"),
    [
        ("Up to 25 Gigabit", 25),
        ("4x 100 Gigabit", 400),
        ("3200 Gigabit", 3200),
        ("Up to 12.5 Gigabit", 12.5),
        ("High", None),
        ("", None),
    ],
)
def test_network_wording(wording, gbps):
    assert network_gbps(wording) == gbps
