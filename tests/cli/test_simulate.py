"""`scav simulate`: policies side by side, from the model and on a recording; histograms; and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys

import pytest
from click.testing import CliRunner

from planner.cli import cli

needs_vega_lite = pytest.mark.skipif(
    importlib.util.find_spec("vl_convert") is None, reason='no vl_convert: pip install "scav-planner[report]"'
)
FEW = ("--runs", "100")
POLICIES = [
    *("all on-demand", "all spot", "this plan", "with fallback", "DeepVM"),
    *("greedy", "uniform progress", "omniscient"),
]


@pytest.fixture(scope="module")
def workspace(job_text, measurement_line, tmp_path_factory):
    """One on-demand and two spot nodes; planned once."""
    folder = tmp_path_factory.mktemp("planned")
    (folder / "scav.yaml").write_text(job_text.replace("nodes: 1..2", "nodes: 3..4"))
    (folder / "measurements.jsonl").write_text(measurement_line)
    command = ["plan", str(folder), "--out", str(folder / "scav-plan"), "--spot", "always", "--on-demand-base", "1"]
    command += ["--confidence", "0.7", "--budget", "$4000"]
    planned = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert planned.exit_code == 0, planned.output
    return folder / "scav-plan"


@pytest.fixture
def _planned(workspace, tmp_path):
    shutil.copytree(workspace, tmp_path / "scav-plan")


@pytest.fixture
def simulate(_planned, run_scav):
    """`simulate("--seed", "1")` for that plan."""

    def run(*options):
        result = run_scav("simulate", *options)
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def write_trace(tmp_path):
    def write(**changes):
        ups = ([4] * 50 + [1] * 10) * 20
        document = {"metadata": {"gap_seconds": 600}, "data": ups, **changes}
        (tmp_path / "zone.json").write_text(json.dumps(document))
        return "zone.json"

    return write


def by_policy(result):
    return {row["policy"]: row for row in json.loads(result.stdout)["policies"]}


def test_all_policies_stand_in_one_table_that_fits_eighty_columns(simulate):
    text = simulate(*FEW).stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    positions = [text.index(f"\n{name} ") for name in POLICIES]
    assert positions == sorted(positions)
    assert "1 on-demand + 3 spot" in text
    for title in ("dollars, this plan", "hours, this plan"):
        assert title in text


def test_without_a_deadline_nobody_can_miss_it(run_scav, write_job):
    write_job({"nodes: 1..2": "nodes: 3..4", "  deadline: 24h\n": ""})
    assert run_scav("plan", "--spot", "always", "--confidence", "0.7", "--budget", "$4000").exit_code == 0
    text = run_scav("simulate", *FEW).stdout
    assert "greedy" not in text
    assert {line.split()[-2] for line in text.splitlines() if line.endswith(" 100")} == {"-"}


def test_json_has_a_row_for_each_policy(simulate):
    rows = by_policy(simulate("--json", *FEW))
    assert list(rows) == POLICIES
    for row in rows.values():
        assert row["usd"]["p05"] <= row["usd"]["p50"] <= row["usd"]["p95"]
    assert rows["omniscient"]["hours"] is None
    assert rows["all on-demand"]["losses"] == 0
    assert rows["this plan"]["runs"] == 100


def test_the_plans_own_row_is_what_the_plan_says(simulate, tmp_path):
    estimate = json.loads((tmp_path / "scav-plan" / "scav.plan.json").read_text())["estimate"]
    own = by_policy(simulate("--json", "--runs", "20000"))["this plan"]
    for name in ("hours", "usd"):
        for quantile in ("p05", "p50", "p95"):
            assert own[name][quantile] == pytest.approx(estimate[name][quantile], rel=0.03)


def test_same_seed_same_bytes(simulate):
    one, again, other = (simulate(*FEW, "--seed", seed).stdout for seed in ("3", "3", "4"))
    assert one == again != other


def test_a_recording_replaces_the_model(simulate, write_trace):
    result = simulate(*FEW, "--trace", write_trace(), "--json")
    assert json.loads(result.stdout)["trace"] == "zone.json"
    rows = by_policy(result)
    assert rows["all spot"]["losses"] > 0
    assert rows["with fallback"]["deadline_misses"] <= rows["this plan"]["deadline_misses"]


def test_a_recording_of_fewer_nodes_and_runs_that_outlast_it_are_said(simulate, write_trace):
    trace = write_trace(data=([1] * 20 + [0] * 20) * 7)
    text = " ".join(simulate(*FEW, "--trace", trace).stdout.split())
    assert "the trace is of one node, taken for all 3 spot nodes at once" in text
    assert "of 100 runs outlast the recording" in text


def test_a_plan_without_spot_nodes_says_that_nothing_can_be_lost(run_scav, write_job, tmp_path):
    write_job()
    assert run_scav("plan", "--spot", "never").exit_code == 0
    text = run_scav("simulate", *FEW).stdout
    assert "all on-demand: no spot nodes: nothing can be lost" in text
    estimate = json.loads((tmp_path / "scav-plan" / "scav.plan.json").read_text())["estimate"]
    [row] = by_policy(run_scav("simulate", "--runs", "20000", "--json")).values()
    assert row["usd"]["p50"] == pytest.approx(estimate["usd"]["p50"], rel=0.02)
    assert row["hours"]["p95"] == pytest.approx(estimate["hours"]["p95"], rel=0.02)


def test_the_plans_own_row_is_called_so_whoever_planned_it(run_scav, write_job):
    write_job({"nodes: 1..2": "nodes: 3..4"})
    assert run_scav("plan", "--policy", "deepvm", "--hourly-budget", "$6").exit_code == 0
    text = run_scav("simulate", *FEW).stdout
    assert "dollars, this plan" in text
    assert "scav's mix" not in text
    assert "DeepVM: one node on demand, no fallback, as DeepVM's single anchor" in text


def test_who_decides_is_said_to_know_only_what_may_be_left(simulate):
    assert "told only what may be left at most (p95)" in " ".join(simulate(*FEW).stdout.split())


def test_quantiles_that_hang_on_runs_without_an_end_are_marked_and_all_of_these_are_late(simulate, write_trace):
    text = simulate(*FEW, "--trace", write_trace(data=[4] + [0] * 400)).stdout
    [row] = (line.split() for line in text.splitlines() if line.startswith("all spot "))
    assert row[2].startswith(">")
    assert row[-3:] == ["100.0", "%", "100"]


@pytest.mark.usefixtures("_planned")
def test_a_recording_is_named_as_it_was_given(run_scav, write_trace, tmp_path):
    (tmp_path / "recorded").mkdir()
    (tmp_path / write_trace(data=[0] * 400)).rename(tmp_path / "recorded" / "zone.json")
    result = run_scav("simulate", *FEW, "--trace", "recorded/zone.json")
    assert result.stderr.startswith("Error: recorded/zone.json: no node was ever available")


@needs_vega_lite
def test_the_histograms_as_a_file_with_the_same_bytes_each_time(simulate, tmp_path):
    written = []
    for name in ("one.svg", "two.svg"):
        simulate(*FEW, "--svg", name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(b"<svg")


def test_a_file_without_vega_lite_says_what_to_install(simulate, run_scav, monkeypatch):
    simulate(*FEW)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = run_scav("simulate", *FEW, "--svg", "out.svg")
    assert (result.exit_code, result.stdout) == (1, "")
    assert 'pip install "scav-planner[report]"' in result.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": [4, None, 4]}, "zone.json: data: has a gap at tick 1: None is no node count; cut the trace there"),
        ({"data": []}, "zone.json: data: the trace is empty: need at least two ticks"),
        ({"data": [4, 4], "prices": [1.0, -1.0]}, "zone.json: prices: tick 1: -1.0 is no price above 0"),
        ({"data": [0] * 400}, "zone.json: no node was ever available in this trace: availability is zero"),
        ({"data": [4] * 60}, "zone.json: 10.0 h of recording are less than the deadline of 24.1 h"),
        ({"data": [4, 1e30]}, "zone.json: data: tick 1: 1e+30 nodes are more than a million"),
        ({"data": [4, 10**400]}, f"zone.json: data: tick 1: 1{'0' * 29}… nodes are more than a million"),
        ({"data": [4, 4], "prices": [1.0, 1e300]}, "zone.json: prices: tick 1: 1e+300 is more than a million dollars"),
        (
            {"metadata": {"gap_seconds": 10**400}},
            "zone.json: metadata.gap_seconds: must be a number of seconds from 1 to a million",
        ),
        (
            {"metadata": {"gap_seconds": 1e-300}},
            "zone.json: metadata.gap_seconds: must be a number of seconds from 1 to a million",
        ),
    ],
)
@pytest.mark.usefixtures("_planned")
def test_a_bad_recording_is_refused_in_one_line(run_scav, write_trace, changes, message):
    result = run_scav("simulate", *FEW, "--trace", write_trace(**changes))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere/scav.plan.json: no such file or directory"),
        (["."], "no scav.plan.json here; `scav plan --out .` writes one"),
        (["--trace", "missing.json"], "missing.json: no such file or directory"),
        (["--svg", "out.pdf"], "--svg: must end in .svg"),
    ],
)
@pytest.mark.usefixtures("_planned")
def test_what_is_not_there_is_said_in_one_line(run_scav, arguments, message):
    result = run_scav("simulate", *FEW, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize("option", [("--runs", "0"), ("--runs", "many"), ("--seed", "-1")])
def test_options_that_say_nothing_are_refused(run_scav, option):
    result = run_scav("simulate", *option)
    assert (result.exit_code, result.stdout) == (2, "")
