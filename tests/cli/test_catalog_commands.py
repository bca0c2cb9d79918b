"""`scav catalog` as a user meets it."""

from __future__ import annotations

import datetime
import http.server
import json
import threading

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from planner.cli import cli
from planner.inputs.catalog.snapshot import format_catalog, parse_catalog
from planner.outside import assets, aws

TEXT = assets.embedded_catalog().read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SCAV_FROZEN", "AWS_PROFILE", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments):
    return CliRunner().invoke(cli, ["catalog", *arguments], catch_exceptions=False)


def rows(result):
    """The lines of the table without its heading, in columns."""
    return [line.split() for line in result.stdout.splitlines()[4:]]


def test_list_fits_a_hundred_columns_and_right_aligns_numbers():
    for arguments in ([], ["--region", "all"], ["--spot", "--precision", "fp8"]):
        lines = run("list", *arguments).stdout.splitlines()
        assert max(len(line) for line in lines) <= 100
        assert len({len(line) for line in lines[3:]}) == 1


def test_list_filters_and_sorts():
    result = run("list", "A100", "H100", "--sort", "price-per-tflop")
    assert [row[0] for row in rows(result)] == ["p5.4xlarge", "p5.48xlarge", "p4d.24xlarge", "p4de.24xlarge"]
    assert result.stdout.startswith("Catalogue embedded 2026-08-01; USD per hour in us-east-1\n")
    assert " ".join(rows(result)[2]) == "p4d.24xlarge 8x A100-40GB 40 96 1152 400 2496 21.958 10.130 2.745 8.80"


def test_list_says_what_is_not_offered():
    assert "not offered" in run("list", "p3.2xlarge").stdout
    assert rows(run("list", "p3.2xlarge", "--region", "all"))[0][:3] == ["p3.2xlarge", "-", "1x"]


def test_list_of_several_regions_names_them():
    result = run("list", "g5.xlarge", "--region", "us-east-1", "--region", "eu-west-1")
    assert [row[1] for row in rows(result)] == ["us-east-1", "eu-west-1"]


