"""AWS calls against moto's server where moto implements them, against stubbed answers where it does not."""

from __future__ import annotations

import datetime
import json

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.stub import ANY, Stubber
from moto.server import ThreadedMotoServer

from planner.errors import ScavError
from planner.inputs.catalog.refresh import refresh_catalog
from planner.inputs.catalog.snapshot import parse_catalog
from planner.outside import assets, aws

CATALOG = parse_catalog(assets.embedded_catalog().read_text(encoding="utf-8"), file="snapshot.json")
TODAY = datetime.date(2026, 11, 16)
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


@pytest.fixture(scope="module")
def moto_url():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def ec2(moto_url):
    client = boto3.client("ec2", region_name="us-east-1", endpoint_url=moto_url, **KEYS)
    yield client
    client.close()


@pytest.fixture
def stubbed():
    """A client that answers only what it was told to."""
    clients = []

    def make(service):
        client = boto3.client(service, region_name="us-east-1", endpoint_url="http://127.0.0.1:9", **KEYS)
        stubber = Stubber(client)
        stubber.activate()
        clients.append((client, stubber))
        return client, stubber

    yield make
    for client, stubber in clients:
        stubber.assert_no_pending_responses()
        client.close()


@pytest.fixture(scope="module")
def machines(ec2):
    return {machine.name: machine for machine in aws.fetch_machines(ec2)}


def product(name, price, *, unit="Hrs", **attributes):
    dimension = {"unit": unit, "pricePerUnit": {"USD": price}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name} | attributes},
            "terms": {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}},
        }
    )


def test_what_aws_says_of_machines_is_what_the_snapshot_says(machines):
    """moto answers with a stored answer of AWS, from which the snapshot was made."""
    for kind in CATALOG.instance_types:
        if kind.family != "p3":
            machine = machines[kind.name]
            for field, value in machine.row_fields().items():
                assert getattr(kind, field) == value, (kind.name, field)
            assert machine.gpu_memory_gib == CATALOG.gpu_of(kind).memory_gib


def test_machines_that_nobody_trains_on_are_not_fetched(machines):
    families = {name.partition(".")[0] for name in machines}
    assert not families & {"g4ad", "g5g", "g6f", "gr6f", "p2"}


def test_zones_have_ids(ec2):
    zone_ids = aws.fetch_zone_ids(ec2)
    assert zone_ids["us-east-1a"] == "use1-az6"
    zones = aws.fetch_offered_zones(ec2, ["g5.xlarge"], set(zone_ids.values()))
    assert set(zones) == {"g5.xlarge"}
    assert set(zones["g5.xlarge"]) <= set(zone_ids.values())


def test_local_zones_are_left_out(stubbed):
    client, stubber = stubbed("ec2")
    zones = [
        {"ZoneName": "us-east-1a", "ZoneId": "use1-az6", "ZoneType": "availability-zone"},
        {"ZoneName": "us-east-1-atl-2a", "ZoneId": "use1-atl2-az1", "ZoneType": "local-zone"},
    ]
    stubber.add_response("describe_availability_zones", {"AvailabilityZones": zones})
    assert aws.fetch_zone_ids(client) == {"us-east-1a": "use1-az6"}


def test_the_latest_spot_price_of_each_zone_counts_on_whatever_page_it_is(stubbed):
    client, stubber = stubbed("ec2")

    def price(zone, hour, usd, name="g5.xlarge"):
        moment = datetime.datetime(2026, 11, 16, hour, tzinfo=datetime.UTC)
        return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": moment}

    asked = {
        "InstanceTypes": ["g5.xlarge", "g6.xlarge"],
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC),
    }
    first = [price("us-east-1a", 3, "0.30"), price("us-east-1b", 2, "0.50"), price("us-east-1-atl-2a", 2, "9")]
    second = [price("us-east-1a", 1, "0.10"), price("us-east-1a", 2, "0.20", "g6.xlarge")]
    stubber.add_response("describe_spot_price_history", {"SpotPriceHistory": first, "NextToken": "more"}, asked)
    stubber.add_response("describe_spot_price_history", {"SpotPriceHistory": second}, asked | {"NextToken": "more"})
    zone_ids = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1"}
    assert aws.fetch_spot_prices(client, ["g5.xlarge", "g6.xlarge"], zone_ids, date=TODAY) == {
        ("g5.xlarge", "use1-az6"): 0.30,
        ("g5.xlarge", "use1-az1"): 0.50,
        ("g6.xlarge", "use1-az6"): 0.20,
    }


