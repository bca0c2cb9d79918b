"""Every way to leave GPUs running that docs/terraform.md lists: each row has its tests, which cause it.

Here are those of what stops a run without its nodes: what AWS keeps is read from a plan of the module and carried out
as AWS says that it does.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mocked_plan import SETTINGS, copy_module, plan_mocked

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "terraform.md"
HEADING = "## Every way to leave GPUs running, and what stops it\n"

ALARM = ("test_silence_of_nodes_in_service_is_an_alarm", "test_the_alarm_empties_the_groups_and_does_nothing_else")
SCHEDULE = ("test_scheduler_empties_each_group_when_all_time_is_used_up",)
OWN_SCHEDULE = ("test_a_group_empties_itself_without_any_role",)
BEFORE = ("test_modules.py::test_what_stops_a_run_exists_before_its_nodes",)
ROWS = {
    "nothing: the job ends": (
        "test_zero_questions.py::test_the_example_applies_as_it_is_and_trains_from_its_packed_script",
    ),
    "the job does not end": ("test_user_data.py::test_the_timer_ends_a_job_that_does_not_end",),
    "the job fails again and again, or the agent does": (
        "test_node_agent.py::test_a_job_that_keeps_failing_is_given_up",
        "test_node_faults.py::test_an_agent_that_fails_again_and_again_ends_the_run",
    ),
    "the job hangs": ("test_node_faults.py::test_a_job_that_stalls_is_started_again_and_then_given_up",),
    "not all nodes come": ("test_node_agent.py::test_nodes_that_wait_in_vain_for_the_others_end_the_run",),
    "a node has a broken GPU, no EFA, or cannot pull the image": (
        "test_node_faults.py::test_a_node_with_a_fatal_xid_is_replaced_before_it_starts",
        "test_node_faults.py::test_a_run_that_asks_for_efa_ends_where_no_node_has_it",
        "test_node_faults.py::test_one_node_that_cannot_pull_its_image_is_replaced_and_the_run_goes_on",
    ),
    "the machine image lacks a tool, or user data fails": (
        "test_user_data.py::test_an_image_without_a_tool_ends_the_run_instead_of_idling",
    ),
    "no route to AWS, or S3 refuses": (
        "test_node_faults.py::test_a_node_that_reaches_aws_postpones_its_shutdown_and_one_that_does_not_never_does",
        "test_node_faults.py::test_with_s3_denied_the_run_ends_without_leaving_its_reason_there",
        "test_zero_questions.py::test_a_plan_warns_of_subnets_without_a_way_to_aws",
        *ALARM,
    ),
    "agents are dead, or logs are refused": ALARM,
    "nodes may not scale the group": (
        "test_node_faults.py::test_after_success_a_node_that_may_not_scale_the_group_shuts_down",
        "test_node_agent.py::test_a_node_that_may_not_scale_the_group_ends_itself_at_the_deadline",
        *SCHEDULE,
    ),
    "alarm and nodes fail both": SCHEDULE,
    "the role of Scheduler and alarm was taken away": OWN_SCHEDULE,
    "the apply is killed after the group was made": BEFORE,
    "the destroy is killed, or fails": BEFORE,
    "somebody sets the capacity back": (
        "test_node_agent.py::test_a_finished_run_stays_finished",
        "test_node_faults.py::test_a_failed_run_says_why_and_stays_failed",
        *SCHEDULE,
    ),
    "the plan is applied again": ("test_finished_run.py::test_finished_run_stays_finished_until_a_new_run_id",),
    "on-demand nodes take over and spot nodes stay": (
        "test_node_market.py::test_on_demand_nodes_train_and_empty_the_spot_group",
    ),
    "the order for on-demand nodes outlives the run": (
        "test_node_market.py::test_a_run_that_fails_takes_its_order_back",
    ),
    "memory nodes outlive the GPU nodes": ("test_scheduler_empties_each_group_when_all_time_is_used_up",),
    "`scav probe` or `scav tune` is killed": (
        "test_probe_on_aws.py::test_killed_together_with_its_terraform_everything_is_found_again",
    ),
}


def test_every_row_of_the_page_has_its_tests():
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == list(ROWS)
    for name in {name for names in ROWS.values() for name in names}:
        file, _, test = name.rpartition("::")
        assert f"def {test}(" in (HERE / (file or Path(__file__).name)).read_text(encoding="utf-8"), name


@pytest.fixture(scope="module")
def planned(terraform, tmp_path_factory) -> dict[str, Any]:
    """With groups of every kind."""
    root = copy_module(tmp_path_factory.mktemp("runaway"))
    (root / "scav.policy.json").write_text("{}")
    terraform.init(root)
    every = {"policy_file": "scav.policy.json", "checkpoint_tier": {"instance_type": "r6i.4xlarge", "node_count": 1}}
    return plan_mocked(terraform, root, {"every_group": SETTINGS | every})["every_group"]


GROUPS = {"gpu": "scav-run-1", "fallback": "scav-run-1-on-demand", "memory": "scav-run-1-memory"}
# Waiting for capacity, starting, waiting for the others, running, and a quarter of an hour.
LONGEST = 14400 + 1800 + 3600 + 36000 + 900


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "gpu", "fallback", "alarm"),
    [
        (None, 2.0, None, True),
        (0.0, None, 1.0, True),
        (7.0, 2.0, None, False),
        (None, None, None, False),
        (None, 0, 0, False),
    ],
    ids=["silent", "silent-on-demand", "alive", "not-started", "empty"],
)
def test_silence_of_nodes_in_service_is_an_alarm(planned, lines, gpu, fallback, alarm):
    """None is a metric without a datapoint."""
    settings = planned["aws_cloudwatch_metric_alarm.silent"]
    expression = next(query["expression"] for query in settings["metric_query"] if query["id"] == "silent_nodes")
    functions = {
        "IF": lambda so, then, other: then if so else other,
        "FILL": lambda value, it: it if value is None else value,
    }
    metrics = {"lines": lines, "nodes_gpu": gpu, "nodes_fallback": fallback}
    value = eval(expression, {"__builtins__": {}}, functions | metrics)  # noqa: S307 - the module's own text
    assert settings["comparison_operator"] == "GreaterThanThreshold"
    assert (value > settings["threshold"]) is alarm
    periods = {query["metric"][0]["period"] for query in settings["metric_query"] if query["metric"]}
    assert periods == {300}
    assert settings["evaluation_periods"] == settings["datapoints_to_alarm"] == 6


@pytest.mark.slow
def test_the_alarm_empties_the_groups_and_does_nothing_else(planned):
    """The state machine, carried out; refused for an hour and a half at first, as AWS is when it is unwell."""
    machine = json.loads(planned["aws_sfn_state_machine.silent"]["definition"])
    asked, refusals = [], 90

    def run(machine: dict[str, Any]) -> None:
        state = machine["States"][machine["StartAt"]]
        assert state["End"]
        for branch in state.get("Branches", ()):
            run(branch)
        if state["Type"] == "Task":
            (again,) = state["Retry"]
            assert refusals <= again["MaxAttempts"]
            assert (again["ErrorEquals"], again["BackoffRate"]) == (["States.ALL"], 1)
            asked.append((state["Resource"].rpartition(":")[2], *state["Parameters"].values()))

    run(machine)
    assert sorted(asked) == [("setDesiredCapacity", GROUPS[kind], 0) for kind in ("gpu", "fallback")]


@pytest.mark.slow
def test_scheduler_empties_each_group_when_all_time_is_used_up(planned):
    now = datetime.now(UTC)
    for kind, group in GROUPS.items():
        schedule = planned[f'aws_scheduler_schedule.stop["{kind}"]']
        assert schedule["schedule_expression"] == "rate(15 minutes)"
        (target,) = schedule["target"]
        assert target["arn"].endswith(":aws-sdk:autoscaling:setDesiredCapacity")
        assert json.loads(target["input"]) == {"AutoScalingGroupName": group, "DesiredCapacity": 0}
        assert schedule["name"] == f"{group}-{LONGEST}s"
        if start := schedule.get("start_date"):  # known when it is applied
            assert abs((datetime.fromisoformat(start) - now).total_seconds() - LONGEST) < 3600
    # What carries it out may do that, to these groups, and nothing else; the other statement is the alarm's.
    statements = json.loads(planned["aws_iam_role_policy.stop"]["policy"])["Statement"]
    assert [statement["Action"] for statement in statements] == [
        ["autoscaling:SetDesiredCapacity"],
        ["states:StartExecution"],
    ]
    assert sorted(arn.rpartition("/")[2] for arn in statements[0]["Resource"]) == sorted(GROUPS.values())


@pytest.mark.slow
def test_a_group_empties_itself_without_any_role(planned):
    for kind, group in GROUPS.items():
        action = planned[f'aws_autoscaling_schedule.stop["{kind}"]']
        assert (action["autoscaling_group_name"], action["recurrence"]) == (group, "*/15 * * * *")
        assert (action["min_size"], action["max_size"], action["desired_capacity"]) == (0, -1, 0)
        assert re.fullmatch(rf"{group}-stop-after-{LONGEST}s", action["scheduled_action_name"])
