"""What follows from what the nodes of a probing cluster say, or do not say."""

from __future__ import annotations

import io
from typing import Any

import pytest

from planner.outside.runners.aws.report import (
    ClusterFailed,
    NoCapacity,
    Patience,
    Report,
    ReportReader,
    measurements_of,
    reason_to_give_up,
)
from planner.outside.runners.aws.report import status as status_of

PATIENCE = Patience(first_node_seconds=120, first_report_seconds=600, total_seconds=1800, max_usd=5.0)
NO_MACHINES = "We currently do not have sufficient g5.xlarge capacity. Launching EC2 instance failed."
RECORD = {"nodes": 2, "gpus_per_node": 1, "accumulation_steps": 1}
MEASURED = RECORD | {"outcome": "measured", "gpu_batch": 32, "step_seconds": 0.1}
TOO_LARGE = RECORD | {"outcome": "out_of_memory", "gpu_batch": 128, "reason": "local batch 128 does not fit the memory"}


def report(*phases: str, words: tuple[str, ...] = (), refusals: tuple[str, ...] = ()) -> Report:
    named = {f"i-{number}": phase for number, phase in enumerate(phases)}
    return Report(phases=named, last_words=words, finished=False, records=(), refusals=refusals)


def verdict(now: Report, *, seconds: float, usd: float = 0.0) -> ClusterFailed | None:
    return reason_to_give_up(now, PATIENCE, nodes=2, elapsed_seconds=seconds, usd=usd)


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        (report(), 599),
        (report(refusals=(NO_MACHINES,)), 60),  # the group tries another zone
        (report("pulling", "waiting"), 1000),
        (report("running", "running", refusals=(NO_MACHINES,)), 1000),
    ],
)
def test_worth_waiting(now: Report, seconds: float) -> None:
    assert verdict(now, seconds=seconds) is None


@pytest.mark.parametrize(
    ("now", "seconds", "words"),
    [
        (report("running"), 601, "1 of 2 nodes did not report within 600 s"),
        (report("running", "running"), 1801, "not finished after 1800 s"),
        (report("running", "failed", words=("", "ValueError: no data ")), 5, "a node failed: ValueError: no data"),
        (report(refusals=(NO_MACHINES,)), 121, "does not start 2 of 2 nodes: We currently do not have"),
    ],
)
def test_worth_no_more_waiting(now: Report, seconds: float, words: str) -> None:
    found = verdict(now, seconds=seconds)
    assert found is not None
    assert words in str(found)
    assert isinstance(found, NoCapacity) == bool(now.refusals)


def test_the_cost_cap_ends_a_cluster_that_is_doing_well() -> None:
    found = verdict(report("running", "running"), seconds=10, usd=5.01)
    assert found is not None
    assert "its cost reached $5.00" in str(found)


def test_status_counts_nodes_by_what_they_do() -> None:
    assert status_of(report("pulling", "running", "running"), 4) == (
        "3 of 4 nodes: 1 pulling, 2 running; 0 batch sizes done"
    )


def records_of(*records: dict[str, Any]) -> tuple[list[Any], list[str]]:
    return measurements_of(list(records), "g5.xlarge", "bf16", "registry.example.com/train@sha256:" + "0" * 64)


def test_records_become_measurements_of_the_rented_type() -> None:
    rows, failures = records_of(MEASURED)
    assert [(row.instance_type, row.nodes, row.gpu_batch, row.precision) for row in rows] == [
        ("g5.xlarge", 2, 32, "bf16")
    ]
    assert rows[0].image_digest == "sha256:" + "0" * 64
    assert failures == []


def test_the_largest_batch_that_fitted_knows_the_smallest_that_did_not() -> None:
    rows, failures = records_of(MEASURED, MEASURED | {"gpu_batch": 64}, TOO_LARGE, TOO_LARGE | {"gpu_batch": 256})
    assert [row.out_of_memory_at for row in rows] == [None, 128]
    assert failures[0] == "local batch 128: local batch 128 does not fit the memory"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (MEASURED | {"step_seconds": float("nan")}, "unusable result (step_seconds: input should be a finite number"),
        ({"outcome": "measured"}, "unusable result (nodes: this key is required (and 3 more))"),
        ({}, "local batch None: None"),
    ],
)
def test_an_odd_record_is_named_and_the_others_are_kept(odd: dict[str, Any], words: str) -> None:
    rows, failures = records_of(odd, MEASURED)
    assert len(rows) == 1
    assert words in failures[0]


def test_what_newer_probes_measure_in_addition_is_left_out() -> None:
    assert len(records_of(MEASURED | {"power_watts": 300})[0]) == 1


class Bucket:
    """As much of S3 and of Auto Scaling as a reader asks for."""

    def __init__(self, objects: dict[str, str], activities: list[dict[str, str]]) -> None:
        self.objects, self.activities = objects, activities

    def get_paginator(self, _name: str) -> Bucket:
        return self

    def paginate(self, **_arguments: str) -> list[dict[str, Any]]:
        return [{"Contents": [{"Key": key} for key in self.objects]}]

    def get_object(self, *, Key: str, **_arguments: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
        return {"Body": io.BytesIO(self.objects[Key].encode())}

    def describe_scaling_activities(self, **_arguments: object) -> dict[str, Any]:
        return {"Activities": self.activities}


def reader(objects: dict[str, str], *codes: str) -> ReportReader:
    activities = [{"StatusCode": code, "Description": f"{code} {number}"} for number, code in enumerate(codes)]
    bucket = Bucket({f"run-1/{name}": text for name, text in objects.items()}, activities)
    return ReportReader(client=lambda _service: bucket, region="r", run_id="run-1", bucket="b", group="g")


def test_what_is_not_json_in_the_bucket_is_passed_over() -> None:
    found = reader(
        {
            "heartbeats/i-1.json": '{"instance_id": "i-1", "phase": "running"}',
            "heartbeats/i-2.json": '{"instance_id": "i-2", "pha',
            "results/i-1/probes.jsonl": '{"outcome": "measured"}\n[1]\n\nnothing\n',
            "results/i-1/other.txt": "x",
        }
    ).report()
    assert found.phases == {"i-1": "running"}
    assert found.records == [{"outcome": "measured"}]
    assert not found.finished


def test_refusals_from_before_a_node_was_started_do_not_count() -> None:
    assert reader({}, "Failed", "Failed").report().refusals == ["Failed 0", "Failed 1"]
    assert reader({}, "Successful", "Failed").report().refusals == []
    assert reader({}, "InProgress", "Failed", "Successful", "Failed").report().refusals == ["Failed 1"]