def test_no_machines_means_no_question(stubbed):
    client, _ = stubbed("ec2")
    assert aws.fetch_spot_prices(client, [], {}, date=TODAY) == {}


def test_on_demand_prices_are_hourly_and_for_sale(stubbed):
    client, stubber = stubbed("pricing")
    first = [product("g5.xlarge", "1.006", marketoption="OnDemand"), product("m5.large", "0.096")]
    second = [
        product("p5.48xlarge", "31.464", marketoption="CapacityBlock"),
        product("p5e.48xlarge", "0.0000000000"),
        product("g6.xlarge", "0.8048"),
        product("g6.xlarge", "500", unit="Quantity"),
    ]
    stubber.add_response(
        "get_products", {"PriceList": first, "NextToken": "more"}, {"ServiceCode": "AmazonEC2", "Filters": ANY}
    )
    stubber.add_response(
        "get_products", {"PriceList": second}, {"ServiceCode": "AmazonEC2", "Filters": ANY, "NextToken": "more"}
    )
    names = ["g5.xlarge", "g6.xlarge", "p5.48xlarge", "p5e.48xlarge"]
    assert aws.fetch_on_demand_prices(client, "us-east-1", names) == {"g5.xlarge": 1.006, "g6.xlarge": 0.8048}


def test_a_region_from_calls_to_catalogue(ec2, stubbed):
    pricing, stubber = stubbed("pricing")
    stubber.add_response("get_products", {"PriceList": [product("g5.xlarge", "1.5")]})
    answer = aws.fetch_region(ec2, pricing, "us-east-1", date=TODAY)
    catalog, left_out = refresh_catalog(CATALOG, CATALOG, [answer], date=TODAY)
    offers = {offer.instance_type: offer for offer in catalog.offers if offer.region == "us-east-1"}
    assert offers["g5.xlarge"].on_demand_usd == 1.5
    assert offers["g6.xlarge"].on_demand_usd is None
    assert all(zone.startswith("use1-az") for offer in offers.values() for zone in offer.spot_usd)
    assert all("RTX PRO 4500" in line for line in left_out)


def test_enabled_regions(ec2):
    assert {"us-east-1", "eu-west-1"} <= aws.fetch_enabled_regions(ec2)


@pytest.mark.parametrize(
    ("code", "operation", "beginning"),
    [
        (
            "UnauthorizedOperation",
            "DescribeInstanceTypes",
            "AWS denies ec2:DescribeInstanceTypes in eu-west-1: the credentials need that permission",
        ),
        (
            "AccessDeniedException",
            "GetProducts",
            "AWS denies pricing:GetProducts in eu-west-1: the credentials need that permission",
        ),
        (
            "RequestLimitExceeded",
            "DescribeSpotPriceHistory",
            "AWS still throttles ec2:DescribeSpotPriceHistory in eu-west-1 after all retries",
        ),
        (
            "AuthFailure",
            "DescribeInstanceTypes",
            "AWS does not accept the credentials in eu-west-1 (AuthFailure): log in again",
        ),
        (
            "OptInRequired",
            "DescribeInstanceTypes",
            "not enabled for this account in eu-west-1: enable the region, or name others with --region",
        ),
        ("Odd", "DescribeInstanceTypes", "ec2:DescribeInstanceTypes in eu-west-1: two\\nlines"),
    ],
)
def test_an_answer_that_is_an_error_becomes_one_line(code, operation, beginning):
    with pytest.raises(ScavError) as caught, aws.aws_errors("eu-west-1"):
        raise ClientError({"Error": {"Code": code, "Message": "two\nlines"}}, operation)
    assert str(caught.value).startswith(beginning)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (NoCredentialsError(), "no AWS credentials: run `aws configure`"),
        (EndpointConnectionError(endpoint_url="https://ec2"), "no answer from AWS in eu-west-1: check the network"),
        (ReadTimeoutError(endpoint_url="https://ec2"), "no answer from AWS in eu-west-1: check the network"),
        (UnauthorizedSSOTokenError(), "the AWS login has expired: run `aws sso login`"),
        (ProfileNotFound(profile="nobody"), "The config profile (nobody) could not be found: `aws configure list"),
    ],
)
def test_no_answer_becomes_one_line(error, beginning):
    with pytest.raises(ScavError) as caught, aws.aws_errors("eu-west-1"):
        raise error
    assert str(caught.value).startswith(beginning)


def test_a_bug_stays_a_bug():
    with pytest.raises(KeyError), aws.aws_errors():
        raise KeyError("not from AWS")


def test_an_unknown_profile_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ScavError, match=r"nobody.*could not be found"):
        aws.open_session("nobody")
