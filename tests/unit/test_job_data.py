"""`run.data`: what is refused in one line, what Terraform is told, and what it costs in time and money."""

from __future__ import annotations

import json

import pytest
from small_world import CATALOG, ONE
from test_plan import plan_example

from planner.errors import InputError
from planner.inputs.job.parse import parse_job
from planner.models.overheads import run_overheads
from planner.plan.review.markdown import cost_markdown
from planner.plan.variables import workspace_variables
from planner.search.candidates import offers_by_market, root_volume_gib, volume_hourly_usd

GIB = 2**30


def with_data(job_text: str, data: str, network: str = "") -> str:
    return f"{job_text}\nrun:\n  data: {data}\n{network}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param("[{name: a, uri: s3://bucket/a}]", "size must say how much that is (150GB)", id="no-size"),
        pytest.param("[{name: a, uri: snap-0123456789abcdef0, size: 1GB}]", "size is of what is copied", id="size"),
        pytest.param("[{name: A, uri: s3://bucket, size: 1GB}]", "'A' is not small letters, digits", id="name"),
        pytest.param("[{name: a, uri: /mnt/data, size: 1GB}]", "'/mnt/data' is not a place in S3", id="path"),
        pytest.param("[{name: a, uri: 's3://bucket/*', size: 1GB}]", "'s3://bucket/*' is not a place in S3", id="star"),
        pytest.param("[{name: a, uri: 's3://b/${x}', size: 1GB}]", "is not a place in S3", id="policy-variable"),
        pytest.param("[{name: a, uri: fs-0123456789abcdef0}]", "is not a place in S3", id="no-mount-name"),
        pytest.param(
            "[{name: a, uri: s3://bucket, size: 1GB}, {name: a, uri: s3://other, size: 1GB}]",
            "two of them have the name a",
            id="twice",
        ),
        pytest.param("[{name: a, uri: s3://bucket, size: 20TB}]", "20 TB are more than a node's volume", id="large"),
        pytest.param("[{name: a, uri: fs-0123456789abcdef0/abcd}]", "name it in network.security_groups", id="closed"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(job_text: str, data: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(with_data(job_text, data), file="scav.yaml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_terraform_is_told_of_data_and_of_security_groups_and_of_nothing_where_there_is_none() -> None:
    plan = plan_example(nodes="1", spot="never")
    assert not {"data", "security_group_ids"} & set(workspace_variables(plan))
    data = [
        {"name": "train", "uri": "s3://bucket/train", "size": 1.5 * GIB},
        {"name": "text", "uri": "fs-0123456789abcdef0/abcd"},
    ]
    run = type(plan.run).model_validate({"data": data})
    network = type(plan.network).model_validate({"security_groups": ["sg-0123456789abcdef0"]})
    changed = plan.model_copy(update={"run": run, "network": network})
    values = workspace_variables(changed)
    assert values["data"] == [
        {"name": "train", "uri": "s3://bucket/train", "gib": 2},
        {"name": "text", "uri": "fs-0123456789abcdef0/abcd", "gib": 0},
    ]
    assert values["security_group_ids"] == ["sg-0123456789abcdef0"]
    json.dumps(values)
    assert "requests for data in S3, the FSx for Lustre file system, and logs" in cost_markdown(changed)
    assert type(plan).model_validate_json(changed.model_dump_json()) == changed


@pytest.mark.parametrize(
    ("local_gb", "gib"),
    [
        pytest.param(0, 200 + 20 + 100, id="no-disk-of-its-own"),
        pytest.param(300, 200 + 20 + 100, id="too-small"),
        pytest.param(400, 200 + 20, id="holds-it"),  # 320 GiB and a tenth for the file system are 378 GB
    ],
)
def test_the_root_volume_has_room_for_data_that_local_disks_do_not_hold(local_gb: float, gib: int) -> None:
    assert root_volume_gib(10 * GIB, 100 * GIB, local_gb) == gib


def test_copied_data_is_in_the_price_of_volumes_and_in_the_time_to_start(job_text: str) -> None:
    def volume(copied: float) -> float:
        return float(offers_by_market(CATALOG, ONE, ("near",), 0.0, copied)["on_demand"].volume_usd_per_node[0])

    assert volume(200 * GIB) == pytest.approx(2 * volume(0.0))
    workload = parse_job(job_text, file="scav.yaml").job.workload
    assert run_overheads(workload, [], 250e9, 250).startup_seconds == pytest.approx(300 + 1000)
    without = run_overheads(workload, []).restart_seconds
    assert run_overheads(workload, [], 250e9, 250).restart_seconds == pytest.approx(without + 1000)


def test_data_is_copied_no_faster_than_the_volume_takes_it(job_text: str) -> None:
    workload = parse_job(job_text, file="scav.yaml").job.workload
    without = run_overheads(workload, []).startup_seconds
    as_it_comes = run_overheads(workload, [], 125 * 2**20 * 1000.0).startup_seconds - without
    assert as_it_comes == pytest.approx(1000)
    assert run_overheads(workload, [], 125 * 2**20 * 1000.0, 200).startup_seconds - without == pytest.approx(625)


def test_a_faster_volume_is_paid_for() -> None:
    """AWS, us-east-1: $0.08 for a GiB and $0.04 for a MiB/s beyond 125, in a month."""
    as_it_comes = volume_hourly_usd(200, 125, 0.08)
    assert as_it_comes == pytest.approx(200 * 0.08 / 730)
    assert volume_hourly_usd(200, 500, 0.08) - as_it_comes == pytest.approx(375 * 0.04 / 730)
    slow, fast = (
        offers_by_market(CATALOG, ONE, ("near",), 0.0, 0.0, mibps)["spot"].volume_usd_per_node[0]
        for mibps in (125, 250)
    )
    assert fast > slow
