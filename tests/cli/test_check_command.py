"""`scav check` as a pipeline meets it: exit codes, the table, JSON, stdin, and files that are something else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import __version__
from planner.cli import cli
from planner.outside import assets
from planner.outside.render import MODULE, WORKSPACE, render_code, render_policy
from planner.outside.store import load_plan

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "check"
TERRAFORM = json.loads((GOLDEN / "plan.json").read_text())
ADDRESSES = [
    item["address"]
    for item in TERRAFORM["configuration"]["root_module"]["module_calls"]["gpu_cluster"]["module"]["resources"]
]
VARIABLES = {name: text for name, text in assets.load_module(MODULE).items() if name.startswith("variables")}


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """The recorded workspace, written by this version of scav with the module of that day."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("scav.plan.json", "terraform.tfvars.json"):
        shutil.copy(GOLDEN / name, folder)
    plan = json.loads((folder / "scav.plan.json").read_text())
    (folder / "scav.plan.json").write_text(json.dumps(plan | {"scav_version": __version__}))
    monkeypatch.setattr(assets, "load_module", lambda _name: VARIABLES | {"main.tf": module_of(ADDRESSES)})
    plan = load_plan(folder)
    code = render_code(plan.scav_version, templates=assets.load_templates(WORKSPACE), module=assets.load_module(MODULE))
    for name, text in (code | render_policy(plan)).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def module_of(addresses: list[str]) -> str:
    blocks = [address.removeprefix("data.").split(".") for address in addresses]
    kinds = ["data" if address.startswith("data.") else "resource" for address in addresses]
    return "\n".join(f'{kind} "{block[0]}" "{block[1]}" {{}}' for kind, block in zip(kinds, blocks, strict=True))


def run(*arguments, stdin=None):
    return CliRunner().invoke(cli, ["check", *map(str, arguments)], input=stdin, catch_exceptions=False)


def edited(**changes) -> str:
    """The recorded Terraform plan with other variables."""
    variables = TERRAFORM["variables"] | {name: {"value": value} for name, value in changes.items()}
    return json.dumps(TERRAFORM | {"variables": variables})


def test_values_that_are_what_scav_planned(workspace):
    result = run(workspace)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "checked-1: terraform.tfvars.json is what scav planned (27 values compared)\n"


def test_code_that_scav_did_not_write_is_found(workspace):
    """A module without its stop plans the same values."""
    file = workspace / "modules" / "gpu-cluster" / "main.tf"
    file.write_text(file.read_text() + "# edited\n")
    (workspace / "modules" / "gpu-cluster" / "more.tf").write_text("")
    (workspace / "README.md").write_text("our own words\n")
    result = run(workspace)
    assert result.exit_code == 4
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("file ")] == [
        "modules/gpu-cluster/main.tf",
        "modules/gpu-cluster/more.tf",
    ]


def test_an_edited_value_is_shown_beside_the_planned_one(workspace):
    file = workspace / "terraform.tfvars.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"node_count": 8}))
    result = run(workspace)
    assert result.exit_code == 4
    assert result.stdout.splitlines() == [
        "                     planned by scav  in terraform.tfvars.json",
        "variable node_count  4                8",
    ]
    assert result.stderr == "Error: terraform.tfvars.json is not what scav planned: 1 difference\n"


def test_a_terraform_plan_from_a_file_and_from_stdin(workspace):
    for result in (run(workspace, GOLDEN / "plan.json"), run(workspace, "-", stdin=json.dumps(TERRAFORM))):
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("checked-1: the Terraform plan is what scav planned (")


def test_an_edited_terraform_plan(workspace):
    result = run(workspace, "-", stdin=edited(max_runtime_seconds=9, run_id="other"))
    assert result.exit_code == 4
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["variable", "max_runtime_seconds"],
        ["variable", "run_id"],
    ]
    assert result.stderr == "Error: the Terraform plan is not what scav planned: 2 differences\n"


def test_a_resource_that_scav_did_not_ask_for(workspace, monkeypatch):
    fewer = [address for address in ADDRESSES if address != "aws_security_group.nodes"]
    monkeypatch.setattr(assets, "load_module", lambda _name: VARIABLES | {"main.tf": module_of(fewer)})
    (workspace / "modules" / "gpu-cluster" / "main.tf").write_text(module_of(fewer))
    result = run(workspace, GOLDEN / "plan.json")
    assert result.exit_code == 4
    assert result.stdout == "Not asked for by scav\n  module.gpu_cluster.aws_security_group.nodes  (create)\n"
    assert result.stderr == "Error: the Terraform plan is not what scav planned: 1 not asked for\n"


def test_json(workspace):
    result = run(workspace, "-", "--json", stdin=edited(node_count=8))
    assert result.exit_code == 4
    found = json.loads(result.stdout)
    assert (found["equal"], found["run_id"], found["unasked"]) == (False, "checked-1", [])
    assert found["differences"] == [{"name": "variable node_count", "planned": "4", "found": "8"}]
    assert json.loads(run(workspace, "--json").stdout)["equal"] is True


def test_another_version_takes_the_workspaces_own_module_and_says_so(workspace):
    plan = json.loads((workspace / "scav.plan.json").read_text())
    (workspace / "scav.plan.json").write_text(json.dumps(plan | {"scav_version": "0.0.1"}))
    module = workspace / "modules" / "gpu-cluster"
    (module / "main.tf").write_text(module_of(ADDRESSES) + "# of another day\n")
    result = run(workspace, GOLDEN / "plan.json")
    assert result.exit_code == 0
    assert result.stderr == (
        f"Not checked: resources added to {module}: scav 0.0.1 wrote it and this is scav {__version__}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stdin: not JSON: "),
        ("[]", "stdin: not a JSON object"),
        ("{}", "not a Terraform plan as JSON; make it with `terraform show -json PLAN_FILE`"),
        ('{"format_version": "1.0", "values": {}}', "not a Terraform plan as JSON"),
        (json.dumps(TERRAFORM | {"errored": True}), "this Terraform plan failed, so there is nothing to compare"),
        ("[" * 100_000, "stdin: not JSON: "),
    ],
)
def test_what_is_no_terraform_plan_is_an_error_in_one_line(workspace, text, message):
    result = run(workspace, "-", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert len(result.stderr.splitlines()) == 1


def test_missing_files_are_an_error_in_one_line(workspace, tmp_path):
    for arguments, message in (
        ((tmp_path,), "no scav.plan.json here"),
        ((workspace, tmp_path / "absent.json"), "no such file"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert message in result.stderr
    (workspace / "terraform.tfvars.json").unlink()
    assert "terraform.tfvars.json: no such file" in run(workspace).stderr


def test_control_characters_in_a_plan_do_not_reach_the_terminal(workspace):
    result = run(workspace, "-", stdin=edited(run_id="\x1b[31m\nred"))
    assert result.exit_code == 4
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 2
