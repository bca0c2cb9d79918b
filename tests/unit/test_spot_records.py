"""What `scav spot record` notes, from stubbed answers where moto has none, and what a plan makes of it."""

from __future__ import annotations

import datetime
import json
import math

import boto3
import pytest
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs import Observation, Observed, parse_observations
from planner.outside.spot_records import Known, fetch_observations
from planner.spot.rates.observed import process_with
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.sources import SpotHistory, SpotSource

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
EARLIER = NOW - datetime.timedelta(hours=10)
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
ZONES = {"AvailabilityZones": [{"ZoneName": "us-east-1a", "ZoneId": "use1-az4", "ZoneType": "availability-zone"}]}
SPOT_GROUP = {
    "AutoScalingGroupName": "mine",
    "MinSize": 0,
    "MaxSize": 4,
    "DesiredCapacity": 4,
    "DefaultCooldown": 0,
    "AvailabilityZones": ["us-east-1a"],
    "HealthCheckType": "EC2",
    "CreatedTime": EARLIER,
    "MixedInstancesPolicy": {"LaunchTemplate": {"Overrides": [{"InstanceType": "g5.xlarge"}]}},
}


def activity(number, description, *, cause="it was asked for", code="Successful", message="done"):
    return {
        "ActivityId": f"a{number}",
        "AutoScalingGroupName": "mine",
        "Description": description,
        "Cause": cause,
        "StartTime": EARLIER + datetime.timedelta(hours=number),
        "StatusCode": code,
        "StatusMessage": message,
        "Details": json.dumps({"Availability Zone": "us-east-1a"}),
    }


ACTIVITIES = [
    activity(1, "Launching a new EC2 instance: i-1"),
    activity(2, "Launching a new EC2 instance: i-on-demand"),
    activity(
        3,
        "Launching a new EC2 instance.  Status Reason: There is no Spot capacity available that matches your request.",
        code="Failed",
        message="There is no Spot capacity available that matches your request. Launching EC2 instance failed.",
    ),
    activity(4, "Launching a new EC2 instance", code="Failed", message="You are not authorized to do this."),
    activity(5, "Terminating EC2 instance: i-1", cause="taken out of service: EC2 Spot Instance Interruption notice"),
    activity(6, "Terminating EC2 instance: i-2", cause="a user request"),
]


@pytest.fixture
def clients():
    made = {service: boto3.client(service, region_name="us-east-1", **KEYS) for service in ("ec2", "autoscaling")}
    stubs = {service: Stubber(client) for service, client in made.items()}
    for stub in stubs.values():
        stub.activate()
    yield made, stubs
    for service, client in made.items():
        stubs[service].assert_no_pending_responses()
        client.close()


def answer_all(stubs, *, scores=True):
    ec2, scaling = stubs["ec2"], stubs["autoscaling"]
    ec2.add_response("describe_availability_zones", ZONES)
    if scores:
        ec2.add_response(
            "get_spot_placement_scores",
            {"SpotPlacementScores": [{"Region": "us-east-1", "AvailabilityZoneId": "use1-az4", "Score": 7}]},
            {"InstanceTypes": ["g5.xlarge"], "TargetCapacity": 4, "SingleAvailabilityZone": True, "RegionNames": ANY},
        )
    else:
        ec2.add_client_error("get_spot_placement_scores", "UnauthorizedOperation")
    price = {"InstanceType": "g5.xlarge", "AvailabilityZone": "us-east-1a", "SpotPrice": "0.41", "Timestamp": NOW}
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": [price]})
    node = {"InstanceId": "i-1", "InstanceType": "g5.xlarge", "Placement": {"AvailabilityZone": "us-east-1a"}}
    ec2.add_response("describe_instances", {"Reservations": [{"Instances": [node]}]})
    plain = {key: value for key, value in SPOT_GROUP.items() if key != "MixedInstancesPolicy"}
    scaling.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [SPOT_GROUP, plain]})
    scaling.add_response("describe_scaling_activities", {"Activities": ACTIVITIES[::-1]})


def fetch(made, known=None):
    known = known or Known()
    return fetch_observations(made.get, "us-east-1", ["g5.xlarge"], nodes=4, now=NOW, known=known)


def test_scores_prices_and_what_became_of_the_accounts_spot_nodes(clients):
    made, stubs = clients
    answer_all(stubs)
    found, warnings = fetch(made, Known(instances={"i-2": ("g5.xlarge", "use1-az6")}))
    assert warnings == []
    said = [(place[1], row.kind, row.value, row.activity, row.instance) for place, row in found]
    assert said == [
        ("use1-az4", "score", 7, None, None),
        ("use1-az4", "price", 0.41, None, None),
        ("use1-az4", "launched", None, "a1", "i-1"),
        ("use1-az4", "refused", None, "a3", None),
        ("use1-az4", "taken_back", None, "a5", "i-1"),
        ("use1-az6", "ended", None, "a6", "i-2"),
    ]


