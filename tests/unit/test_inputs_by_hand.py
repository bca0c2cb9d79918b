"""Traces, listings, catalogues and measured rows: small inputs whose answers can be counted."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from small_world import CATALOG, OFFERS, ONE, PRO, TWO, catalog, instance_type, offer

from planner.errors import InputError
from planner.inputs.catalog.advisor import parse_advisor
from planner.inputs.catalog.gpu_query import parse_gpu_query
from planner.inputs.catalog.listing import list_machines, sort_listings
from planner.inputs.catalog.refresh import Machine, RegionAnswer, refresh_catalog
from planner.inputs.catalog.snapshot import parse_catalog
from planner.inputs.catalog.tables import Catalog
from planner.inputs.measurements import Measurement, median, parse_measurements, usable
from planner.inputs.traces import Trace, parse_trace

TRACE = Trace(name="zone", tick_seconds=1800.0, counts=np.array([0, 2, 4, 4, 1, 4]))


def document(data: object, gap: object = 60, **more: object) -> dict[str, object]:
    return {"metadata": {"gap_seconds": gap}, "data": data, **more}


class TestTraces:
    def test_six_half_hours(self) -> None:
        assert (TRACE.hours, TRACE.size) == (3.0, 4)
        assert TRACE.gang().tolist() == [False, False, True, True, False, True]
        assert TRACE.gang(2).tolist() == [False, True, True, True, False, True]
        assert TRACE.gang(0).tolist() == TRACE.gang(1).tolist() == [False, True, True, True, True, True]

    def test_stretches(self) -> None:
        begin, end, up = TRACE.stretches(4)
        assert (begin.tolist(), end.tolist()) == ([0.0, 1.0, 2.0, 2.5], [1.0, 2.0, 2.5, 3.0])
        assert up.tolist() == [False, True, False, True]

    def test_shares_of_a_gang_that_are_there(self) -> None:
        assert TRACE.there().tolist() == [0.0, 0.5, 1.0, 1.0, 0.25, 1.0]
        assert TRACE.there(2).tolist() == [0.0, 1.0, 1.0, 1.0, 0.5, 1.0]
        # Of a single node nothing else is known: a tenth of the gang that it stands for.
        assert TRACE.there(1, 0.1).tolist() == [0.1, 1.0, 1.0, 1.0, 1.0, 1.0]

    def test_a_look_every_45_minutes(self) -> None:
        # At 0, 0.75, 1.5 and 2.25 h: ticks 0, 1, 3, 4.
        assert TRACE.stepped(0.75, 2).tolist() == [False, True, True, False]
        assert len(TRACE.stepped(0.5)) == 6

    def test_where_it_is_from(self) -> None:
        assert (TRACE.place, Trace(name="zone", tick_seconds=1.0, counts=TRACE.counts, file="a.json").place) == (
            "zone",
            "a.json",
        )

    @pytest.mark.parametrize(
        ("good", "bad", "said"),
        [
            (document([1, 0], gap=1), document([1, 0], gap=0.99), "from 1 to a million"),
            (document([1, 0], gap=1_000_000), document([1, 0], gap=1_000_001), "from 1 to a million"),
            (document([1, 0]), document([1]), "need at least two ticks"),
            (document([1_000_000, 0]), document([1_000_001, 0]), "tick 0: 1000001 nodes are more than a million"),
            (document([2.0, 0]), document([2.5, 0]), "has a gap at tick 0: 2.5 is no node count; cut the trace there"),
            (document([1, 0]), document([1, True]), "has a gap at tick 1: True is no node count"),
            (
                document([1, 0], prices=[1e-9, 1_000_000]),
                document([1, 0], prices=[1, 1_000_001]),
                "more than a million dollars",
            ),
            (document([1, 0], prices=[1, 2]), document([1, 0], prices=[1, 0]), "tick 1: 0 is no price above 0"),
            (document([1, 0], prices=[1, 2]), document([1, 0], prices=[1]), "need one price for each of the 2 ticks"),
        ],
    )
    def test_the_last_that_is_taken_and_the_first_that_is_not(self, good: Any, bad: Any, said: str) -> None:
        parse_trace("zone", good)
        with pytest.raises(InputError, match=said):
            parse_trace("zone", bad)

    def test_what_it_holds(self) -> None:
        read = parse_trace("zone", document([3, 0.0], prices=[1, 2.5]), file="b.json")
        assert (read.counts.tolist(), read.tick_seconds, read.file) == ([3, 0], 60.0, "b.json")
        assert read.prices is not None
        assert read.prices.tolist() == [1.0, 2.5]
        assert parse_trace("zone", document([3, 0])).file == "zone"

    def test_a_long_value_is_cut(self) -> None:
        with pytest.raises(InputError, match="'" + "x" * 29 + "… is no node count"):
            parse_trace("zone", document(["x" * 40, 1]))


class TestListing:
    def rows(self, *regions: str, on_spot: bool = False, precision: Any = "bf16") -> list[Any]:
        return list_machines(CATALOG, [TWO, PRO], regions or None, precision=precision, on_spot=on_spot)

    def test_prices_per_gpu_and_per_tflop(self) -> None:
        # Two GPUs of 100 TFLOP/s for $2.
        row = self.rows("near")[0]
        assert (row.on_demand_usd, row.spot_usd, row.usd_per_gpu, row.node_tflops) == (2.0, 0.8, 1.0, 200.0)
        assert row.usd_per_tflops == pytest.approx(0.01)
        spot = self.rows("near", on_spot=True)[0]
        assert (spot.usd_per_gpu, spot.usd_per_tflops) == pytest.approx((0.4, 0.004))

    def test_what_is_not_known_is_none(self) -> None:
        assert self.rows("near", precision="fp8")[0].node_tflops is None
        assert self.rows("near", precision="fp8")[0].usd_per_tflops is None
        assert self.rows("near", on_spot=True)[1].usd_per_gpu is None
        far = {row.instance_type: row.offered for row in self.rows("far")}
        assert far == {"g1.two": True, "p1.two": False}

    def test_the_cheapest_zone_of_a_region(self) -> None:
        (row,) = list_machines(CATALOG, [ONE], ["near"], precision="bf16", on_spot=False)
        assert (row.spot_usd, row.interruption_class) == (0.4, 1)

    def test_without_regions_wherever_it_is_offered(self) -> None:
        assert [(row.instance_type, row.region) for row in self.rows()] == [
            ("g1.two", "near"),
            ("p1.two", "near"),
            ("g1.two", "far"),
        ]

    def test_order(self) -> None:
        rows = list_machines(CATALOG, CATALOG.instance_types, None, precision="bf16", on_spot=False)
        by_price = [(row.instance_type, row.region) for row in sort_listings(rows, "price", on_spot=False)]
        assert by_price[:2] == [("g1.one", "far"), ("g1.one", "near")]
        assert by_price[-1] == ("g1.two", "far")  # without a price on demand
        by_spot = [(row.instance_type, row.region) for row in sort_listings(rows, "spot", on_spot=False)]
        assert by_spot[0] == ("g1.two", "far")
        assert sort_listings(rows, "type", on_spot=True) == rows


class TestQueries:
    def test_a_size_is_meant_within_seven_percent(self) -> None:
        gpu = CATALOG.gpu_of(ONE)  # sold as 16 GB
        assert [parse_gpu_query(f"{size}GB").matches(ONE, gpu) for size in (14, 15, 16, 17, 18)] == [
            False, True, True, True, False,
        ]  # fmt: skip
        assert parse_gpu_query("..16GB").matches(ONE, gpu)
        assert not parse_gpu_query("..15GB").matches(ONE, gpu)
        assert parse_gpu_query("16GB..").matches(ONE, gpu)
        assert not parse_gpu_query("17GB..").matches(ONE, gpu)

    def test_all_parts_must_match(self) -> None:
        gpu = CATALOG.gpu_of(TWO)
        asked = {
            text: parse_gpu_query(text).matches(TWO, gpu) for text in ("unit:2", "unit:1", "other:2", "Unit:16GB:2..")
        }
        assert asked == {"unit:2": True, "unit:1": False, "other:2": False, "Unit:16GB:2..": True}


class TestCatalogue:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"offers": (*OFFERS, OFFERS[0])}, "offer g1.one in near is listed twice"),
            ({"offers": (offer("g9.x", "near", 1.0, {"near-az1": 1.0}),)}, "unknown instance type g9.x"),
            ({"offers": (offer("g1.one", "mars", 1.0, {"mars-az1": 1.0}),)}, "unknown region mars"),
            ({"instance_types": (ONE, ONE)}, "instance type g1.one is listed twice"),
            (
                {"instance_types": (instance_type("g1.y", 1, 1, gpu="other"),)},
                "g1.y names GPU other, which has no data",
            ),
            (
                {"instance_types": (instance_type("g1.y", 1, 1, network_peak_gbps=9),)},
                "g1.y has a network baseline above",
            ),
            ({"instance_types": (instance_type("g1.y", 1, 1, source="nobody"),)}, "rows cite unknown sources: nobody"),
        ],
    )
    def test_rows_must_agree(self, changes: dict[str, Any], said: str) -> None:
        columns = {name: getattr(CATALOG, name) for name in Catalog.model_fields}
        if "instance_types" in changes:
            columns["offers"] = ()
        with pytest.raises(ValidationError, match=said):
            Catalog(**{**columns, **changes})

    def test_a_network_at_its_peak_is_fine(self) -> None:
        level = instance_type("g1.y", 1, 1, network_baseline_gbps=10, network_peak_gbps=10)
        assert catalog(offer("g1.y", "near", 1.0, {"near-az1": 1.0}), types=(level,)).instance_types == (level,)

    def test_types_without_an_offer_are_known(self) -> None:
        few = catalog(OFFERS[0])
        assert {name: len(rows) for name, rows in few.offers_by_type.items()} == {"g1.one": 1, "g1.two": 0, "p1.two": 0}

    def test_families_quotas_and_peaks(self) -> None:
        assert (ONE.family, ONE.quota_class, PRO.quota_class) == ("g1", "g", "p")
        gpu = CATALOG.gpu_of(ONE)
        assert gpu.peak_flops_per_second("bf16") == 1e14
        assert gpu.peak_flops_per_second("tf32") == 1e13  # as fp32
        assert gpu.peak_flops_per_second("fp16") is None

    def test_a_fault_names_the_row(self) -> None:
        text = CATALOG.model_dump(mode="json")
        text["offers"][1]["on_demand_usd"] = -1
        with pytest.raises(InputError, match=r"x.json: offers\[1\] \(g1.one in far\).on_demand_usd: "):
            parse_catalog(json.dumps(text), file="x.json")
        text["offers"][1]["on_demand_usd"] = 1
        text["gpus"][0]["memory_gib"] = 0
        with pytest.raises(InputError, match=r"x.json: gpus\[0\] \(unit\).memory_gib: "):
            parse_catalog(json.dumps(text), file="x.json")


class TestRefresh:
    DAY = datetime.date(2026, 2, 2)

    def machine(self, name: str, gpus: int, **changes: Any) -> Machine:
        usual: dict[str, Any] = {
            "gpu_name": "unit",
            "gpu_memory_gib": 16.0,
            "vcpu": 4,
            "ram_gib": 64.0,
            "network_baseline_gbps": 10.0,
            "network_peak_gbps": 10.0,
            "network_cards": 1,
            "efa_interfaces": 0,
            "local_ssd_gb": 0,
        }
        return Machine(**{**usual, "name": name, "gpu_count": gpus, **changes})

    def refreshed(self, *machines: Machine, classes: Any = None) -> tuple[Catalog, list[str]]:
        links = (ONE, TWO.model_copy(update={"gpu_link": "NVLink 9", "gpu_link_gb_per_second": 99.0}))
        old = catalog(*OFFERS[:4], types=links)
        answer = RegionAnswer(
            region="near",
            machines=machines,
            zones={machine.name: ["near-az1"] for machine in machines},
            on_demand_usd={},
            spot_usd={},
        )
        return refresh_catalog(old, old, [answer], date=self.DAY, classes=classes)

    def test_a_new_size_has_the_link_of_a_sister_with_as_many_gpus_or_as_few(self) -> None:
        new, left_out = self.refreshed(self.machine("g1.four", 4), self.machine("g1.uno", 1))
        links = {name: new.instance_type_by_name[name].gpu_link for name in ("g1.four", "g1.uno")}
        assert links == {"g1.four": "NVLink 9", "g1.uno": "PCIe 4.0 x16"}
        assert left_out == []

    @pytest.mark.parametrize(("memory", "known"), [(16.79, True), (16.81, False), (15.21, True), (15.19, False)])
    def test_a_gpu_is_the_same_within_five_percent_of_its_memory(self, memory: float, known: bool) -> None:
        new, left_out = self.refreshed(self.machine("g1.new", 1, gpu_memory_gib=memory))
        assert ("g1.new" in new.instance_type_by_name) is known
        assert bool(left_out) is not known

    def test_a_family_that_nobody_knows_is_left_out(self) -> None:
        _, left_out = self.refreshed(self.machine("g2.new", 1))
        assert left_out == ["left out g2.new: no data sheet or link for the GPU unit"]

    def test_fresh_classes_replace_and_others_stay(self) -> None:
        classes = {("near", "g1.two"): 0}
        new, _ = self.refreshed(self.machine("g1.one", 1), self.machine("g1.two", 2), classes=classes)
        found = {
            row.instance_type: (row.interruption_class, row.interruption_source)
            for row in new.offers
            if row.region == "near"
        }
        assert found == {"g1.one": (1, "test"), "g1.two": (0, "aws-spot-advisor-2026-02-02")}

    def test_the_advisor_s_file(self) -> None:
        text = json.dumps(
            {"spot_advisor": {"near": {"Linux": {"a": {"r": 0}, "b": {"r": 4}, "c": {"r": 5}, "d": 3}, "Windows": {}}}}
        )
        assert parse_advisor(text) == {("near", "a"): 0, ("near", "b"): 4}
        with pytest.raises(InputError, match="a format that scav does not know"):
            parse_advisor("{}")


def row(**changes: Any) -> Measurement:
    usual: dict[str, Any] = {
        "instance_type": "g1.one",
        "nodes": 1,
        "gpus_per_node": 1,
        "gpu_batch": 2,
        "precision": "bf16",
        "step_seconds": 0.1,
    }
    return Measurement(**{**usual, **changes})


class TestMeasurements:
    def test_what_says_nothing_is_counted_by_its_reason(self) -> None:
        rows = (
            row(),
            row(instance_type="other"),
            row(instance_type="other"),
            row(gpus_per_node=2),
            row(precision="fp32"),
        )
        found = usable(rows, CATALOG, "bf16")
        assert found.rows == (rows[0],)
        assert found.warnings == (
            "used without 1 of 5 measurements: 2 GPUs per node is not a whole g1.one",
            "used without 2 of 5 measurements: other is not in the catalogue",
            "used without 1 of 5 measurements: taken in fp32, the job uses bf16",
        )
        assert usable((row(precision="fp16"),), CATALOG, "fp16").warnings == (
            "used without 1 of 1 measurements: g1.one has no units for fp16",
        )

    def test_medians_of_what_is_known(self) -> None:
        assert (median([None, 3.0, 1.0, None, 2.0]), median([1.0, 2.0]), median([None])) == (2.0, 1.5, None)

    def test_only_the_last_line_may_be_torn(self) -> None:
        line = row().model_dump_json(exclude_defaults=True)
        whole = parse_measurements(f"{line}\n\n{line}\n", file="m.jsonl")
        assert (len(whole.rows), whole.warnings) == (2, ())
        torn = parse_measurements(f"{line}\n{line[:20]}", file="m.jsonl")
        assert (len(torn.rows), torn.warnings) == (1, ("m.jsonl:2: the last line is torn; used without it",))
        with pytest.raises(InputError, match=r"m\.jsonl:1: "):
            parse_measurements(f"{line[:20]}\n{line}\n", file="m.jsonl")
        with pytest.raises(InputError, match=r"m\.jsonl:2: "):
            parse_measurements(f"{line}\n{line[:20]}\n", file="m.jsonl")

    @pytest.mark.parametrize(
        ("key", "last", "too_much"),
        [
            ("nodes", 2**24, 2**24 + 1),
            ("nodes", 1, 0),
            ("step_seconds", 1e-6, 0.9e-6),
            ("step_seconds", 1e9, 1.1e9),
            ("startup_seconds", 0, -1),
            ("peak_memory_bytes", 1e18, 1.1e18),
            ("probe_usd", 0, -0.01),
        ],
    )
    def test_bounds(self, key: str, last: float, too_much: float) -> None:
        assert getattr(row(**{key: last}), key) == last
        with pytest.raises(ValidationError):
            row(**{key: too_much})
