"""`scav doctor`: right about what is there, silent about secrets, and of help where something is missing."""

from __future__ import annotations

import datetime
import json
import os
import urllib.error

import pytest
from botocore.credentials import Credentials
from click.testing import CliRunner

from planner import __version__
from planner.cli import cli
from planner.outside import doctor

SECRET = "wJalrXUtnFEMI-a-secret"  # noqa: S105 - made up
TODAY = datetime.date(2026, 11, 1)


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """Nothing on PATH, no credentials, nothing in the current folder."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("urllib.request.urlopen", no_network)


def no_network(*_arguments, **_options):
    raise urllib.error.URLError("no network in this test")


@pytest.fixture
def program(tmp_path):
    """`program("docker", "echo 28.2.2")` puts a command on PATH."""

    def make(name: str, script: str) -> None:
        file = tmp_path / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return make


def run(*arguments):
    return CliRunner().invoke(cli, ["doctor", *arguments], catch_exceptions=False)


def findings(*arguments) -> dict[str, dict]:
    result = run("--json", *arguments)
    return {item["name"]: item for item in json.loads(result.stdout)["findings"]}


def test_on_an_empty_machine_planning_works_and_each_missing_thing_says_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    missing = [index for index, line in enumerate(lines) if line.startswith("missing")]
    assert {lines[index].split()[1] for index in missing} == {"Terraform", "container", "AWS", "probes", "embedded"}
    assert all(lines[index + 1].startswith("         -> ") for index in missing)
    assert any(line.split() == ["ok", "scav", __version__] for line in lines)
    assert (
        "install Terraform 1.5.7 or newer, or OpenTofu, or run `pip install 'scav-planner[terraform]'`" in result.stdout
    )


def test_terraform_and_tofu_are_told_apart_and_an_old_one_is_said_to_be_old(program):
    program("tofu", """echo '{"terraform_version": "1.9.0"}'""")
    assert findings()["Terraform"]["found"] == "OpenTofu 1.9.0"
    program("terraform", """echo '{"terraform_version": "1.5.6"}'""")
    found = findings()["Terraform"]
    assert (found["ok"], found["found"]) == (False, "terraform 1.5.6")
    assert found["to_do"] == "the workspaces need 1.5.7 or newer"
    program("terraform", """echo '{"terraform_version": "1.12.0-rc1"}'""")
    assert findings()["Terraform"]["ok"]


def test_a_container_engine_must_run_to_count(program):
    program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    found = findings()["container engine"]
    assert (found["ok"], found["found"]) == (False, "docker does not run: Cannot connect to the Docker daemon")
    program("podman", "echo '{}'")
    assert findings()["container engine"]["found"] == "podman"
    program("docker", "echo 28.2.2")
    assert findings()["container engine"]["found"] == "docker 28.2.2; podman"


def test_credentials_are_found_and_never_printed(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-made-up")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    result = run("--json")
    found = {item["name"]: item for item in json.loads(result.stdout)["findings"]}
    assert (found["AWS credentials"]["ok"], found["AWS credentials"]["found"]) == (True, "from env, eu-west-1")
    assert "AWS identity" not in found
    assert "AKIA" not in result.output
    assert SECRET not in result.output + run().output


def test_a_profile_that_assumes_a_role_counts_without_assuming_it(tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text(
        "[profile base]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[profile ml]\nrole_arn = arn:aws:iam::123456789012:role/ml\nsource_profile = base\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert findings("--profile", "ml")["AWS credentials"]["found"] == "from assume-role, no default region"


def test_an_unknown_profile_is_no_traceback():
    found = findings("--profile", "nobody")["AWS credentials"]
    assert (found["ok"], found["found"]) == (False, "The config profile (nobody) could not be found")


def test_offline_nothing_is_asked_of_the_network(monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("asked the network")

    monkeypatch.setattr("urllib3.connectionpool.HTTPConnectionPool.urlopen", refuse)
    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    assert run().exit_code == 0


def test_online_the_identity_and_the_registry_are_asked_for(monkeypatch):
    class Client:
        def get_caller_identity(self):
            return {"Arn": "arn:aws:iam::123456789012:user/ada"}

    monkeypatch.setattr("boto3.Session.get_credentials", lambda _session: Credentials("a", "b", method="sso"))
    monkeypatch.setattr("boto3.Session.client", lambda *_arguments, **_options: Client())
    found = findings("--online")
    assert found["AWS identity"]["found"] == "arn:aws:iam::123456789012:user/ada"
    assert found["AWS provider"]["found"] == "registry not reachable: <urlopen error no network in this test>"
    assert found["AWS provider"]["to_do"].startswith("behind a firewall")


def test_an_old_catalogue_still_plans_but_says_its_age():
    old = {item.name: item for item in doctor.examine(today=TODAY + datetime.timedelta(days=365))}["catalogue"]
    assert old.ok
    assert "days old" in old.found
    assert "scav catalog update" in old.to_do


def test_a_broken_catalogue_is_what_keeps_planning_from_working(tmp_path):
    (tmp_path / "catalog-2026-10-01.json").write_text("{")
    result = run()
    assert result.exit_code == 1
    assert result.stderr == "Error: planning does not work here: catalogue\n"
    assert "-> remove or repair it" in result.stdout
