"""`scav spot record` as a user meets it: what it appends, and that a plan then says so."""

from __future__ import annotations

import json

import pytest

from planner.inputs import Observation
from planner.outside import aws, spot_records

PLACE = ("g5.xlarge", "use1-az4")


@pytest.fixture
def asked(monkeypatch):
    """What AWS was asked; every time it answers with one score and one launch."""
    asked_for = []

    def fetch(_clients, region, names, *, nodes, now, known: spot_records.Known):
        asked_for.append((region, tuple(names), nodes, set(known.activities)))
        score = Observation(noted=now, kind="score", value=8, nodes=nodes)
        launch = Observation(noted=now, kind="launched", happened=now, activity=f"a{len(asked_for)}", instance="i-1")
        return [spot_records.Noted(PLACE, score), spot_records.Noted(PLACE, launch)], []

    monkeypatch.setattr(aws, "open_session", lambda _profile: None)
    monkeypatch.setattr(spot_records, "fetch_observations", fetch)
    return asked_for


@pytest.fixture
def _job(write_job):
    write_job({"$400": "$4000", "deadline: 24h": "deadline: 200h"})


@pytest.mark.usefixtures("_job")
def test_what_was_noted_is_appended_and_a_plan_uses_it(asked, run_scav, tmp_path):
    for _ in range(2):
        result = run_scav("spot", "record", "--once", "--nodes", "2")
        assert (result.exit_code, result.stderr) == (0, ""), result.output
    [first, second] = asked
    assert (first[2], first[3], second[3]) == (2, set(), {"a1"})
    file = tmp_path / "spot-history" / "g5.xlarge@use1-az4.jsonl"
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()] == ["score", "launched"] * 2
    options = ("--instance-type", "g5.xlarge", "--nodes", "1", "--spot", "always", "--deadline", "900h", "--json")
    planned = run_scav("plan", *options)
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["inputs"]["spot_history_sha256"]


@pytest.mark.usefixtures("_job")
def test_a_recording_that_cannot_be_is_one_line(run_scav, tmp_path):
    (tmp_path / "spot-history").mkdir()
    file = tmp_path / "spot-history" / "g5.xlarge@use1-az4.jsonl"
    file.write_text('{"noted": "2999-01-01T00:00:00Z", "kind": "score", "value": 3}\n')
    for command in (("plan",), ("spot", "record", "--once")):
        result = run_scav(*command)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert "is in the future" in result.stderr
