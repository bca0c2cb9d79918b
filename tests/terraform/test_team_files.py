"""What a workspace brings for a team: the example of a backend, and what git is told of its files."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from mock_aws import EXAMPLES, OVERRIDE, plan_workspace

AS_ADA = ("-c", "user.name=Ada", "-c", "user.email=a@example.com")
REVIEWED = {"COST.md", "terraform.tfvars.json", "backend.tf", "source/"}


@pytest.fixture
def workspace(tmp_path):
    plan_workspace(tmp_path / "w", "digits-cnn")
    example = (tmp_path / "w" / "backend.tf.example").read_text()
    (tmp_path / "w" / "backend.tf").write_text(example.replace("your-terraform-states", "states-of-the-team"))
    return tmp_path / "w"


def test_the_example_of_a_backend_is_one_that_may_be_added(workspace, run_scav):
    result = run_scav("check", workspace)
    assert result.exit_code == 0, result.output


def test_files_that_the_job_brings_are_what_it_was_planned_with(workspace, run_scav):
    (workspace / "source" / "train.py").write_text("print('other')\n")
    (workspace / "source" / "added.py").write_text("")
    result = run_scav("check", workspace)
    assert result.exit_code == 4
    assert "source/train.py" in result.output
    assert "source/added.py" in result.output


@pytest.mark.slow
def test_the_state_is_in_s3_and_a_second_apply_at_once_is_refused(terraform_on_mock, mock_aws, workspace):
    """The backend asks S3 by its own client, and for its lock by a write that S3 refuses where there is one."""
    s3 = mock_aws.client("s3")
    s3.create_bucket(Bucket="states-of-the-team")
    (workspace / "test_override.tf").write_text(OVERRIDE)
    began = terraform_on_mock.run("init", "-input=false", "-no-color", cwd=workspace)
    assert began.returncode == 0, began.stderr
    lock = {"ID": "1", "Operation": "OperationTypeApply", "Who": "ada@laptop", "Created": "2026-11-19T00:00:00Z"}
    s3.put_object(Bucket="states-of-the-team", Key="scav/this-run/terraform.tfstate.tflock", Body=json.dumps(lock))
    refused = terraform_on_mock.run("plan", "-input=false", "-no-color", cwd=workspace)
    assert refused.returncode == 1
    assert "Error acquiring the state lock" in refused.stderr
    assert "ada@laptop" in refused.stderr
    assert not (workspace / "terraform.tfstate").exists()


def test_git_folds_what_scav_wrote_and_shows_what_is_reviewed(workspace):
    git(workspace, "init", "--quiet")
    git(workspace, "add", ".")
    names = git(workspace, "ls-files").splitlines()
    told = git(workspace, "check-attr", "linguist-generated", "--", *names)
    folded = {line.split(": ")[0] for line in told.splitlines() if line.endswith(": set")}
    shown = {name if not name.startswith("source/") else "source/" for name in names if name not in folded}
    assert shown - {".gitattributes"} == REVIEWED
    assert {"main.tf", "scav.plan.json", "modules/gpu-cluster/iam.tf"} <= folded


def test_a_checkout_on_windows_is_still_as_scav_wrote_it(workspace, run_scav, tmp_path):
    git(workspace, "init", "--quiet")
    git(workspace, "-c", "core.autocrlf=true", "add", ".")
    git(workspace, *AS_ADA, "commit", "--quiet", "-m", "A run")
    git(tmp_path, "-c", "core.autocrlf=true", "clone", "--quiet", str(workspace), "clone")
    result = run_scav("review", tmp_path / "clone")
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_module_that_stays_in_git_is_not_copied(terraform, run_scav, tmp_path):
    """Real Terraform fetches it at a tag; a pull request that fetches it from elsewhere is found."""
    shutil.copytree(
        EXAMPLES.parent / "modules", tmp_path / "scav" / "modules", ignore=shutil.ignore_patterns(".terraform*")
    )
    for words in (["init", "--quiet"], ["add", "."], [*AS_ADA, "commit", "--quiet", "-m", "Modules"], ["tag", "v1"]):
        git(tmp_path / "scav", *words)
    place = f"git::file://{tmp_path}/scav//modules/gpu-cluster"
    options = ("--out", tmp_path / "w", "--module-source", f"{place}?ref=v1")
    assert run_scav("plan", EXAMPLES / "digits-cnn", *options).exit_code == 0
    assert not (tmp_path / "w" / "modules").exists()
    assert run_scav("plan", EXAMPLES / "digits-cnn", *options, "--check").exit_code == 0
    assert run_scav("check", tmp_path / "w", *options[2:]).exit_code == 0
    assert run_scav("check", tmp_path / "w", "--module-source", f"{place}?ref=other").exit_code == 4
    assert run_scav("check", tmp_path / "w").exit_code == 4
    terraform.init(tmp_path / "w")
    valid = terraform.run("validate", "-no-color", cwd=tmp_path / "w")
    assert valid.returncode == 0, valid.stderr


@pytest.mark.parametrize(
    "source",
    [
        "./elsewhere",
        "git::https://example.com/scav.git//modules/gpu-cluster",
        "git::https://example.com/${file(1)}?ref=v1",
        'git::https://example.com/x?ref=v1"\n',
        "git::https://example.com/x?ref=v1\n",
    ],
)
def test_a_module_from_git_is_pinned_and_no_code(run_scav, tmp_path, source):
    result = run_scav("plan", EXAMPLES / "digits-cnn", "--out", tmp_path / "w", "--module-source", source)
    assert result.exit_code == 2
    assert "must be git::https://" in result.stderr
    assert not (tmp_path / "w").exists()


def git(folder, *words):
    result = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
