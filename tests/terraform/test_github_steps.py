"""The shell steps of the GitHub workflow, run as a runner would, in a clone of a repository made for them.

Real: bash, git, scav, Terraform and the AWS provider. Stand-ins: `pip install` (scav is here), `gh` (writes down
what it was asked), `docker run …conftest` (the policies in another Rego interpreter), AWS (the mock).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mock_aws import OVERRIDE
from stand_ins import PATIENCE_SECONDS

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = REPOSITORY / "examples" / "gitops"
WORKFLOW = yaml.safe_load((RECIPES / "github/.github/workflows/scav.yml").read_text())
GIT = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
COMMENTS = "repos/your-org/your-repo/issues/7/comments"
JOB = """\
name: recipe
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  target: {epochs: 9, reference_batch: 256}
constraints:
  {deadline: 24h, budget: $400, instance_types: [g5.12xlarge], nodes: 1..1, regions: [us-east-1]}
"""
STAND_INS = {
    "python": """
case "$*" in
  "-m pip install"*) echo "$*" >> "$CALLS" ;;
  *) exec {python} "$@" ;;
esac
""",
    "gh": """
echo "gh $*" >> "$CALLS"
case "$*" in "api --paginate "*) cat "$COMMENTS_ON_GITHUB" ;; esac
""",
    "docker": """
