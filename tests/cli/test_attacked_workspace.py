"""Attacks on a workspace: links that lead out of it, files beside scav's, a plan that was killed half way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(result: Result, code: int, words: str) -> None:
    assert result.exit_code == code, result.output
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


# Files that are not scav's to remove


@pytest.mark.parametrize("link", ["modules", "modules/gpu-cluster"])
def test_a_linked_module_does_not_lead_plan_out_of_the_workspace(run_scav, workspace, tmp_path, link):
    outside = tmp_path / "outside"
    (workspace / link).rename(outside)
    (outside / "thesis.tex").write_text("years of work")
    (workspace / link).symlink_to(outside)
    before = tree(tmp_path)
    refused(run_scav("plan"), 1, "is a symbolic link; scav writes only inside the workspace")
    assert tree(tmp_path) == before


def test_a_users_own_file_in_the_module_is_kept_and_named(run_scav, workspace):
    (workspace / "modules" / "gpu-cluster" / "notes.md").write_text("why we did this")
    result = run_scav("plan")
    assert result.exit_code == 0
    assert result.stderr == (
        "Warning: left alone what scav did not write: modules/gpu-cluster/notes.md; remove it if it is not yours\n"
    )
    assert (workspace / "modules" / "gpu-cluster" / "notes.md").read_text() == "why we did this"


def test_a_list_in_a_pull_request_does_not_make_plan_remove_a_state(run_scav, workspace, tmp_path):
    (workspace / "terraform.tfstate").write_text("{}")
    (tmp_path / "other.txt").write_text("{}")
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    file = workspace / "scav.files.json"
    listed = json.loads(file.read_text()) if file.exists() else {"schema_version": 1, "files": {}}
    listed["files"] |= {"terraform.tfstate": digest, "../other.txt": digest}
    file.write_text(json.dumps(listed))
    assert run_scav("plan").exit_code == 0
    assert (workspace / "terraform.tfstate").exists()
    assert (tmp_path / "other.txt").exists()


# A plan that was killed


DYING = """
import os, sys
from planner.cli import main

moment = int(sys.argv.pop(1))

def hook(event, _arguments):
    global moment
    moment -= event == "os.rename"
    if moment == 0:
        os._exit(9)

