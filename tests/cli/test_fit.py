"""`scav fit` answers with any number of measurements, and says what is missing."""

from __future__ import annotations

import json

import jsonschema
import pytest

from planner.probing.fit_report import FitReport


def line(nodes, batch, seconds, kind="g5.12xlarge"):
    row = {"instance_type": kind, "nodes": nodes, "gpus_per_node": 4, "gpu_batch": batch}
    return json.dumps({**row, "precision": "bf16", "step_seconds": seconds}) + "\n"


LINES = [line(1, 64, 0.13), line(1, 16, 0.05), line(2, 64, 0.22), line(1, 128, 0.24), line(1, 64, 0.131)]


@pytest.fixture
def fit(run_scav, write_job, tmp_path):
    """`fit(LINES, "--json")` beside the small job."""

    def run(lines, *options):
        write_job()
        (tmp_path / "measurements.jsonl").write_text("".join(lines))
        result = run_scav("fit", *options)
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.mark.parametrize("count", range(len(LINES) + 1))
def test_any_number_of_measurements_is_answered_within_a_terminal(fit, count):
    text = fit(LINES[:count]).stdout
    assert max(map(len, text.splitlines())) <= 100
    for label in ("Job ", "Evidence ", "Limits ", "Next "):
        assert any(row.startswith(label) for row in text.splitlines()), label


def test_no_file_is_no_measurement(run_scav, write_job):
    write_job()
    text = run_scav("fit").stdout
    assert "no probe so far; from 3 on, each is predicted from the others" in text
    assert "step times are the data sheets'" in text


def test_the_table_sets_models_side_by_side_inside_and_beyond_the_range(fit):
    text = fit(LINES).stdout
    assert "4 probes (4 of g5.12xlarge) in 5 measurements" in text
    for words in ("between the others", "beyond the others", "plain forest", "physical form", "inside their 90 %"):
        assert words in text


def test_json_validates_against_its_schema_and_repeats_itself(fit):
    first, second = fit(LINES, "--json"), fit(LINES[::-1], "--json")
    assert first.stdout == second.stdout
    report = json.loads(first.stdout)
    jsonschema.validate(report, FitReport.model_json_schema())
    assert {row["model"] for row in report["errors"]} == {"scav", "plain forest", "physical form"}
    assert report["cross_validated_error"] > 0
    assert sum(report["law_weights"].values()) == pytest.approx(1, abs=1e-4)


def test_the_next_probe_has_a_price_and_a_gain(fit):
    report = json.loads(fit(LINES[:1], "--json").stdout)
    probe = report["next_probe"]
    assert probe["node_count"] <= 4
    assert probe["price_usd"] > 0
    assert probe["repays"] == (probe["gain_usd"] > probe["price_usd"])
    assert f"{probe['node_count']} x {probe['instance_type']}" in report["advice"]


def test_an_absurd_measurement_is_named_and_left_out(fit):
    result = fit([*LINES, line(1, 32, 80.0)])
    assert "Warning: used without 80 s per step on 1 x g5.12xlarge with 32 samples per GPU" in result.stderr
    assert "4 probes" in result.stdout


def test_plan_and_predict_name_it_too(fit, run_scav):
    fit([*LINES, line(1, 32, 80.0)])
    for command in ("plan", "predict"):
        assert "used without 80 s per step" in run_scav(command).stderr


def test_limits_that_nothing_keeps_are_said_not_raised(run_scav, write_job):
    write_job({"$400": "$1"})
    result = run_scav("fit")
    assert result.exit_code == 0
    assert "nothing keeps the job's limits" in result.stdout
