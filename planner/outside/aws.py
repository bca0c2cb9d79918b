"""What AWS knows today: its GPU machines, where they are sold and for how much.

Every call is read-only and free. Clients are arguments, so that tests bring their own.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any, Protocol, cast

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 (the name is botocore's)
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from planner.errors import AwsFailed, InputError, one_line
from planner.inputs import ADVISOR_URL, Machine, RegionAnswer, network_gbps, parse_advisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import date

# The price list of all regions is served from a few; this one is always there.
PRICE_LIST_REGION = "us-east-1"
_ADVISOR_SECONDS, _ADVISOR_BYTES = 20.0, 50_000_000  # it has about 2 MB

_BAD_CREDENTIALS = [
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
]
_KEYS = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
_SERVICE_OF_OPERATION = {
    "GetProducts": "pricing",
    "GetCallerIdentity": "sts",
    "ListObjectsV2": "s3",
    "GetObject": "s3",
    "DescribeScalingActivities": "autoscaling",
    "DescribeAutoScalingGroups": "autoscaling",
    "UpdateAutoScalingGroup": "autoscaling",
    "DescribeLogStreams": "logs",
    "GetLogEvents": "logs",
}
_DENIED = ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"]
_THROTTLED = ["RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"]


class Pageable(Protocol):
    """A boto3 client, as far as it is used here."""

    def get_paginator(self, operation_name: str) -> Any: ...


class Ec2(Pageable, Protocol):
    """A boto3 client of EC2 in one region."""

    def describe_regions(self) -> Any: ...
    def describe_availability_zones(self) -> Any: ...


def open_session(profile: str | None) -> boto3.Session:
    with aws_errors():
        return boto3.Session(profile_name=profile)


@dataclass(frozen=True, slots=True)
class Access:
    """Whose account: the same for what scav asks of AWS itself, and for Terraform, which runs in `environment`."""

    clients: Callable[[str], Callable[[str], Any]]  # region -> service -> client
    environment: dict[str, str]

    @classmethod
    def of_profile(cls, profile: str | None, environment: Mapping[str, str]) -> Access:
        """Keys in the environment would go before the profile in Terraform, which would then pay from elsewhere."""
        session = open_session(profile)

        def clients(region: str) -> Callable[[str], Any]:
            return lambda service: open_client(session, service, region)

        if profile is None:
            return cls(clients, dict(environment))
        kept = {name: value for name, value in environment.items() if name not in _KEYS}
        return cls(clients, {**kept, "AWS_PROFILE": profile})


def open_ec2(session: boto3.Session, region: str) -> Ec2:
    with aws_errors(region):
        return cast("Ec2", session.client("ec2", region_name=region, config=_client_settings()))


def open_pricing(session: boto3.Session) -> Pageable:
    with aws_errors(PRICE_LIST_REGION):
        return cast("Pageable", session.client("pricing", region_name=PRICE_LIST_REGION, config=_client_settings()))


def open_client(session: boto3.Session, service: str, region: str) -> Any:
    with aws_errors(region):
        return session.client(service, region_name=region, config=_client_settings())  # type: ignore[call-overload]


def fetch_account(session: boto3.Session, region: str) -> str:
    """The account that the credentials are for: a question that needs no permission, and fails where they do."""
    with aws_errors(region):
        return str(open_client(session, "sts", region).get_caller_identity()["Account"])


def fetch_enabled_regions(ec2: Ec2) -> set[str]:
    """The regions that the account may use."""
    with aws_errors():
        return {region["RegionName"] for region in ec2.describe_regions()["Regions"]}


def fetch_region(ec2: Ec2, pricing: Pageable, region: str, *, date: date) -> RegionAnswer:
    """Machines, zones and prices of one region; `ec2` is a client of that region."""
    with aws_errors(region):
        machines = fetch_machines(ec2)
        names = [machine.name for machine in machines]
        zone_ids = fetch_zone_ids(ec2)
        return RegionAnswer(
            region=region,
            machines=machines,
            zones=fetch_offered_zones(ec2, names, set(zone_ids.values())),
            on_demand_usd=fetch_on_demand_prices(pricing, region, names),
            spot_usd=fetch_spot_prices(ec2, names, zone_ids, date=date),
        )


def fetch_interruption_classes(url: str = ADVISOR_URL) -> dict[tuple[str, str], int]:
    """By region and instance type, from a public file that needs no credentials."""
    if not url.startswith(("https://", "http://")):
        raise AwsFailed(f"{one_line(url)} is no address of the Spot Instance Advisor")
    try:
        with urllib.request.urlopen(url, timeout=_ADVISOR_SECONDS) as answer:  # noqa: S310 (checked above)
            text = answer.read(_ADVISOR_BYTES).decode()
        return parse_advisor(text)
    except (OSError, ValueError, http.client.HTTPException, InputError) as error:
        raise AwsFailed(f"no interruption classes from AWS's Spot Instance Advisor: {one_line(str(error))}") from None


def fetch_machines(ec2: Ec2) -> list[Machine]:
    """GPU machines that one trains on with CUDA on x86: no AMD, no ARM, no slices of a GPU."""
    filters = [{"Name": "instance-type", "Values": ["g*", "p*"]}]
    rows = _pages(ec2, "describe_instance_types", "InstanceTypes", Filters=filters)
    return [machine for machine in map(_machine, rows) if machine is not None]


def fetch_zone_ids(ec2: Ec2) -> dict[str, str]:
    """Zone names, which differ between accounts, with their IDs, which do not; local zones are left out."""
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    return {
        zone["ZoneName"]: zone["ZoneId"]
        for zone in zones
        if zone.get("ZoneType", "availability-zone") == "availability-zone"
    }


def fetch_offered_zones(ec2: Ec2, names: Iterable[str], zone_ids: set[str]) -> dict[str, list[str]]:
    wanted = set(names)
    zones: dict[str, list[str]] = {}
    for row in _pages(
        ec2, "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone-id"
    ):
        if row["InstanceType"] in wanted and row["Location"] in zone_ids:
            zones.setdefault(row["InstanceType"], []).append(row["Location"])
    return zones


def fetch_spot_prices(
    ec2: Ec2, names: list[str], zone_ids: Mapping[str, str], *, date: date
) -> dict[tuple[str, str], float]:
    """The latest price of each machine and zone ID.

    Asked from the start of `date`, AWS answers with the price that held then and with every later one.
    """
    if not names:
        return {}
    rows = _pages(
        ec2,
        "describe_spot_price_history",
        "SpotPriceHistory",
        InstanceTypes=names,
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.combine(date, time(), tzinfo=UTC),
    )
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for row in rows:
        zone_id = zone_ids.get(row["AvailabilityZone"])
        if zone_id is None:
            continue
        key, seen = (row["InstanceType"], zone_id), (row["Timestamp"], float(row["SpotPrice"]))
        latest[key] = max(latest.get(key, seen), seen)
    return {key: price for key, (_, price) in latest.items() if price > 0}


def fetch_on_demand_prices(pricing: Pageable, region: str, names: Iterable[str]) -> dict[str, float]:
    """Linux, shared tenancy, nothing installed, not a reservation."""
    wanted = set(names)
    conditions = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in conditions.items()]
    prices: dict[str, float] = {}
    for text in _pages(pricing, "get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters):
        product = json.loads(text)
        attributes = product["product"]["attributes"]
        price = _hourly_usd(product)
        if (
            attributes.get("instanceType") in wanted
            and attributes.get("marketoption", "OnDemand") == "OnDemand"
            and price
        ):
            prices[attributes["instanceType"]] = price
    return prices


@contextmanager
def aws_errors(region: str | None = None) -> Iterator[None]:
    """Turns what boto3 raises into one line that says what to do."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise AwsFailed(one_line(_explanation(error, f" in {region}" if region else ""))) from error