def test_what_is_known_is_not_noted_twice_and_one_refusal_does_not_lose_the_rest(clients):
    made, stubs = clients
    answer_all(stubs, scores=False)
    found, [warning] = fetch(made, Known(activities={"a1", "a3", "a5", "a6"}))
    assert [row.kind for _, row in found] == ["price"]
    assert warning.startswith("no scores of us-east-1: ")


def line(kind, *, noted=NOW, **more):
    row = Observation(noted=noted, kind=kind, **more)
    return row.model_dump_json(exclude_none=True)


def parsed(*lines):
    return parse_observations("\n".join(lines) + "\n", file="g5.xlarge@use1-az4.jsonl", now=NOW)


def test_a_file_adds_up():
    seen = parsed(
        line("launched", happened=EARLIER, activity="a1", instance="i-1", noted=EARLIER),
        line("launched", happened=EARLIER, activity="a2", instance="i-2", noted=EARLIER),
        line("score", value=3.0),
        line("taken_back", happened=EARLIER + datetime.timedelta(hours=4), activity="a3", instance="i-1"),
        line("score", value=7.0),
    )
    assert (seen.count("launched"), seen.count("taken_back"), seen.score) == (2, 1, 7.0)
    assert seen.node_hours == pytest.approx(4 + 10)  # the second still runs when the last line was noted


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line("score", value=3.0), line("score", value=3.0, noted=EARLIER)], "overlap"),
        ([line("refused", happened=EARLIER, activity="a")] * 2, "activity a is there twice"),
        ([line("score", value=3.0, noted=NOW + datetime.timedelta(days=3))], "in the future"),
        ([line("score", value=11.0)], "a score of 11 is above 10"),
        ([line("score")], "a score needs a value"),
        ([line("launched")], "launched needs the moment"),
        ([line("refused", happened=NOW, activity="a", noted=EARLIER)], "happened after it was noted"),
        (['{"noted": "2026-11-18T12:00:00Z", "kind": "gone"}'], "kind"),
        (["[1"], "JSON"),
        ([""], "nothing was noted"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(lines, message):
    with pytest.raises(InputError, match=message) as refused:
        parsed(*lines)
    assert "g5.xlarge@use1-az4.jsonl" in str(refused.value)
    assert "\n" not in str(refused.value)


def observed(*, launched=0, refused=0, taken_back=0, hours=1.0, score=None, age_hours=0.0):
    begun, ended = NOW - datetime.timedelta(hours=hours), NOW
    rows = [Observation(noted=NOW, kind="score", value=score)] if score else []
    rows += [
        Observation(noted=NOW, kind="launched", happened=begun, activity=f"l{number}", instance=f"i{number}")
        for number in range(launched)
    ]
    rows += [Observation(noted=NOW, kind="refused", happened=NOW, activity=f"r{number}") for number in range(refused)]
    for number in range(taken_back):
        gone = Observation(noted=NOW, kind="taken_back", happened=ended, activity=f"t{number}", instance=f"i{number}")
        rows.append(gone)
    return Observed(place="file", rows=tuple(rows), age_hours=age_hours)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 20))
def test_more_losses_and_refusals_never_look_better(launched, refused, more):
    before = process_with(observed(launched=launched, refused=refused, hours=50.0), POOLED)
    denied = process_with(observed(launched=launched, refused=refused + more, hours=50.0), POOLED)
    assert denied.availability < before.availability
    assert denied.log_sd < before.log_sd <= POOLED.log_sd
    lost = process_with(observed(launched=launched + more, refused=refused, taken_back=more, hours=0.5), POOLED)
    kept = process_with(observed(launched=launched + more, refused=refused, hours=0.5), POOLED)
    assert lost.mean_up_hours < kept.mean_up_hours


def test_scores_are_weak_own_nodes_strong_and_both_fade():
    poor, good = (process_with(observed(score=score), POOLED) for score in (1, 10))
    # Half the spread between zones either way.
    assert good.return_per_hour / poor.return_per_hour == pytest.approx(math.exp(0.43))
    assert good.loss_per_hour == pytest.approx(POOLED.loss_per_hour)
    own = process_with(observed(launched=40, hours=100.0), POOLED)
    assert own.availability > good.availability
    old = process_with(observed(launched=40, hours=100.0, age_hours=1e5), POOLED)
    assert old.loss_per_hour == pytest.approx(POOLED.loss_per_hour)
    assert old.loss_log_sd == pytest.approx(POOLED.loss_log_sd)


def test_a_plan_says_what_was_noted_and_until_when():
    seen = observed(launched=3, refused=1, hours=2.0, score=7, age_hours=30.0)
    source = SpotHistory(recordings={("g5.xlarge", "use1-az4"): seen}).source("g5.xlarge", "use1-az4", 1)
    assert source == SpotSource(1, observed=seen)
    assert (
        "and from what was noted here until 2026-11-18, 30 h old "
        "(3 launched by this account, 1 refused, 0 lost in 6 h; placement score 7)"
    ) in source.described(source.gang(1), "February 2024")
