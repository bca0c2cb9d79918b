"""`scav init` and `scav schema`: a job file to start from, and the formats as JSON Schema."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from planner.outside import assets


def test_init_writes_a_file_that_plans_as_it_stands(run_scav, tmp_path):
    result = run_scav("init", "job")
    assert result.stdout == "Wrote job/scav.yaml. Describe your job there, then run: scav plan job\n"
    assert (tmp_path / "job" / "scav.yaml").read_text(encoding="utf-8") == assets.load_starter_job()
    planned = run_scav("plan", "job", "--instance-type", "g5.*", "--nodes", "1..2", "--deadline", "60d")
    assert planned.exit_code == 0, planned.stderr


def test_init_writes_here_by_default(run_scav, tmp_path):
    assert run_scav("init").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["scav.yaml"]


MODEL = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


def test_init_writes_a_job_from_a_model_that_plans_once_its_target_is_said(run_scav, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    result = run_scav("init", "job", "--model", "config.json", "--sequence-length", "512")
    assert result.stdout == "Wrote job/scav.yaml. Say there what is required, then run: scav plan job\n", result.stderr
    file = tmp_path / "job" / "scav.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# A training job for scav, written from config.json (gpt2).\n")
    assert "# A sample is a sequence of 512 tokens.\n" in text
    assert "    layers: 12\n    width: 768\n    heads: 12\n    key_value_heads: 12\n" in text
    assert "    sequence_length: 512\n    longest_sequence: 1024\n    tied_embeddings: true\n    gated: false\n" in text
    assert "dataset_samples: this key is required" in run_scav("plan", "job").stderr
    for key, value in {"dataset_samples": "9M", "    samples": "1M", "reference_batch": "64"}.items():
        text = text.replace(f"{key}:", f"{key}: {value}", 1)
    file.write_text(text, encoding="utf-8")
    planned = run_scav("plan", "job", "--instance-type", "g5.*", "--nodes", "1..2")
    assert planned.exit_code == 0, planned.stderr
    assert "\nStrategy " in planned.stdout


def test_a_model_that_scav_cannot_count_leaves_no_file(run_scav, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**MODEL, "model_type": "mixtral"}))
    result = run_scav("init", "--model", "config.json")
    assert (result.exit_code, result.stdout) == (1, "")
    message = "model_type: 'mixtral' is a mixture of experts, which scav cannot plan\n"
    assert result.stderr == f"Error: config.json: {message}"
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_sequence_length_is_that_of_a_model(run_scav):
    result = run_scav("init", "--sequence-length", "512")
    assert result.exit_code == 2
    assert "--sequence-length needs --model" in result.stderr


def schema(run_scav, name):
    loaded = json.loads(run_scav("schema", name).stdout)
    jsonschema.Draft202012Validator.check_schema(loaded)
    return loaded


@pytest.mark.parametrize("name", ["job", "measurement", "plan", "cost", "catalog"])
def test_every_schema_is_one_and_is_closed(run_scav, name):
    loaded = schema(run_scav, name)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert loaded["additionalProperties"] is False


def test_what_scav_reads_and_writes_follows_its_schema(run_scav, write_job, measurement_line, tmp_path):
    path = write_job()
    plan_json = run_scav("plan", "--json").stdout
    assert plan_json == (tmp_path / "scav-plan" / "scav.plan.json").read_text(encoding="utf-8")
    documents = {
        "job": yaml.safe_load(path.read_text(encoding="utf-8")),
        "measurement": json.loads(measurement_line),
        "plan": json.loads(plan_json),
        "cost": json.loads(run_scav("review", "scav-plan", "--format", "json", "--max-usd", "9").stdout),
        "catalog": json.loads(assets.embedded_catalog().read_text(encoding="utf-8")),
    }
    for name, document in documents.items():
        jsonschema.validate(document, schema(run_scav, name), format_checker=jsonschema.FormatChecker())
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "surprise": 1}, schema(run_scav, name))


def test_the_schema_describes_what_a_user_writes_and_not_what_it_becomes(run_scav):
    properties = schema(run_scav, "job")["$defs"]["Constraints"]["properties"]
    assert "deadline" in properties
    assert "deadline_hours" not in properties
    assert "24h" in json.dumps(properties["deadline"])
