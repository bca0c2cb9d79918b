"""GPU queries and instance type patterns: what they mean, and that no text makes them fail otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.catalog import selection
from planner.inputs.catalog.gpu_query import GpuQuery, NumberRange, parse_gpu_query
from planner.inputs.catalog.listing import list_machines, sort_listings
from planner.inputs.catalog.selection import parse_pattern, select_instance_types
from planner.inputs.catalog.snapshot import parse_catalog
from planner.outside import assets

CATALOG = parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="snapshot.json")
NAMES = [name for gpu in CATALOG.gpus for name in (gpu.name, gpu.model)]


def selected(*patterns):
    return [kind.name for kind in select_instance_types(CATALOG, patterns)]


def test_a_whole_query():
    query = GpuQuery(names=("A100",), memory_gb=NumberRange(80, 80), count=NumberRange(1, 8))
    assert parse_gpu_query("A100:80GB:1..8") == query
    assert parse_gpu_query("A100:80gb:1..8") == query


@given(st.permutations(["L4,L40S", "24GB..", "2.."]))
def test_parts_come_in_any_order(parts):
    assert parse_gpu_query(":".join(parts)) == parse_gpu_query("L4,L40S:24GB..:2..")


@pytest.mark.parametrize(
    ("query", "memory", "count"),
    [
        ("..40GB", NumberRange(None, 40), NumberRange()),
        ("16GB..48GB", NumberRange(16, 48), NumberRange()),
        ("16..48gb", NumberRange(16, 48), NumberRange()),
        ("8", NumberRange(), NumberRange(8, 8)),
        ("..4", NumberRange(), NumberRange(None, 4)),
    ],
)
def test_numbers(query, memory, count):
    assert parse_gpu_query(query) == GpuQuery(memory_gb=memory, count=count)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "a part is empty"),
        ("A100:", "a part is empty"),
        ("A100:H100", "two parts give the names"),
        ("1:2", "two parts give the count"),
        ("80GiB", "'80GiB' is not a GPU name, a memory size in GB or a count"),
        ("8..2", "the range '8..2' is empty"),
        ("..", "'..' has no number"),
        ("GB", "'GB' has no number"),
        ("٨GB", "'٨GB' is not a GPU name, a memory size in GB or a count"),
        ("0", "'0' starts below 1"),
        ("8GB9", "'8GB9' is neither a number nor a range such as 2..8"),
        ("A100,", "'' is not a GPU name, a memory size in GB or a count"),
    ],
)
def test_what_is_wrong_with_a_query(query, reason):
    with pytest.raises(InputError) as caught:
        parse_gpu_query(query)
    assert str(caught.value) == f"GPU query {query!r}: {reason}; write it as A100:80GB:1..8"


@given(st.text() | st.text(alphabet="AaGgBb0189.,:*?[]- "))
def test_any_text_is_a_query_or_an_input_error(text):
    for ask in (parse_gpu_query, selected):
        message = ""
        try:
            ask(text)
        except InputError as error:
            message = str(error)
        assert "\n" not in message


@given(st.sampled_from(NAMES), st.sampled_from([str.lower, str.upper, str.title]))
def test_a_name_in_any_case_finds_its_machines(name, change):
    kinds = select_instance_types(CATALOG, [change(name)])
    assert kinds == select_instance_types(CATALOG, [name])
    assert all(name in (CATALOG.gpu_of(kind).name, CATALOG.gpu_of(kind).model) for kind in kinds)


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_wider_range_finds_no_less(low, high):
    low, high = min(low, high), max(low, high)
    wide, narrow = parse_gpu_query(f"{low}GB.."), parse_gpu_query(f"{low}GB..{high}GB")
    for kind in CATALOG.instance_types:
        gpu = CATALOG.gpu_of(kind)
        assert wide.matches(kind, gpu) >= (low < high and narrow.matches(kind, gpu))


@pytest.mark.parametrize(
    ("size", "gpus"),
    [
        ("16GB", {"V100-16GB", "T4"}),
        ("24GB", {"A10G", "L4"}),
        ("48GB", {"L40S"}),
        ("80GB", {"A100-80GB", "H100"}),
        ("180GB", {"B200"}),
        ("192GB", {"B200"}),
        ("288GB..", {"B300"}),
    ],
)
def test_memory_is_what_the_card_is_sold_as(size, gpus):
    assert {kind.gpu for kind in select_instance_types(CATALOG, [size])} == gpus


def test_patterns_add_up_in_the_order_of_the_catalogue():
    assert selected("A100:80GB", "P4D.24xlarge", "g5.?xlarge") == [
        "g5.2xlarge",
        "g5.4xlarge",
        "g5.8xlarge",
        "p4d.24xlarge",
        "p4de.24xlarge",
    ]
    assert selected("rtx pro 6000:8") == ["g7e.48xlarge"]
    assert len(selected()) == len(CATALOG.instance_types)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("H10", "no instance type matches 'H10'; did you mean H100?"),
        ("H1O0", "no instance type matches 'H1O0'; did you mean H100"),
        ("g5", "no instance type matches 'g5'; did you mean g5.*?"),
        ("p4e.24xlarge", "no instance type matches 'p4e.24xlarge'; did you mean p4de.24xlarge or p4d.24xlarge"),
        ("A100:16", "no instance type matches 'A100:16'; there is 8x A100-40GB, 8x A100-80GB"),
        ("700GB", "no instance type matches '700GB'"),
    ],
)
def test_a_pattern_that_means_nothing_is_named_with_what_is_near(pattern, message):
    with pytest.raises(InputError) as caught:
        select_instance_types(CATALOG, ["g5.*", pattern])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("order", ["price", "price-per-gpu", "price-per-tflop", "spot"])
@pytest.mark.parametrize("on_spot", [False, True])
def test_listings_are_sorted_with_the_unpriced_last(order, on_spot):
    listings = list_machines(CATALOG, CATALOG.instance_types, ["us-east-1"], precision="fp8", on_spot=on_spot)
    field = {"price-per-gpu": "usd_per_gpu", "price-per-tflop": "usd_per_tflops"}.get(
        order, "spot_usd" if on_spot or order == "spot" else "on_demand_usd"
    )
    values = [getattr(row, field) for row in sort_listings(listings, order, on_spot=on_spot)]
    priced = [value for value in values if value is not None]
    assert len(values) == len(CATALOG.instance_types)
    assert values == sorted(priced) + [None] * (len(values) - len(priced))


def test_without_regions_a_machine_is_listed_wherever_it_is_offered():
    kinds = select_instance_types(CATALOG, ["p3.2xlarge", "p6-b300.*"])
    rows = list_machines(CATALOG, kinds, None, precision="bf16", on_spot=False)
    assert [(row.instance_type, row.region) for row in rows] == [
        ("p6-b300.48xlarge", "ap-northeast-2"),
        ("p6-b300.48xlarge", "us-east-1"),
        ("p6-b300.48xlarge", "us-west-2"),
        ("p3.2xlarge", None),
    ]
    assert rows[1].usd_per_gpu == pytest.approx(142.416 / 8)
    assert rows[1].usd_per_tflops == pytest.approx(142.416 / 18000)


def test_a_pattern_may_have_so_many_characters():
    longest = "g5." + "*" * (selection._LONGEST - 3)
    assert parse_pattern(longest).text == longest
    with pytest.raises(InputError, match="is too long to mean an instance type"):
        parse_pattern(longest + "*")
