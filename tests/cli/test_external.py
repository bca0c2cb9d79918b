"""`scav external` keeps to what Terraform asks of a program for `data "external"`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from planner.cli import cli


def ask(query):
    text = query if isinstance(query, str) else json.dumps(query)
    return CliRunner().invoke(cli, ["external"], input=text, catch_exceptions=False)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_answer_is_one_object_of_texts(job_text):
    result = ask({"job": job_text, "deadline": "20h", "regions": '["us-east-1"]', "confidence": "0.9", "budget": ""})
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert {type(value) for value in answer.values()} == {str}
    assert json.loads(answer["variables"])["instance_type"] == answer["instance_type"]
    assert json.loads(answer["node_count"]) >= 1
    assert result.stderr.startswith("Warning: before apply, the job must say")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("{", "query: is no JSON"),
        ("", "query: is no JSON"),
        ("[1]", "query: must be a JSON object of texts"),
        ({}, "query: job: this key is required"),
        ({"job": 3}, "query: job: must be a text"),
        ({"job": "name: x", "dedline": "2h"}, "query: dedline: unknown key; did you mean deadline?"),
        ({"job": "name: x", "confidence": "often"}, "query: confidence: 'often' is not a number"),
        ({"job": "name: x", "confidence": "true"}, "query: confidence: 'true' is not a number"),
        ({"job": "name: x", "regions": "us-east-1"}, "query: regions: 'us-east-1' is not a JSON list of texts"),
        ({"job": "name: x", "keepers": "{}"}, "query: keepers: unknown key"),
        ({"job": "name: ["}, "job:1: not valid YAML"),
    ],
)
def test_what_cannot_be_is_one_line_on_stderr_and_nothing_on_stdout(query, said):
    result = ask(query)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {said}")
    assert result.stderr.count("\n") == 1


def test_limits_and_what_is_not_possible_have_their_exit_codes(job_text):
    assert ask({"job": job_text, "max_usd_p95": "0.01"}).exit_code == 4
    assert ask({"job": job_text, "deadline": "1s"}).exit_code == 3