def test_list_as_json():
    answer = json.loads(run("list", "g5.xlarge", "--json").stdout)
    assert (answer["catalog"], answer["precision"]) == ("embedded 2026-08-01", "bf16")
    assert [machine["on_demand_usd"] for machine in answer["machines"]] == [1.006]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "H10"], "no instance type matches 'H10'; did you mean H100?"),
        (["list", "--region", "us-est-1"], "the catalogue has no region 'us-est-1'; did you mean us-"),
        (["list", "--catalog", "missing.json"], "missing.json: no such file or directory"),
        (["show", "g5.xlrge"], "unknown instance type 'g5.xlrge'; did you mean g5.xlarge"),
        (["show", "p4d"], "unknown instance type 'p4d'; did you mean p4d.24xlarge or p4de.24xlarge?"),
        (["update", "--region", "mars-1"], "the catalogue has no region 'mars-1'"),
        (["update", "--frozen"], "the catalogue is frozen (--frozen or SCAV_FROZEN): not refreshed"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1


def test_another_catalogue_can_be_used(tmp_path):
    older = parse_catalog(TEXT, file="snapshot.json").model_copy(update={"date": datetime.date(2020, 1, 1)})
    (tmp_path / "catalog-2020-01-01.json").write_text(format_catalog(older), encoding="utf-8")
    assert run("list", "T4").stdout.startswith("Catalogue catalog-2020-01-01.json;")
    embedded = run("list", "T4", "--catalog", str(assets.embedded_catalog()))
    assert embedded.stdout.startswith("Catalogue embedded 2026-08-01;")


def test_show_tells_all_facts_prices_and_sources():
    text = run("show", "g4dn.12xlarge", "--region", "us-east-1").stdout
    for fact in (
        "4x T4",
        "fp16 65",
        "50 Gbit/s",
        "4.6 Gbit/s",
        "use1-az6",
        "3.9120",
        "15-20 %",
        "Spot Instance Advisor",
    ):
        assert fact in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_show_of_what_is_not_sold():
    assert "Not offered.\n" in run("show", "p3.16xlarge").stdout
    assert "Not offered in eu-west-1.\n" in run("show", "p5.48xlarge", "--region", "eu-west-1").stdout


def test_show_as_json():
    answer = json.loads(run("show", "p5e.48xlarge", "--json").stdout)
    assert answer["gpu"]["name"] == "H200"
    assert {offer["on_demand_usd"] for offer in answer["offers"]} == {None}
    assert set(answer["sources"]) == {"ec2-instance-types", "nvidia-h200", "aws-prices"}


@pytest.fixture
def advisor():
    """Serves AWS's file of interruption classes with this content; the address is returned."""
    servers = []

    def serve(regions):
        body = json.dumps({"ranges": [], "spot_advisor": regions}).encode()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Not into the test's output."""

        servers.append(http.server.HTTPServer(("127.0.0.1", 0), Answer))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/spot-advisor-data.json"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mock_aws(monkeypatch, advisor):
    """EC2 is moto's server; the price list, which moto lacks, knows a single price."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("SCAV_SPOT_ADVISOR_URL", advisor({"us-east-1": {"Linux": {"g5.xlarge": {"s": 60, "r": 3}}}}))
    pricing = boto3.client("pricing", region_name="us-east-1", endpoint_url="http://127.0.0.1:9")
    with Stubber(pricing) as stubber:
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": "1.234"}}
        product = {
            "product": {"attributes": {"instanceType": "g5.xlarge"}},
            "terms": {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}},
        }
        stubber.add_response("get_products", {"PriceList": [json.dumps(product)]})
        monkeypatch.setattr(aws, "open_pricing", lambda _session: pricing)
        yield
    pricing.close()
    server.stop()


@pytest.mark.usefixtures("mock_aws")
def test_update_writes_a_dated_catalogue_that_is_used_from_then_on(tmp_path):
    result = run("update", "--region", "us-east-1")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert (result.exit_code, result.stdout) == (0, f"Wrote catalog-{today}.json\n")
    assert all(line.startswith("Warning: left out g7.") for line in result.stderr.splitlines())
    assert [file.name for file in tmp_path.iterdir()] == [f"catalog-{today}.json"]
    answer = json.loads(run("list", "g5.xlarge", "--region", "us-east-1", "--region", "eu-west-1", "--json").stdout)
    assert answer["catalog"] == f"catalog-{today}.json"
    assert [machine["on_demand_usd"] for machine in answer["machines"]] == [1.234, 1.123]
    offers = json.loads((tmp_path / f"catalog-{today}.json").read_text())["offers"]
    row = next(row for row in offers if (row["instance_type"], row["region"]) == ("g5.xlarge", "us-east-1"))
    assert (row["interruption_class"], row["interruption_source"]) == (3, f"aws-spot-advisor-{today}")


@pytest.mark.parametrize("regions", [["no such format"], {"us-east-1": {"Linux": {"g5.xlarge": {"r": 17}}}}])
@pytest.mark.usefixtures("mock_aws")
def test_update_keeps_the_classes_that_the_advisor_does_not_know(monkeypatch, advisor, tmp_path, regions):
    monkeypatch.setenv("SCAV_SPOT_ADVISOR_URL", advisor(regions))
    result = run("update", "--region", "us-east-1")
    kept = [line for line in result.stderr.splitlines() if "interruption classes" in line]
    assert result.exit_code == 0
    assert len(kept) == (1 if isinstance(regions, list) else 0)
    written = json.loads(next(tmp_path.glob("catalog-*.json")).read_text())["offers"]
    before = parse_catalog(TEXT, file="snapshot.json").offers
    classes = {(row.instance_type, row.region): row.interruption_class for row in before}
    for row in written:
        assert row.get("interruption_class") == classes.get((row["instance_type"], row["region"]))


@pytest.mark.usefixtures("mock_aws")
def test_update_without_the_advisor_still_refreshes_prices(monkeypatch):
    monkeypatch.setenv("SCAV_SPOT_ADVISOR_URL", "http://127.0.0.1:9/")
    result = run("update", "--region", "us-east-1")
    assert result.exit_code == 0
    assert "Warning: kept the old interruption classes: no interruption classes from AWS" in result.stderr


def test_update_without_credentials_writes_nothing(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    result = run("update", "--region", "us-east-1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no AWS credentials: ")
    assert list(tmp_path.iterdir()) == []


def test_update_without_a_network_writes_nothing(monkeypatch, tmp_path):
    class Unreachable:
        def get_paginator(self, operation_name):  # noqa: ARG002 (the call of a boto3 client)
            raise EndpointConnectionError(endpoint_url="https://ec2.us-east-1.amazonaws.com")

    monkeypatch.setattr(aws, "open_ec2", lambda _session, _region: Unreachable())
    result = run("update", "--region", "us-east-1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no answer from AWS in us-east-1: check the network")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["1", "true"])
def test_frozen_by_environment(monkeypatch, value):
    monkeypatch.setenv("SCAV_FROZEN", value)
    assert run("update").exit_code == 1
