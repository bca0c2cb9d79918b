"""`scav plan --policy deepvm`: its options, and the workspace with memory nodes that it writes."""

from __future__ import annotations

import json

import pytest

DEEPVM = ("--policy", "deepvm", "--hourly-budget")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "deepvm"], "--policy deepvm spends an hourly budget; add for example --hourly-budget 3"),
        (
            ["--hourly-budget", "3"],
            "--hourly-budget is for --policy deepvm; add that, or limit the whole run with --budget",
        ),
        ([*DEEPVM, "cheap"], "--hourly-budget: 'cheap' is not an amount of dollars; write $400"),
        ([*DEEPVM, "0"], "--hourly-budget: '0' must be above zero"),
        (
            [*DEEPVM, "3", "--spot", "never"],
            "DeepVM rents spot nodes and the job's spot policy is never; use --spot auto or --policy scav",
        ),
    ],
)
def test_options_that_cannot_be_are_one_line(run_scav, write_job, tmp_path, options, message):
    write_job()
    result = run_scav("plan", *options)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {message}\n")
    assert not (tmp_path / "scav-plan").exists()


def test_too_little_money_is_no_feasible_plan(run_scav, write_job):
    write_job()
    result = run_scav("plan", *DEEPVM, "0.1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("Error: no cluster for $0.1 an hour: the cheapest is 1 spot g5.xlarge + 1 ")


def test_the_workspace_has_the_memory_nodes(run_scav, write_job, tmp_path):
    write_job()
    result = run_scav("plan", *DEEPVM, "$3")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    workspace = tmp_path / "scav-plan"
    plan = json.loads((workspace / "scav.plan.json").read_text())
    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    tier = plan["choice"]["checkpoint_tier"]
    assert tier["hourly_usd"] > 0
    assert values["checkpoint_tier"] == {"instance_type": tier["instance_type"], "node_count": tier["node_count"]}
    assert values["on_demand_count"] == 0
    assert "checkpoint_tier             = var.checkpoint_tier\n" in (workspace / "main.tf").read_text()

    assert run_scav("plan", *DEEPVM, "$3", "--check").exit_code == 0
    assert run_scav("plan", "--check").exit_code == 5
    assert run_scav("check", workspace).exit_code == 0
    (workspace / "terraform.tfvars.json").write_text(json.dumps(values | {"checkpoint_tier": None}))
    assert run_scav("check", workspace).exit_code == 4


def test_scav_s_own_plan_has_none(run_scav, write_job, tmp_path):
    write_job()
    assert run_scav("plan").exit_code == 0
    assert json.loads((tmp_path / "scav-plan" / "terraform.tfvars.json").read_text())["checkpoint_tier"] is None
