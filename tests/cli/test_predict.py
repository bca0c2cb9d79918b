"""`scav predict`: one configuration, a sweep, a plot; and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

needs_vega_lite = pytest.mark.skipif(
    importlib.util.find_spec("vl_convert") is None, reason='no vl_convert: pip install "scav-planner[report]"'
)


@pytest.fixture
def predict(run_scav, write_job, measurement_line, tmp_path):
    """`predict("--nodes", "2")` for the small job with one measurement."""
    write_job()
    (tmp_path / "measurements.jsonl").write_text(measurement_line)

    def run(*options):
        result = run_scav("predict", *options)
        assert result.exit_code == 0, result.output
        return result

    return run


def rows(result):
    return json.loads(result.stdout)["rows"]


TYPE = ("--instance-type", "g5.12xlarge")


def test_without_options_it_predicts_what_would_be_planned(predict, run_scav):
    (row,) = rows(predict("--json"))
    plan = json.loads(run_scav("plan", "--json").stdout)
    for name in ("instance_type", "node_count", "on_demand_count", "global_batch", "gpu_batch", "availability_zone"):
        assert row[name] == plan["choice"][name]
    for name in ("hours", "samples", "step_seconds"):
        assert row[name] == plan["estimate"][name]


def test_one_configuration_has_hours_dollars_step_samples_and_both_efficiencies(predict):
    text = predict(*TYPE, "--nodes", "2", "--gpu-batch", "64").stdout
    for label in ("Cluster ", "Batch ", "Time ", "Cost ", "Step ", "Samples ", "Scaling ", "Evidence "):
        assert any(line.startswith(label) for line in text.splitlines()), label
    assert "2 x g5.12xlarge (8 x A10G)" in text
    assert "parallel efficiency" in text
    assert "statistical efficiency" in text
    assert "extrapolated: 2 nodes, probed up to 1" in text


def test_what_was_measured_is_not_extrapolated(predict):
    assert "within what was measured" in predict(*TYPE, "--gpu-batch", "64").stdout


def test_intervals_are_in_order(predict):
    for row in rows(predict(*TYPE, "--sweep", "nodes", "--nodes", "1..8", "--json")):
        for name in ("hours", "usd", "step_seconds", "samples"):
            assert 0 < row[name]["p05"] <= row[name]["p50"] <= row[name]["p95"]


@pytest.mark.parametrize("sweep", ["nodes", "batch"])
@pytest.mark.parametrize("market", ["--spot", "--on-demand"])
def test_a_sweep_fits_a_terminal_plot_included(predict, sweep, market):
    text = predict(*TYPE, "--sweep", sweep, market, "--plot").stdout
    assert max(map(len, text.splitlines())) <= 100
    assert "hours over" in text
    assert "dollars over" in text
    assert "\x1b" not in text


def test_a_sweep_explains_its_marks(predict):
    text = predict(*TYPE, "--sweep", "nodes", "--nodes", "1..4", "--gpu-batch", "64").stdout
    assert "  a  batch: samples to the target known at 256\n" in text or "  a  nodes: probed up to 1\n" in text


def test_the_job_s_own_limits_do_not_bind_what_is_asked_by_name(predict):
    (row,) = rows(predict("--instance-type", "g6.xlarge", "--nodes", "40", "--gpu-batch", "8", "--json"))
    assert (row["instance_type"], row["node_count"]) == ("g6.xlarge", 40)


@needs_vega_lite
@pytest.mark.parametrize(("name", "start"), [("out.svg", b"<svg"), ("out.png", b"\x89PNG")])
def test_a_plot_can_be_written(predict, tmp_path, name, start):
    result = predict(*TYPE, "--sweep", "nodes", "--plot-file", name)
    assert result.stderr.endswith(f"Wrote {name}\n")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_without_the_extra_one_line_says_how_to_get_it(run_scav, write_job, monkeypatch):
    write_job()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = run_scav("predict", *TYPE, "--sweep", "nodes", "--plot-file", "out.svg")
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr == 'Error: --plot-file: drawing to a file needs Vega-Lite: pip install "scav-planner[report]"\n'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--instance-type", "g5.12xlrge"], "unknown instance type 'g5.12xlrge'; did you mean g5.12xlarge"),
        (["--instance-type", "p3.2xlarge"], "the V100-16GB of p3.2xlarge has no units for bf16"),
        ([*TYPE, "--nodes", "0"], "--nodes: '0' must be above zero"),
        ([*TYPE, "--nodes", "-1"], "--nodes: '-1' must be above zero"),
        ([*TYPE, "--nodes", "many"], "--nodes: 'many' is not a count"),
        ([*TYPE, "--nodes", "5000"], "--nodes: 5,000 is beyond what scav predicts (1,024)"),
        ([*TYPE, "--nodes", "1..4"], "--nodes: a range is for a sweep; give one number"),
        ([*TYPE, "--gpu-batch", "0"], "--gpu-batch: '0' must be above zero"),
        ([*TYPE, "--gpu-batch", "4000"], "4,000 samples per GPU need about"),
        ([*TYPE, "--nodes", "4", "--global-batch", "1000"], "a global batch of 1,000 cannot be spread evenly over 16"),
        ([*TYPE, "--sweep", "nodes", "--global-batch", "513"], "nothing to sweep: no number of nodes from 1 to 2 fits"),
        ([*TYPE, "--sweep", "batch", "--global-batch", "1..3"], "nothing to sweep: no global batch from 1 to 3 fits"),
        ([*TYPE, "--sweep", "batch", "--gpu-batch", "64"], "--gpu-batch: is what --sweep batch varies"),
        ([*TYPE, "--plot"], "a plot shows a sweep: add --sweep nodes or --sweep batch"),
        ([*TYPE, "--sweep", "nodes", "--plot-file", "out.pdf"], "--plot-file: must end in .svg or .png"),
    ],
)
def test_bad_input_is_one_line(run_scav, write_job, options, message):
    write_job()
    result = run_scav("predict", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert len(result.stderr.splitlines()) == 1


def test_no_such_sweep_is_a_usage_error(run_scav):
    assert run_scav("predict", "--sweep", "zones").exit_code == 2