def _explanation(error: Exception, where: str) -> str:
    if isinstance(error, ClientError):
        return _service_explanation(error, where)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return "no AWS credentials: run `aws configure` or `aws sso login`, or name a profile with --profile"
    if isinstance(error, ProfileNotFound):
        return f"{error}: `aws configure list-profiles` shows those there are"
    if isinstance(error, SSOError | TokenRetrievalError):
        return "the AWS login has expired: run `aws sso login`"
    if isinstance(error, HTTPClientError | ConnectionError):
        return f"no answer from AWS{where}: check the network and the proxy ({error})"
    return f"AWS{where}: {error}"


def _service_explanation(error: ClientError, where: str) -> str:
    code = error.response.get("Error", {}).get("Code", "")
    operation = error.operation_name
    service = _SERVICE_OF_OPERATION.get(operation, "ec2")
    if code in _BAD_CREDENTIALS:
        advice = "log in again, and check that the region is enabled"
        return f"AWS does not accept the credentials{where} ({code}): {advice}"
    if code in _DENIED:
        return f"AWS denies {service}:{operation}{where}: the credentials need that permission"
    if code == "OptInRequired":
        return f"not enabled for this account{where}: enable the region, or name others with --region"
    if code in _THROTTLED:
        return f"AWS still throttles {service}:{operation}{where} after all retries: try again in a few minutes"
    return f"{service}:{operation}{where}: {error.response.get('Error', {}).get('Message') or code}"


def _client_settings() -> Config:
    return Config(retries={"mode": "adaptive", "total_max_attempts": 6}, connect_timeout=10, read_timeout=30)


def _pages(client: Pageable, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    for page in client.get_paginator(operation).paginate(**arguments):
        yield from page.get(key, [])


def _machine(row: Mapping[str, Any]) -> Machine | None:
    gpus = row.get("GpuInfo", {}).get("Gpus", [])
    network = row["NetworkInfo"]
    peak = network_gbps(network["NetworkPerformance"])
    # A type can only be described if all its GPUs are alike; a slice of a GPU counts as none.
    if len(gpus) != 1 or gpus[0].get("Manufacturer") != "NVIDIA" or not gpus[0].get("Count") or peak is None:
        return None
    if "x86_64" not in row["ProcessorInfo"]["SupportedArchitectures"]:
        return None
    cards = network.get("NetworkCards", [])
    # The cards of some types add up to more than the node can carry, so only a single card is believed.
    only_card = cards[0] if len(cards) == 1 else {}
    return Machine(
        name=row["InstanceType"],
        gpu_name=gpus[0]["Name"],
        gpu_memory_gib=gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024,
        gpu_count=gpus[0]["Count"],
        vcpu=row["VCpuInfo"]["DefaultVCpus"],
        ram_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        network_baseline_gbps=only_card.get("BaselineBandwidthInGbps", peak),
        network_peak_gbps=only_card.get("PeakBandwidthInGbps", peak),
        network_cards=network.get("MaximumNetworkCards", 1),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        local_ssd_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
    )


def _hourly_usd(product: Mapping[str, Any]) -> float | None:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension.get("unit") == "Hrs" and price > 0:
                return price
    return None
