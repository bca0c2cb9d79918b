"""The recipes of examples/gitops, read by their tools' own schemas and linters where these can be had from PyPI.

Atlantis and Spacelift publish no schema: their files are held against the keys that their documentation lists.
tests/terraform/test_github_steps.py runs the shell steps of the GitHub workflow.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = REPOSITORY / "examples" / "gitops"
GOLDEN = REPOSITORY / "tests" / "golden" / "check"
WORKFLOW = RECIPES / "github/.github/workflows/scav.yml"
GITLAB = RECIPES / "gitlab/.gitlab-ci.yml"
BIN = Path(sys.executable).parent


def run(*command: str | Path, stdin: str = "", cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], input=stdin, capture_output=True, text=True, cwd=cwd)


def test_the_github_workflow_has_a_valid_schema():
    result = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", WORKFLOW)
    assert result.returncode == 0, result.stdout


def test_the_github_workflow_is_safe_in_the_eyes_of_zizmor():
    """Actions pinned by commit, no credentials left behind, no expression in a shell step, least permissions."""
    result = run(BIN / "zizmor", "--offline", "--no-progress", WORKFLOW)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_gitlab_pipeline_has_a_valid_schema():
    schema = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    result = run(BIN / "check-jsonschema", *schema, GITLAB)
    assert result.returncode == 0, result.stdout


def shell_steps() -> list[tuple[str, str]]:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    found = [(f"github: {step['name']}", step["run"]) for step in steps]
    pipeline = yaml.safe_load(GITLAB.read_text())
    for name, job in {"default": pipeline["default"], **pipeline}.items():
        lines = [*job.get("before_script", ()), *job.get("script", ())] if isinstance(job, dict) else []
        found += [(f"gitlab: {name}", "\n".join(lines))] if lines else []
    for file, key in ((RECIPES / "spacelift/.spacelift/config.yml", "stacks"),):
        for name, stack in yaml.safe_load(file.read_text())[key].items():
            found.append((f"spacelift: {name}", "\n".join([*stack["before_init"], *stack["after_plan"]])))
    server = yaml.safe_load((RECIPES / "atlantis/repos.yaml").read_text())
    stages = server["workflows"]["scav"].values()
    lines = [step["run"] for stage in stages for step in stage["steps"] if isinstance(step, dict) and "run" in step]
    return [*found, ("atlantis", "\n".join(lines))]


@pytest.mark.parametrize(("name", "script"), shell_steps(), ids=[name for name, _ in shell_steps()])
def test_shell_steps_pass_shellcheck(name, script):
    shellcheck = shutil.which("shellcheck") or str(BIN / "shellcheck")
    result = run(shellcheck, "--shell=bash", "--exclude=SC2119,SC2120", "-", stdin=f"set -euo pipefail\n{script}\n")
    assert result.returncode == 0, f"{name}\n{result.stdout}"


ATLANTIS = {
    "": {"version", "projects"},
    "projects": {"name", "dir", "autoplan"},
    "autoplan": {"enabled", "when_modified"},
}
ATLANTIS_SERVER = {
    "": {"repos", "workflows", "policies"},
    "repos": {"id", "workflow", "allowed_overrides", "allow_custom_workflows", "policy_check", "apply_requirements"},
    "policies": {"conftest_version", "owners", "policy_sets"},
    "policy_sets": {"name", "path", "source"},
    "owners": {"users"},
    "workflows": {"scav"},
    "scav": {"plan", "policy_check", "apply"},
    "steps": {"run", "policy_check"},
}
SPACELIFT = {
    "": {"version", "stacks"},
    "stacks": {"training"},
    "training": {"project_root", "terraform_version", "environment", "before_init", "after_plan"},
}


@pytest.mark.parametrize(
    ("file", "documented"),
    [
        ("atlantis/atlantis.yaml", ATLANTIS),
        ("atlantis/repos.yaml", ATLANTIS_SERVER),
        ("spacelift/.spacelift/config.yml", SPACELIFT),
    ],
)
def test_other_recipes_use_documented_keys(file, documented):
    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            assert not documented.get(name) or set(value) <= documented[name], name
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)

    walk(yaml.safe_load((RECIPES / file).read_text()), "")


def test_recipes_install_scav_by_its_hash_and_look_at_the_same_places():
    """By name alone they would get whatever an index has under it."""
    for path in sorted(path for path in RECIPES.rglob("*") if path.is_file()):
        text = path.read_text()
        installs = re.findall(r"\bpip3? .*install\b.*", text)
        assert all(
            re.search(r"pip install( --quiet)? --require-hashes -r \S*scav\.txt\b", line) for line in installs
        ), path
        assert installs or not re.search(r"(?m)^\s*-?\s*(run: )?scav ", text), f"{path} installs no scav"
        assert set(re.findall(r"conftest\S*:\s?(v[\d.]+)", text)) <= {"v0.56.0"}, path


def test_modules_that_a_recipe_runs_exist():
    text = "\n".join(path.read_text() for path in RECIPES.rglob("*") if path.is_file())
    modules = set(re.findall(r"-m (planner[\w.]*)", text))
    assert modules
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_the_page_names_every_recipe():
    page = (REPOSITORY / "docs" / "gitops.md").read_text()
    for path in sorted(path for path in RECIPES.rglob("*") if path.is_file()):
        assert f"examples/gitops/{path.relative_to(RECIPES).as_posix()}" in page, path


# --- policies ---


@pytest.fixture
def evaluate(tmp_path):
    def deny(namespace: str, value: Any, folder: Path = RECIPES / "policy") -> dict[str, list[str]]:
        file = tmp_path / "input.json"
        file.write_text(json.dumps(value))
        result = run(sys.executable, Path(__file__).with_name("evaluate_policy.py"), folder, namespace, file)
        assert result.returncode in (0, 1), result.stderr
        findings = json.loads(result.stdout)
        assert result.returncode == bool(findings["deny"])
        return findings

    return deny


@pytest.fixture(scope="module")
def cost() -> dict[str, Any]:
    result = run(BIN / "scav", "review", GOLDEN, "--max-usd", "500", "--format", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def plan() -> dict[str, Any]:
    return json.loads((GOLDEN / "plan.json").read_text())


def test_a_cheap_plan_passes_the_cost_policy(evaluate, cost):
    assert evaluate("scav.cost", cost)["deny"] == []
    assert "the prediction rests on no probe" in evaluate("scav.cost", cost)["warn"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("usd", "p95"), 501, "p95 cost $501.00 exceeds $500"),
        (("usd", "max"), 1000.5, "at worst it costs $1000.50, more than $1000"),
        (("choice", "max_runtime_hours"), 73, "it may run 73.0 h, longer than 72 h"),
        (("constraints", "budget_usd", "probability"), 0.5, "budget_usd is kept with probability 0.50 only"),
        (("guardrails", 0, "kept"), False, "guardrail max_usd is exceeded"),
        (("schema_version",), 2, "unknown version of the cost review"),
    ],
)
def test_the_cost_policy_denies(evaluate, cost, path, value, message):
    changed = copy.deepcopy(cost)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert evaluate("scav.cost", changed)["deny"] == [message]


def test_what_is_no_review_is_denied(evaluate):
    assert "this is no cost review of scav" in evaluate("scav.cost", {})["deny"]


def test_the_recorded_plan_passes_the_plan_policy_and_as_hcp_gives_it(evaluate, plan):
    assert evaluate("scav.plan", plan)["deny"] == []
    assert evaluate("scav.plan", {"plan": plan, "run": {}})["deny"] == []
    assert evaluate("scav.plan", {"plan": {}, "run": {}})["deny"] == ["this is no Terraform plan"]


def added(kind: str, after: dict[str, Any], actions: tuple[str, ...] = ("create",)) -> dict[str, Any]:
    return {"address": f"{kind}.x", "type": kind, "name": "x", "change": {"actions": list(actions), "after": after}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (added("aws_instance", {}), "aws_instance.x starts machines outside the training group"),
        (added("aws_autoscaling_group", {"max_size": 1}), "aws_autoscaling_group.x is a second group of machines"),
        (
            added("aws_vpc_security_group_ingress_rule", {"cidr_ipv4": "0.0.0.0/0"}),
            "aws_vpc_security_group_ingress_rule.x is open to the internet",
        ),
        (
            added("aws_iam_role_policy_attachment", {"policy_arn": "arn:aws:iam::aws:policy/AdministratorAccess"}),
            "aws_iam_role_policy_attachment.x grants everything",
        ),
        (added("aws_s3_bucket", {}, ("delete",)), "aws_s3_bucket.x would delete checkpoints"),
        (
            added("aws_launch_template", {"metadata_options": [{"http_tokens": "optional"}]}),
            "aws_launch_template.x allows IMDSv1",
        ),
        (
            added("aws_launch_template", {"block_device_mappings": [{"ebs": [{"encrypted": "false"}]}]}),
            "aws_launch_template.x has an unencrypted volume",
        ),
    ],
)
def test_the_plan_policy_denies(evaluate, plan, change, message):
    plan["resource_changes"].append(change)
    assert evaluate("scav.plan", plan)["deny"] == [message]


def test_the_plan_policy_denies_too_many_nodes_and_other_families(evaluate, plan):
    group = next(item for item in plan["resource_changes"] if item["type"] == "aws_autoscaling_group")
    after = group["change"]["after"]
    after["max_size"] = 17
    after["mixed_instances_policy"][0]["launch_template"][0]["override"][1]["instance_type"] = "p6.48xlarge"
    assert evaluate("scav.plan", plan)["deny"] == [
        f"{group['address']} may have 17 nodes, more than 16",
        "p6.48xlarge is of family p6, which is not allowed",
    ]


def test_the_spacelift_policy(evaluate, cost, plan):
    folder = RECIPES / "spacelift"
    reviewed = {"terraform": plan, "third_party_metadata": {"custom": {"scav": cost}}}
    assert evaluate("spacelift", reviewed, folder)["deny"] == []
    assert evaluate("spacelift", {"terraform": plan}, folder)["deny"] == ["no cost review: scav did not run"]
    plan["resource_changes"].append(added("aws_instance", {}))
    assert evaluate("spacelift", reviewed, folder)["deny"] == ["aws_instance.x is not part of the plan"]
    cost = {**cost, "usd": {**cost["usd"], "p95": 900.0}}
    dear = {"terraform": {"resource_changes": []}, "third_party_metadata": {"custom": {"scav": cost}}}
    assert evaluate("spacelift", dear, folder)["deny"] == ["p95 cost $900.00 exceeds $500"]


# What a project of atlantis.yaml may only set where the server's allowed_overrides names it (Atlantis' documentation).
RESTRICTED = {
    *("apply_requirements", "import_requirements", "plan_requirements", "workflow"),
    *(
        "custom_policy_check",
        "delete_source_branch_on_merge",
        "policy_check",
        "repo_locking",
        "repo_locks",
        "silence_pr_comments",
    ),
}


def what_atlantis_runs(project: dict[str, Any], own_workflows: dict[str, Any]) -> list[Any]:
    """By the server's file, as Atlantis' documentation has it; Atlantis itself is not here to be asked."""
    server = yaml.safe_load((RECIPES / "atlantis/repos.yaml").read_text())
    (repository,) = server["repos"]
    if refused := sorted(RESTRICTED & set(project) - set(repository["allowed_overrides"])):
        raise PermissionError(f"repo config not allowed to set {refused}")
    if own_workflows and not repository["allow_custom_workflows"]:
        raise PermissionError("repo config not allowed to define custom workflows")
    workflow = {**server["workflows"], **own_workflows}[project.get("workflow", repository["workflow"])]
    return [step for stage in ("plan", "policy_check", "apply") for step in workflow[stage]["steps"]]


def atlantis_project() -> dict[str, Any]:
    (project,) = yaml.safe_load((RECIPES / "atlantis/atlantis.yaml").read_text())["projects"]
    return dict(project)


def test_atlantis_runs_every_gate_before_it_applies():
    steps = what_atlantis_runs(atlantis_project(), {})
    gates = [step["run"] for step in steps if isinstance(step, dict) and "run" in step]
    assert [gate.split(" ")[1] for gate in gates] == ["plan", "check", "review", "check", "review"]
    assert steps[-1] == "apply"
    assert gates[0].endswith("--frozen --check")


@pytest.mark.parametrize(
    "edit",
    [
        {"workflow": "default"},
        {"apply_requirements": []},
        {"plan_requirements": []},
        {"policy_check": False},
        {"custom_policy_check": True},
        {"workflow": "mine"},
    ],
    ids=str,
)
def test_a_pull_request_that_edits_atlantis_yaml_is_refused(edit):
    own = {"mine": {"plan": {"steps": ["init", "plan"]}}} if edit.get("workflow") == "mine" else {}
    with pytest.raises(PermissionError):
        what_atlantis_runs(atlantis_project() | edit, own)


def test_a_project_that_a_pull_request_moves_elsewhere_fails_at_the_first_gate(tmp_path):
    """The server's steps run there too, and a folder that scav did not write does not pass them."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "main.tf").write_text('resource "aws_instance" "gpu" {}\n')
    gates = [step["run"] for step in what_atlantis_runs(atlantis_project() | {"dir": "other"}, {}) if "run" in step]
    for gate in gates[:3]:
        scav = [sys.executable, "-m", "planner", *gate.split()[1:]]
        assert run(*scav, cwd=tmp_path / "other").returncode != 0, gate