test "$1 $2 $3 $4" = "run --rm -v $PWD:/project"
shift 5
echo "conftest $*" >> "$CALLS"
test "$1 $2 $4" = "test --policy --namespace"
exec {python} {evaluator} "$3" "$5" "$6"
""",
}


@pytest.fixture(scope="module")
def runner(attached_terraform, mock_server, tmp_path_factory):
    """A clone with a pull request checked out, and the environment of a runner."""
    mock_server.reset()
    folder = tmp_path_factory.mktemp("github")
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    evaluator = REPOSITORY / "tests/gitops/evaluate_policy.py"
    for name, script in STAND_INS.items():
        filled = script.replace("{python}", f"'{sys.executable}'").replace("{evaluator}", f"'{evaluator}'")
        (stand_ins / name).write_text(f"#!/bin/bash\nset -eu\n{filled}")
        (stand_ins / name).chmod(0o755)
    environment = {
        **attached_terraform.environment,
        "PATH": os.pathsep.join([str(stand_ins), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CALLS": str(folder / "calls"),
        "COMMENTS_ON_GITHUB": str(folder / "comments"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "PYTHONPATH": str(REPOSITORY),
        "SCAV_CHECK_ALLOW": "test_override.tf",  # it only says where the mock is
    }
    (folder / "comments").write_text("[]")
    answers = mock_server.answers(zone_id="", instance_type="g5.12xlarge")
    clone, base = cloned_repository(folder, environment, answers)
    return Runner(clone=clone, environment=environment, base=base)


class Runner:
    def __init__(self, *, clone: Path, environment: dict[str, str], base: str):
        self.clone, self.environment = clone, environment
        self.expressions = {
            "github.event.pull_request.base.sha": base,
            "github.event.pull_request.number": "7",
            "github.repository": "your-org/your-repo",
            "github.token": "stand-in",
        }

    def run(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        settings = {**WORKFLOW["env"], **step.get("env", {})}
        filled = {name: re.sub(r"\$\{\{ (\S+) \}\}", self._value, str(value)) for name, value in settings.items()}
        assert "${{" not in step["run"], "an expression in a shell step can be injected into"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", step["run"]],
            cwd=self.clone,
            env=self.environment | filled,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    def _value(self, match: re.Match[str]) -> str:
        return self.expressions[match[1]]


def cloned_repository(folder: Path, environment: dict[str, str], answers: dict[str, Any]) -> tuple[Path, str]:
    origin = folder / "origin"
    training = origin / "training"
    training.mkdir(parents=True)
    shutil.copytree(RECIPES / "policy", origin / "policy")
    network = {"vpc": answers["vpc_id"], "subnets": answers["subnet_ids"]}
    run = {"ami": answers["ami_id"], "image": answers["container_image"], "command": ["train.py"]}
    job = JOB + f"network: {json.dumps(network)}\nrun: {json.dumps(run)}\n"

    def commit(text: str, message: str) -> str:
        (training / "scav.yaml").write_text(text)
        call(["scav", "plan", "training", "--out", "training/run"], origin, environment)
        (training / "run" / "test_override.tf").write_text(OVERRIDE)
        call([*GIT, "add", "."], origin, environment)
        call([*GIT, "commit", "--quiet", "-m", message], origin, environment)
        return call(["git", "rev-parse", "HEAD"], origin, environment).strip()

    call(["git", "init", "--quiet", "--initial-branch=main"], origin, environment)
    base = commit(job, "A run")
    commit(job.replace("epochs: 9", "epochs: 12"), "Train longer")
    call(["git", "clone", "--quiet", str(origin), str(folder / "clone")], folder, environment)
    return folder / "clone", base


def call(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def steps(job: str) -> list[dict[str, Any]]:
    return [step for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def step(name: str) -> dict[str, Any]:
    return next(step for step in steps("review") if step["name"] == name)


@pytest.mark.slow
def test_every_shell_step_runs_from_review_to_apply(runner, mock_server):
    for job in ("review", "apply"):
        for current in steps(job):
            result = runner.run(current)
            assert result.returncode == 0, f"{current['name']}\n{result.stdout}\n{result.stderr}"
    comment = (runner.clone / "comment.md").read_text()
    assert "## Change" in comment
    assert "| dollars p50 |" in comment
    assert Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text() == comment
    calls = Path(runner.environment["CALLS"]).read_text().splitlines()
    assert calls == [
        "-m pip install --quiet --require-hashes -r tools/scav.txt",
        f"gh api --paginate {COMMENTS}",
        f"gh api --method POST {COMMENTS} --input comment.json --silent",
        "conftest test --policy policy --namespace scav.cost scav.cost.json",
        "conftest test --policy policy --namespace scav.plan plan.json",
        "-m pip install --quiet --require-hashes -r tools/scav.txt",
        "conftest test --policy policy --namespace scav.plan plan.json",
    ]
    assert mock_server.desired_capacity("scav-recipe-1") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "name", "code"),
    [
        ("training/scav.yaml", "epochs: 12", "epochs: 13", "The workspace follows from the job", 5),
        ("training/run/terraform.tfvars.json", '"node_count": 1', '"node_count": 8', "Nobody edited its values", 4),
        ("policy/cost.rego", "max_usd_p95 := 500", "max_usd_p95 := 1", "Guardrail and cost policy", 1),
    ],
)
def test_a_gate_that_does_not_hold_ends_the_job(runner, file, old, new, name, code):
    path = runner.clone / file
    before = path.read_text()
    assert before.count(old) == 1
    path.write_text(before.replace(old, new))
    try:
        assert runner.run(step(name)).returncode == code
    finally:
        path.write_text(before)


@pytest.mark.slow
def test_the_review_replaces_its_own_comment_and_nobody_elses(runner):
    """Another job commented last, a person quotes the marker, and a review of another workspace stands there too."""
    marker = "<!-- scav review of training/run -->"
    comments = [
        {"url": "1", "user": {"login": "ada"}, "body": f"{marker} is what it looks for"},
        {"url": "2", "user": {"login": "github-actions[bot]"}, "body": "<!-- scav review of other/run -->"},
        {"url": "3", "user": {"login": "github-actions[bot]"}, "body": f"{marker}\nold"},
        {"url": "4", "user": {"login": "github-actions[bot]"}, "body": "coverage: 93 %"},
    ]
    on_github, calls = Path(runner.environment["COMMENTS_ON_GITHUB"]), Path(runner.environment["CALLS"])
    on_github.write_text(json.dumps(comments[:2]) + json.dumps(comments[2:]))  # as two pages come
    (runner.clone / "comment.md").write_text('"${review}"\n')
    calls.write_text("")
    try:
        result = runner.run(step("Comment"))
    finally:
        on_github.write_text("[]")
    assert result.returncode == 0, result.stderr
    assert calls.read_text().splitlines()[1:] == ["gh api --method PATCH 3 --input comment.json --silent"]
    assert json.loads((runner.clone / "comment.json").read_text()) == {"body": f'{marker}\n"${{review}}"\n'}


def test_pull_requests_have_a_role_that_only_reads():
    """The other is a secret of the environment, which only the job that its reviewers let through has."""
    roles = {
        name: {step["with"]["role-to-assume"] for step in job["steps"] if "role-to-assume" in step.get("with", {})}
        for name, job in WORKFLOW["jobs"].items()
    }
    assert roles == {"review": {"${{ secrets.AWS_PLAN_ROLE }}"}, "apply": {"${{ secrets.AWS_APPLY_ROLE }}"}}
    assert ("environment" in WORKFLOW["jobs"]["review"], WORKFLOW["jobs"]["apply"]["environment"]) == (
        False,
        "training",
    )
    assert "-lock=false" in step("Terraform plan")["run"]


@pytest.mark.slow
def test_the_first_plan_of_a_repository_has_nothing_to_compare_with(runner):
    empty = call(
        [*GIT, "commit-tree", "-m", "empty", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
        runner.clone,
        runner.environment,
    )
    before, runner.expressions["github.event.pull_request.base.sha"] = dict(runner.expressions), empty.strip()
    result = runner.run(step("What it costs, and what changes"))
    runner.expressions = before
    assert result.returncode == 0, result.stderr
    assert "## Change" not in (runner.clone / "comment.md").read_text()


def test_hcl_of_the_recipes_is_formatted(terraform):
    result = terraform.run("fmt", "-check", "-recursive", str(RECIPES), cwd=REPOSITORY)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
