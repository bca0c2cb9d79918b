"""Spot nodes in `scav plan`: the base, recordings of capacity, falling back to on-demand; and `scav policy`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner.spot.deadline.dynamic_program import solve
from planner.spot.simulation import case

AS_WRITTEN = case.Case.as_written

OFTEN_LOST = ([4] * 12 + [0] * 12) * 60  # two hours there, two hours gone
ALWAYS_THERE = [8] * 1000


@pytest.fixture
def plan(run_scav, write_job, tmp_path):
    """The plan that `scav plan` writes with these options, for a job that may take several nodes."""
    write_job({"nodes: 1..2": "nodes: 2..4", "$400": "$4000", "deadline: 24h": "deadline: 200h"})

    def run(*options):
        result = run_scav("plan", "--instance-type", "g5.xlarge", *options)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads((tmp_path / "scav-plan" / "scav.plan.json").read_text())

    return run


@pytest.fixture
def recorded(tmp_path):
    """A folder with the same recording for every zone of us-east-1."""

    def write(data, **more):
        for zone in (1, 2, 4, 5, 6):
            file = tmp_path / "recorded" / f"g5.xlarge@use1-az{zone}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": data, **more}))
        return "recorded"

    return write


@pytest.mark.parametrize("base", [0, 1, 2, 3])
def test_the_base_is_what_was_asked_for(plan, base):
    choice = plan("--spot", "always", "--nodes", "4", "--on-demand-base", str(base))["choice"]
    assert (choice["on_demand_count"], choice["spot_count"]) == (base, 4 - base)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--on-demand-base", "4"],
            "an on_demand_base of 4 leaves no spot node among at most 4; set spot to",
        ),
        (["--on-demand-fallback"], "on_demand_fallback keeps a deadline, and there is none"),
    ],
)
def test_options_that_mean_nothing_are_refused(run_scav, write_job, options, message):
    write_job({"nodes: 1..2": "nodes: 2..4", "  deadline: 24h\n": ""})
    result = run_scav("plan", *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert message in result.stderr


def test_a_recording_speaks_before_the_class(plan, recorded):
    options = ("--spot", "always", "--deadline", "1000h")
    without = plan(*options)
    often = plan(*options, "--spot-history", recorded(OFTEN_LOST))
    assert "class" in without["spot"]["market"]["source"]
    assert "recorded capacity g5.xlarge@use1-az" in often["spot"]["market"]["source"]
    assert "assumed from public recordings of other zones" in without["spot"]["market"]["source"]
    assert often["spot"]["market"]["hours_between_losses"] < without["spot"]["market"]["hours_between_losses"]
    assert often["estimate"]["interruptions"]["mean"] > without["estimate"]["interruptions"]["mean"]
    assert often["choice"]["checkpoint_interval_seconds"] < without["choice"]["checkpoint_interval_seconds"]
    assert without["inputs"]["spot_history_sha256"] is None
    assert often["inputs"]["spot_history_sha256"]


def test_a_recording_may_be_compressed_but_not_be_there_twice(plan, recorded, run_scav, tmp_path):
    options = ("--spot", "always", "--deadline", "1000h", "--spot-history", recorded(OFTEN_LOST))
    plain = plan(*options)["spot"]["market"]
    for file in (tmp_path / "recorded").iterdir():
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        if not file.name.endswith("az4.json"):
            file.unlink()
    twice = run_scav("plan", *options).stderr
    assert (
        twice == "Error: recorded/g5.xlarge@use1-az4.json.gz: is there twice: keep one of .json, .json.gz and .jsonl\n"
    )
    (tmp_path / "recorded" / "g5.xlarge@use1-az4.json").unlink()
    assert plan(*options)["spot"]["market"] == {**plain, "source": plain["source"].replace(".json", ".json.gz")}


def test_the_older_a_recording_the_less_is_known(plan, recorded):
    folder = recorded(OFTEN_LOST)
    fresh, old = (
        plan("--spot", "always", "--deadline", "1000h", "--spot-history", folder, *age)["spot"]["market"]
        for age in ((), ("--spot-history-age", "30d"))
    )
    assert old["loss_log_sd"] > fresh["loss_log_sd"]


def test_the_price_of_losses_decides_for_on_demand(plan, recorded):
    assert plan("--spot-history", recorded(ALWAYS_THERE))["choice"]["spot_count"] > 0
    assert plan("--spot-history", recorded([4] * 6 + [0] * 600))["choice"]["spot_count"] == 0


def test_a_zone_without_any_capacity_is_not_rented(plan, recorded):
    assert plan("--spot-history", recorded([0] * 500))["choice"]["spot_count"] == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "zone.json",
            "{}",
            "recorded/zone.json: is named for no instance type and zone ID, as g5.xlarge@use1-az4.json is",
        ),
        ("g5.xlarge@use1-az4.json", "[", "recorded/g5.xlarge@use1-az4.json: is no JSON: Expecting value"),
        ("g5.xlarge@use1-az4.json", "{}", 'recorded/g5.xlarge@use1-az4.json: no availability trace: need {"metadata"'),
        (
            "g5.xlarge@use1-az4.json",
            '{"metadata": {"gap_seconds": 600}, "data": [1, null, 1]}',
            "recorded/g5.xlarge@use1-az4.json: data: has a gap at tick 1: None is no node count; cut the trace there",
        ),
        (
            "g5.xlarge@use1-az4.json",
            '{"metadata": {"gap_seconds": 600}, "data": []}',
            "recorded/g5.xlarge@use1-az4.json: data: the trace is empty: need at least two ticks",
        ),
        (
            "g5.xlarge@use1-az4.json",
            '{"metadata": {"gap_seconds": 600}, "data": [1, 1], "prices": [1.0, -1.0]}',
            "recorded/g5.xlarge@use1-az4.json: prices: tick 1: -1.0 is no price above 0",
        ),
        ("g5.xlarge@use1-az4.json.gz", "{}", "recorded/g5.xlarge@use1-az4.json.gz: not a gzip file, or cut off"),
        ("readme.txt", "", "recorded: holds no recording such as g5.xlarge@use1-az4.json"),
    ],
)
def test_a_bad_recording_is_refused_in_one_line(run_scav, write_job, tmp_path, name, text, message):
    write_job()
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / name).write_text(text)
    result = run_scav("plan", "--spot-history", "recorded")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1


def test_falling_back_keeps_a_deadline_that_spot_alone_would_not(run_scav, plan, recorded):
    limits = ("--spot-history", recorded(OFTEN_LOST), "--deadline", "120h")
    spot = ("--instance-type", "g5.xlarge", "--spot", "always", "--on-demand-base", "0")
    assert run_scav("plan", *limits, *spot).exit_code == 3
    helped = plan(*limits, *spot[2:], "--on-demand-fallback")
    assert helped["spot"]["counts_on_fallback"]
    assert helped["constraints"]["deadline_hours"]["probability"] >= 0.95
    assert helped["estimate"]["usd"]["p50"] < plan(*limits, "--spot", "never")["estimate"]["usd"]["p50"]


def test_the_table_that_was_simulated_is_the_one_that_is_written(monkeypatch, plan, recorded):
    """Made again from the plan it is the same to the last digit, so it is solved once for each simulated candidate."""
    simulated, written = [], []
    monkeypatch.setattr(case, "solve", lambda *arguments: simulated.append(arguments) or solve(*arguments))
    case._solved.cache_clear()
    monkeypatch.setattr(case.Case, "as_written", lambda self: written.append(self) or AS_WRITTEN(self))
    options = ("--spot-history", recorded(OFTEN_LOST), "--deadline", "120h", "--spot", "always")
    assert plan(*options, "--on-demand-base", "0", "--on-demand-fallback")["spot"]["counts_on_fallback"]
    assert len(simulated) == len(written) >= 1


def test_a_recording_of_a_place_that_nobody_knows_is_named(run_scav, write_job, recorded, tmp_path):
    write_job()
    recorded(OFTEN_LOST)
    (tmp_path / "recorded" / "g5.xlarge@us-east-1a.json").write_text(
        json.dumps({"metadata": {"gap_seconds": 60}, "data": [1, 1]})
    )
    result = run_scav("plan", "--spot-history", "recorded")
    assert result.exit_code == 0
    assert result.stderr == (
        "Warning: recorded/g5.xlarge@us-east-1a.json says nothing: the catalogue has no g5.xlarge in zone us-east-1a "
        "(zone IDs look like use1-az4)\n"
    )


ASKED = ("--work-left", "5h", "--spot", "there", "--since", "30min", "--running", "nothing")


def test_the_policy_takes_spot_while_there_is_time_and_then_pays(run_scav, plan):
    plan("--spot", "always", "--on-demand-base", "1")
    patient = run_scav("policy", "scav-plan", *ASKED, "--time-left", "24h")
    hurried = run_scav("policy", "scav-plan", *ASKED, "--time-left", "5h", "--json")
    assert patient.stdout == ("Run on spot, or wait for it.\nterraform -chdir=scav-plan apply -var on_demand_count=1\n")
    assert json.loads(hurried.stdout)["run_on"] == "on_demand"
    assert json.loads(hurried.stdout)["on_demand_count"] > 1


def test_a_plan_without_spot_has_no_policy_and_loses_an_older_one(run_scav, plan, tmp_path):
    plan("--spot", "always")
    assert (tmp_path / "scav-plan" / "scav.policy.json").is_file()
    plan("--spot", "never")
    result = run_scav("policy", "scav-plan", *ASKED, "--time-left", "24h")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "scav.policy.json" in result.stderr


def test_a_single_spot_node_may_stand_in_any_zone(plan, tmp_path):
    choice = plan("--nodes", "1", "--spot", "always", "--deadline", "400h")["choice"]
    assert choice["other_zones"]
    assert choice["availability_zone"] not in choice["other_zones"]
    assert json.loads((tmp_path / "scav-plan" / "terraform.tfvars.json").read_text())["availability_zone_id"] == ""
    assert plan("--nodes", "2", "--spot", "always")["choice"]["other_zones"] == []
