"""Prices that arrive in the pull request that is judged by them: named by review, refused by check."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from planner.outside import assets, store

TODAY = datetime.date(2026, 11, 18)


@pytest.fixture(autouse=True)
def _a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "today", lambda: TODAY)


@pytest.fixture
def write_catalog(tmp_path: Path) -> Callable[..., Path]:
    """The embedded catalogue, with what `change` does to it, beside the job."""

    def write(change: Callable[[Any], None] = lambda _catalog: None, *, date: str = "2026-10-01") -> Path:
        catalog = json.loads(assets.embedded_catalog().read_text())
        catalog["date"] = date
        change(catalog)
        path = tmp_path / f"catalog-{date}.json"
        path.write_text(json.dumps(catalog))
        return path

    return write


def cheaper(instance_type: str, factor: float) -> Callable[[Any], None]:
    def change(catalog: Any) -> None:
        for offer in catalog["offers"]:
            if (offer["instance_type"], offer["region"]) == (instance_type, "us-east-1"):
                offer["on_demand_usd"] *= factor
                offer["spot_usd"] = {zone: usd and usd * factor for zone, usd in offer["spot_usd"].items()}

    return change


def planned(run_scav: Callable[..., Result], write_job: Callable[..., Path], *options: str) -> dict[str, Any]:
    write_job({"$400": "$4000", "deadline: 24h": "deadline: 200h"})
    result = run_scav("plan", "--region", "us-east-1", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(Path("scav-plan/scav.plan.json").read_text())


@pytest.mark.parametrize("catalogue_is_there", [True, False])
def test_a_tenth_of_the_price_is_named_and_refused(run_scav, write_job, write_catalog, catalogue_is_there):
    path = write_catalog(cheaper("g5.48xlarge", 0.1))
    plan = planned(run_scav, write_job, "--spot", "never")
    assert plan["choice"]["instance_type"] == "g5.48xlarge"
    if not catalogue_is_there:
        path.unlink()
    named = "g5.48xlarge in us-east-1, on demand" if catalogue_is_there else "an hour of this plan"

    review = run_scav("review", "scav-plan")
    assert review.exit_code == 0
    assert "prices moved by more than half since the catalogue embedded 2026-08-01" in " ".join(review.stdout.split())
    assert named in review.stdout
    markdown = run_scav("review", "scav-plan", "--format", "markdown").stdout
    assert f"| {named} | $" in markdown
    found = json.loads(run_scav("review", "scav-plan", "--format", "json").stdout)["prices"]
    assert found["whole_catalog"] is catalogue_is_there
    assert named in [price["name"] for price in found["moved"]]

    check = run_scav("check", "scav-plan")
    assert check.exit_code == 4
    assert f"price of {named}" in check.stdout
    allowed = run_scav("check", "scav-plan", "--allow-price-changes")
    assert allowed.exit_code == 0
    if not catalogue_is_there:
        assert "Not checked: prices that the plan does not hold: its catalogue" in allowed.stderr


def test_dearer_alternatives_are_named_though_the_choice_is_right(run_scav, write_job, write_catalog):
    """As good a way to get a cluster chosen as making it cheap."""
    honest = planned(run_scav, write_job)["choice"]["instance_type"]
    others = [name for name in ("g5.xlarge", "g5.2xlarge", "g5.12xlarge", "g5.48xlarge") if name != honest]
    path = write_catalog(lambda catalog: [cheaper(name, 10)(catalog) for name in others])
    plan = planned(run_scav, write_job)
    assert plan["inputs"]["catalog"] == path.name
    result = run_scav("check", "scav-plan")
    assert result.exit_code == 4
    rows = [line for line in result.stdout.splitlines() if line.startswith("price of ")]
    assert len(rows) == 10
    assert "more moved farther" in result.stdout.splitlines()[-1]


def test_the_price_of_spot_nodes_and_of_storage(run_scav, write_job, write_catalog):
    def change(catalog: Any) -> None:
        for region in catalog["regions"]:
            region["volume_usd_per_gib_month"] *= 1.6 if region["name"] == "us-east-1" else 1.4

    path = write_catalog(change)
    plan = planned(run_scav, write_job, "--spot", "always", "--instance-type", "g5.12xlarge")
    assert plan["spot"] is not None
    assert [price["name"] for price in moved(run_scav)] == ["volumes in us-east-1"]
    plan["spot"]["node_spot_usd"] /= 4
    path.unlink()
    Path("scav-plan/scav.plan.json").write_text(json.dumps(plan))
    Path("scav-plan/scav.files.json").unlink()
    assert [price["name"] for price in moved(run_scav)] == ["a node of this plan, spot"]


def moved(run_scav: Callable[..., Result]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_scav("review", "scav-plan", "--format", "json").stdout)["prices"][
        "moved"
    ]
    return found


@pytest.mark.parametrize(("factor", "count"), [(1.49, 0), (0.51, 0), (1.52, 1), (0.49, 1)])
def test_more_than_half_is_more_than_half(run_scav, write_job, write_catalog, factor, count):
    def change(catalog: Any) -> None:
        next(row for row in catalog["offers"] if row["on_demand_usd"])["on_demand_usd"] *= factor

    write_catalog(change)
    planned(run_scav, write_job)
    assert len(moved(run_scav)) == count
    assert run_scav("check", "scav-plan").exit_code == (4 if count else 0)


def test_the_same_prices_of_another_day_pass_without_a_word(run_scav, write_job, write_catalog):
    write_catalog()
    planned(run_scav, write_job)
    for command in ("check", "review"):
        result = run_scav(command, "scav-plan")
        assert (result.exit_code, result.stderr) == (0, "")
        assert "moved" not in result.stdout


def test_prices_that_scav_has_never_seen_are_counted(run_scav, write_job, write_catalog):
    def change(catalog: Any) -> None:
        name = "ap-new-1"
        catalog["regions"].append(catalog["regions"][0] | {"name": name})
        offer = catalog["offers"][0]
        catalog["offers"].append(offer | {"region": name, "on_demand_usd": 1.0, "spot_usd": {"apn1-az1": 0.5}})

    write_catalog(change)
    planned(run_scav, write_job)
    result = run_scav("check", "scav-plan")
    assert (result.exit_code, result.stderr) == (
        0,
        "Not checked: 4 prices that the catalogue embedded 2026-08-01 does not have\n",
    )


def test_a_catalogue_under_a_name_of_the_users_is_found(run_scav, write_job, write_catalog):
    path = write_catalog(cheaper("g5.48xlarge", 0.1))
    path.rename(path.with_name("prices.json"))
    planned(run_scav, write_job, "--catalog", "prices.json")
    assert json.loads(run_scav("review", "scav-plan", "--format", "json").stdout)["prices"]["whole_catalog"] is True


@pytest.mark.parametrize(
    "command", [["plan"], ["catalog", "list"], ["catalog", "show", "g5.xlarge"], ["predict"], ["fit"]]
)
def test_a_catalogue_of_tomorrow_is_refused(run_scav, write_job, write_catalog, command):
    write_job()
    path = write_catalog(date="2026-11-20")
    result = run_scav(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {path.name}: date: 2026-11-20 is in the future (today is 2026-11-18)\n"


def test_a_source_of_tomorrow_is_refused(run_scav, write_job, write_catalog):
    write_job()
    path = write_catalog(lambda catalog: catalog["sources"]["nvidia-v100"].update(date="2099-01-01"))
    assert run_scav("plan").stderr.startswith(f"Error: {path.name}: sources.nvidia-v100.date: 2099-01-01 is in the fut")


def test_a_plan_with_prices_of_tomorrow_is_refused_without_its_catalogue(
    run_scav, write_job, write_catalog, monkeypatch
):
    monkeypatch.setattr(store, "today", lambda: datetime.date(2027, 6, 1))
    path = write_catalog(date="2027-06-01")
    planned(run_scav, write_job)
    path.unlink()
    monkeypatch.setattr(store, "today", lambda: TODAY)
    for command in ("check", "review"):
        result = run_scav(command, "scav-plan")
        assert result.exit_code == 1
        assert "inputs.catalog_date: 2027-06-01 is in the future" in result.stderr


def test_today_and_where_it_is_tomorrow_already_are_no_future(run_scav, write_job, write_catalog):
    write_job()
    write_catalog(date="2026-11-19")
    assert run_scav("plan").exit_code == 0


def test_a_clock_that_is_years_behind_does_not_refuse_what_scav_brings_along(run_scav, write_job, monkeypatch):
    monkeypatch.setattr(store, "today", lambda: datetime.date(1970, 1, 1))
    write_job()
    assert run_scav("plan").exit_code == run_scav("review", "scav-plan").exit_code == 0
