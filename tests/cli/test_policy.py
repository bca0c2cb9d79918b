"""`scav policy`: what it takes for an answer, and a policy file that somebody else wrote."""

from __future__ import annotations

import json

import pytest

ASKED = {"--work-left": "5h", "--time-left": "24h", "--spot": "gone", "--since": "30min", "--running": "nothing"}


@pytest.fixture
def ask(run_scav, write_job):
    """`ask({"--since": "0min"})` of a plan with one on-demand node and spot nodes beside it."""
    write_job({"nodes: 1..2": "nodes: 3..4"})
    planned = run_scav("plan", "--spot", "always", "--on-demand-base", "1", "--confidence", "0.7", "--budget", "$4000")
    assert planned.exit_code == 0, planned.output

    def run(changes=None):
        asked = ASKED | (changes or {})
        return run_scav("policy", "scav-plan", *(word for pair in asked.items() for word in pair), "--json")

    return run


@pytest.mark.parametrize("nothing", ["0", "0h", "0min"])
def test_spot_may_be_gone_just_now(ask, nothing):
    assert json.loads(ask({"--since": nothing}).stdout)["run_on"] == "spot"


@pytest.mark.parametrize("nothing", ["0", "0h", "0min"])
def test_after_the_deadline_there_is_nothing_to_wait_for(ask, nothing):
    assert json.loads(ask({"--time-left": nothing}).stdout)["run_on"] == "on_demand"


def test_who_has_done_all_that_was_expected_has_a_step_left(ask):
    late, early = (ask({"--work-left": "0h", "--time-left": left}) for left in ("6min", "24h"))
    assert json.loads(late.stdout)["run_on"] == "on_demand"
    assert json.loads(early.stdout)["run_on"] == "spot"


@pytest.mark.parametrize("option", ["--work-left", "--time-left", "--since"])
@pytest.mark.parametrize("wrong", ["-1h", "5", "soon", "1e300h"])
def test_what_is_no_duration_is_refused_in_one_line(ask, option, wrong):
    result = ask({option: wrong})
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {option}: ")


def test_help_says_which_work_is_meant(run_scav):
    text = " ".join(run_scav("policy", "--help").stdout.split())
    assert "What may be left at most (p95), as hours of the whole cluster without losses" in text


def _without_a_mode(policy):
    del policy["table"]["slack_hours"]["spot"]


def _short_row(policy):
    policy["table"]["slack_hours"]["idle"][2].pop()


def _few_rows(policy):
    policy["table"]["slack_hours"]["on_demand"].pop()


def _unsorted(policy):
    policy["table"]["work_left_hours"].reverse()


def _without_a_count(policy):
    del policy["on_demand_count"]["on_demand"]


def _without_a_table(policy):
    del policy["table"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_a_mode, "table: not a policy that scav wrote: slack_hours.spot must be 12 rows of 25 numbers"),
        (_short_row, "table: not a policy that scav wrote: slack_hours.idle must be 12 rows of 25 numbers"),
        (_few_rows, "table: not a policy that scav wrote: slack_hours.on_demand must be 12 rows of 25 numbers"),
        (_unsorted, "table: not a policy that scav wrote: work_left_hours must be two numbers or more, each above"),
        (_without_a_count, "not a policy that scav wrote: on_demand_count must say it for spot and for on_demand"),
        (_without_a_table, "table: not a policy that scav wrote: this key is required"),
    ],
)
def test_a_policy_of_another_shape_is_refused_in_one_line(ask, tmp_path, spoil, message):
    policy_file = tmp_path / "scav-plan" / "scav.policy.json"
    policy = json.loads(policy_file.read_text())
    spoil(policy)
    policy_file.write_text(json.dumps(policy))
    result = ask()
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: scav-plan/scav.policy.json: {message}")