sys.addaudithook(hook)
sys.argv[0] = "scav"
main()
"""


def test_a_killed_plan_is_refused_by_everybody_and_finished_by_the_next(run_scav, write_job, workspace, tmp_path):
    """Renamed were COST.md and a few more: the code is the same, so that its comparison finds nothing."""
    before = (workspace / "COST.md").read_text()
    write_job({"90": "45"})
    killed = subprocess.run([sys.executable, "-B", "-c", DYING, "5", "plan"], cwd=tmp_path, check=False)
    assert killed.returncode == 9
    assert (workspace / "COST.md").read_text() != before
    words = "scav-plan was not written to its end; run scav plan again, which finishes it"
    for command in (["check"], ["review"], ["simulate"]):
        refused(run_scav(*command, "scav-plan"), 5, words)
    refused(run_scav("plan", "--check"), 5, words)
    refused(run_scav("plan", "--check", "--frozen"), 5, words)
    assert run_scav("plan", "--frozen").exit_code == 0
    assert run_scav("plan", "--check").exit_code == run_scav("check", "scav-plan").exit_code == 0
    assert not list(tmp_path.rglob(".*scav-*"))


@pytest.mark.parametrize("name", ["main.tf", "scav.plan.json", "modules/gpu-cluster/iam.tf"])
def test_files_of_two_versions_are_found_whoever_wrote_them(run_scav, workspace, name):
    """Of another version nothing can be rendered again: its list is what there is to compare with."""
    plan = json.loads((workspace / "scav.plan.json").read_text()) | {"scav_version": "0.0.1"}
    written = (workspace / "scav.plan.json").read_text()
    (workspace / "scav.plan.json").write_text(json.dumps(plan))
    from_another_version(workspace)
    assert run_scav("check", "scav-plan").exit_code == run_scav("review", "scav-plan").exit_code == 0
    text = (workspace / name).read_text() + "\n"
    (workspace / name).write_text(text if name != "scav.plan.json" else written.replace('"0.1.0"', '"0.0.1"') + "\n")
    result = run_scav("check", "scav-plan")
    assert result.exit_code == 4
    assert f"file {name}" in result.stdout
    refused(run_scav("review", "scav-plan"), 5, f"is not as scav.files.json says that scav wrote it ({name})")


def test_a_review_says_which_variables_no_longer_follow_from_the_plan(run_scav, workspace):
    """Whoever edits them in a pull request can make the list of hashes fit."""
    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    edited = values | {"node_count": values["node_count"] + 7}
    (workspace / "terraform.tfvars.json").write_text(json.dumps(edited, indent=2, sort_keys=True) + "\n")
    words = f"node_count is {edited['node_count']} and not {values['node_count']}"
    refused(run_scav("review", "scav-plan"), 5, f"that no longer follow from its plan ({words})")
    from_another_version(workspace)
    refused(run_scav("review", "scav-plan"), 5, words)
    (workspace / "terraform.tfvars.json").write_text("[" * 100_000)
    refused(run_scav("review", "scav-plan"), 5, "that no longer follow from its plan")


def from_another_version(workspace: Path) -> None:
    """The list that the other version would have left."""
    from planner.plan import MANIFEST_FILE, format_manifest

    listed = json.loads((workspace / MANIFEST_FILE).read_text())["files"]
    files = {name: (workspace / name).read_text() for name in listed}
    (workspace / MANIFEST_FILE).write_text(format_manifest(files))


# What Terraform reads beside scav's files


ADDED = {
    "extra.tf": 'resource "aws_instance" "mine" {}\n',
    "override.tf": "",
    "main_override.tf": "",
    "extra.tf.json": "{}",
    "extra.tofu": "",
    "terraform.tfvars": "node_count = 64\n",
    "zone.auto.tfvars": "kms_key_arn = null\n",
    ".hidden.auto.tfvars": "",
    "zone.auto.tfvars.json": "{}",
    "modules/gpu-cluster/extra.tf": "",
    "modules/gpu-cluster/user_data/agent/extra.py": "",
}


@pytest.mark.parametrize("name", ADDED)
def test_a_file_beside_scavs_fails_the_check_unless_it_is_allowed(run_scav, workspace, name):
    (workspace / name).write_text(ADDED[name])
    result = run_scav("check", "scav-plan")
    assert result.exit_code == 4
    assert len([line for line in result.stdout.splitlines() if name in line]) == 1
    refused(result, 4, "terraform.tfvars.json is not what scav planned: 1 ")
    assert run_scav("check", "scav-plan", "--allow", name).exit_code == 0
    assert run_scav("check", "scav-plan", "--allow", "another.tf").exit_code == 4


def test_a_linked_file_is_read_by_terraform_too(run_scav, workspace, tmp_path):
    (tmp_path / "elsewhere").write_text("")
    (workspace / "extra.tf").symlink_to(tmp_path / "elsewhere")
    assert "extra.tf" in run_scav("check", "scav-plan").stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("backend.tf", 'terraform {\n  backend "s3" {}\n}\n'),
        (
            "backend.tf",
            '# where\nterraform {\n  required_version = ">= 1.6"\n  backend "s3" {\n    key = "a"\n  }\n}\n',
        ),
        ("cloud.tf", (EXAMPLES / "gitops" / "hcp" / "cloud.tf").read_text()),
        ("site.auto.tfvars", 'vpc_id = "vpc-1"\nsubnet_ids = ["subnet-1"]\ntags = {\n  node_count = "8"\n}\n'),
        ("site.auto.tfvars.json", '{"vpc_id": "vpc-1"}'),
        ("terraform.tfstate", "{}"),
        (".terraform.lock.hcl", ""),
        ("notes.txt", ""),
        ("prod.tfvars", "node_count = 64\n"),
    ],
)
def test_what_users_may_add_passes(run_scav, workspace, name, text):
    (workspace / name).write_text(text)
    result = run_scav("check", "scav-plan")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("backend.tf", 'resource "aws_instance" "mine" {\n}\n', "declares resource"),
        ("backend.tf", 'terraform {\n  backend "s3" {}\n}\nmodule "more" { source = "./x" }\n', "declares module"),
        ("backend.tf", "terraform {\n  required_providers {\n  }\n}\n", "declares required_providers"),
        ("cloud.tf", 'terraform {\n  backend "s3" { key = "${1}" }\n}\n', "cannot be read as a backend alone"),
        ("site.auto.tfvars", "node_count = 64\n", "set again in site.auto.tfvars"),
        ("site.auto.tfvars", 'a = [\n1]\n/* x */ instance_type   =\n "p5.48xlarge"', "set again in site.auto.tfvars"),
        ("site.auto.tfvars.json", '{"max_runtime_seconds": 1e9}', "set again in site.auto.tfvars.json"),
        ("site.auto.tfvars", "x = <<EOT\nEOT\n", "a heredoc"),
        ("site.auto.tfvars.json", "[" * 9999, "file site.auto.tfvars.json"),
    ],
)
def test_what_users_may_add_does_not_decide_for_scav(run_scav, workspace, name, text, words):
    (workspace / name).write_text(text)
    result = run_scav("check", "scav-plan")
    assert result.exit_code == 4
    assert words in result.stdout


def test_an_allowed_file_of_values_still_does_not_decide_for_scav(run_scav, workspace):
    (workspace / "zone.auto.tfvars").write_text("node_count = 64\n")
    result = run_scav("check", "scav-plan", "--allow", "zone.auto.tfvars")
    assert result.exit_code == 4
    assert "set again in zone.auto.tfvars" in result.stdout
