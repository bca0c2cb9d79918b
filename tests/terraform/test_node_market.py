"""The deadline policy, executed by nodes: the same table, one decision, and one restart, whoever is lost meanwhile."""

import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import sys
import time

import numpy as np
import pytest
from agent_node import AGENT, ME, RUN, STOPPABLE_JOB
from mock_aws import OVERRIDE, plan_workspace
from played_nodes import played_nodes
from stand_ins import PATIENCE_SECONDS, wait_until

from planner.plan.policy import DeadlinePolicy, parse_policy
from planner.spot.deadline.table import PolicyTable
from planner.spot.rates.process import AGE_EDGES_HOURS

HOUR = 3600
SPOT, FALLBACK = "scav-run-1", "scav-run-1-on-demand"
OTHER = ME | {"InstanceId": "i-other", "LaunchTime": "2025-01-01T00:00:09+00:00", "InstanceLifecycle": "spot"}


def policy(*, deadline=10.0, work=4.0, slack=1.0, running_slack=None, step=0.1, nodes=2):
    """`slack` hours are enough to wait for spot; `running_slack`, by default as many, for spot nodes that are there."""
    rows, running = (
        tuple((hours,) * 3 for _ in range(2 * len(AGE_EDGES_HOURS)))
        for hours in (slack, slack if running_slack is None else running_slack)
    )
    table = PolicyTable(
        step_hours=step,
        restart_hours=0.0,
        rollback_hours=0.0,
        margin_hours=0.0,
        spot_share=0.3,
        work_left_hours=(0.0, work / 2, work),
        slack_hours={"idle": rows, "spot": running, "on_demand": rows},
    )
    return DeadlinePolicy(
        job="run",
        run_id="run-1",
        deadline_hours=deadline,
        on_demand_count={"spot": 1, "on_demand": nodes},
        assumed_work_hours=work,
        table=table,
    )


@pytest.fixture(scope="module")
def agents_market():
    """The agent's own module; those beside it read the run's settings, of which it needs none here."""
    names = ("POLL_SECONDS", "RUN", "STATE", "TakenOver", "aws", "log", "nodes", "put", "stored")
    stubs = {"cloud": dict.fromkeys(names), "ending": {"ORDER_AHEAD": ""}}
    before = {name: sys.modules.get(name) for name in stubs}
    for name, values in stubs.items():
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__dict__.update(values)
    spec = importlib.util.spec_from_file_location("agent_market", AGENT / "market.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        for name, module_before in before.items():
            del sys.modules[name]
            if module_before is not None:
                sys.modules[name] = module_before
    return module


@pytest.fixture(scope="module")
def agents_table(agents_market):
    return agents_market.Table


def random_policy(generator):
    works = np.sort(generator.uniform(0, 30, 6)).round(3)
    rows = [[tuple(generator.uniform(0, 8, 6).round(2)) for _ in range(2 * len(AGE_EDGES_HOURS))] for _ in range(3)]
    table = PolicyTable(
        step_hours=0.3,
        restart_hours=0.2,
        rollback_hours=0.5,
        margin_hours=0.4,
        spot_share=0.3,
        work_left_hours=tuple(works.tolist()),
        slack_hours=dict(zip(("idle", "spot", "on_demand"), map(tuple, rows), strict=True)),
    )
    return policy().model_copy(update={"table": table, "deadline_hours": 40.0, "assumed_work_hours": 25.0})


def test_nodes_decide_as_the_planner_does(agents_table):
    """Of the states that the simulation knows: work, time, market, its age, and what runs."""
    generator = np.random.default_rng(0)
    answers = []
    for _ in range(20):
        ours = random_policy(generator)
        theirs = agents_table(json.loads(ours.model_dump_json()))
        for _ in range(100):
            done, passed, age = generator.uniform(0, 30), generator.uniform(0, 40), generator.exponential(3)
            up, mode = bool(generator.integers(2)), ("idle", "spot")[generator.integers(2)]
            expected = ours.decide(
                work_left_hours=ours.assumed_work_hours - done,
                time_left_hours=ours.deadline_hours - passed,
                spot_is_there=up,
                since_hours=age,
                running=mode,
            )
            found = theirs.says_on_demand(done, passed, up, age, mode)
            assert found == (expected == "on_demand")
            answers.append(found)
    assert 0.2 < np.mean(answers) < 0.8


def test_the_latest_moment_is_when_the_table_gives_spot_up(agents_table):
    table = agents_table(json.loads(policy(deadline=10.0, work=4.0, slack=1.0, step=0.5).model_dump_json()))
    assert table.latest(done=0.0, passed=0.0, age=0.0) == pytest.approx(
        5.5
    )  # 10 less 4 of work less 1: then 5.0 is enough
    assert table.latest(done=2.0, passed=0.0, age=0.0) == pytest.approx(7.5)
    assert table.latest(done=0.0, passed=9.0, age=0.0) == 0.0


@pytest.fixture
def node(world):
    def give(ours, **changes):
        text = ours.model_dump_json()
        digest = hashlib.sha256(text.encode()).hexdigest()
        (world.stored / "policy").mkdir(exist_ok=True)
        (world.stored / "policy" / f"{digest}.json").write_text(text)
        told = {"key": f"policy/{digest}.json", "sha256": digest}
        world.set_run(**{"node_count": 2, "max_wait_seconds": 60} | changes, fallback_group=FALLBACK, policy=told)
        set_groups(world, ME, OTHER)

    world.give = give
    return world


def set_groups(world, *spot, on_demand=()):
    world.set_groups({SPOT: list(spot), FALLBACK: list(on_demand), "scav-run-1-memory": []})


def mark(world, name, text=""):
    (world.stored / name).parent.mkdir(parents=True, exist_ok=True)
    (world.stored / name).write_text(text)


def capacities(world):
    calls = [call.split() for call in world.calls if call.startswith("autoscaling set-desired-capacity ")]
    return [(call[call.index("--auto-scaling-group-name") + 1], int(call[-1])) for call in calls]


def gone(node, agent):
    """With the machine, the job goes as well."""
    agent.kill()
    output = agent.communicate()[0]
    for pid in node.lines("pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    (node.root / "pid").unlink(missing_ok=True)
    return output


def test_with_time_left_the_job_runs_on_spot_and_the_latest_moment_is_ordered(node):
    node.give(policy(deadline=10.0, work=4.0, slack=1.0))
    node.set_job(STOPPABLE_JOB)
    with node.start("train") as agent:
        wait_until(lambda: any("put-scheduled-update-group-action" in call for call in node.calls))
        gone(node, agent)
    (order,) = [call.split() for call in node.calls if "put-scheduled" in call]
    assert order[order.index("--auto-scaling-group-name") + 1] == FALLBACK
    assert order[-2:] == ["--desired-capacity", "2"]
    at = time.mktime(time.strptime(order[order.index("--start-time") + 1], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert at - time.time() == pytest.approx(5.1 * HOUR, abs=0.2 * HOUR)
    assert not (node.stored / "_on_demand").exists()
    assert capacities(node) == []


@pytest.mark.parametrize(("ahead", "ordered"), [(-HOUR, 120), (30, 120), (HOUR, HOUR)])
def test_nothing_is_ordered_for_a_time_that_aws_refuses(agents_market, monkeypatch, ahead, ordered):
    orders = []
    monkeypatch.setattr(agents_market.cloud, "attempt", lambda *words: orders.append(words), raising=False)
    monkeypatch.setattr(agents_market, "RUN", {"fallback_group": FALLBACK})
    monkeypatch.setattr(agents_market.time, "time", lambda: 1.8e9)
    agents_market.order_ahead(2, 1.8e9 + ahead)
    assert time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1.8e9 + ordered)) in orders[0]


def test_spot_taken_away_near_the_deadline_is_one_decision_and_one_change(node):
    ours = policy(deadline=10.0, work=4.0, slack=5.99999)  # enough for less than a second more
    node.give(ours)
    set_groups(node, ME)  # the other node is gone
    with node.start("train") as agent:
        wait_until(lambda: (SPOT, 0) in capacities(node))
        wait_until(lambda: len(capacities(node)) >= 4)  # until AWS ends this node, it says so again
        output = gone(node, agent)
    assert set(capacities(node)) == {(FALLBACK, 2), (SPOT, 0)}
    assert node.containers == []
    assert output.count("on-demand nodes from now on") == 1
    state = json.loads((node.stored / "_on_demand").read_text())
    asked = parse_policy(ours.model_dump_json(), file="scav.policy.json").decide(
        work_left_hours=ours.assumed_work_hours - state["done"],
        time_left_hours=ours.deadline_hours - state["passed"],
        spot_is_there=state["up"],
        since_hours=state["age"],
        running="idle",
    )
    assert asked == "on_demand"


def test_a_running_job_saves_before_on_demand_nodes_take_over(node):
    node.give(policy(slack=20.0))
    node.set_job(STOPPABLE_JOB)
    mark(node, "_left/i-other")
    with node.start("train") as agent:
        wait_until(lambda: (SPOT, 0) in capacities(node))
        gone(node, agent)
    assert (node.stored / "checkpoints" / "last.pt").read_text() == "last\n"
    assert (node.stored / "_left" / "i-me").exists()
    assert len(node.containers) == 1


def test_a_node_that_is_lost_is_seen_while_the_job_still_waits_for_it(node):
    """torchrun may take half an hour to notice."""
    node.give(policy(slack=9.0, running_slack=0.0))
    node.set_job(STOPPABLE_JOB)
    with node.start("train") as agent:
        wait_until(lambda: node.containers and (node.stored / "_market.json").exists())
        assert not (node.stored / "_on_demand").exists()
        set_groups(node, ME)
        wait_until(lambda: (SPOT, 0) in capacities(node))
        gone(node, agent)
    assert not json.loads((node.stored / "_on_demand").read_text())["up"]
    assert len(node.containers) == 1


def test_nobody_is_sent_away_before_all_have_stopped(node):
    node.give(policy(slack=20.0))
    mark(node, "_on_demand", "{}")
    with node.start("train") as agent:
        wait_until((node.stored / "_left" / "i-me").exists)
        time.sleep(0.5)
        assert capacities(node) == []
        mark(node, "_left/i-other")
        wait_until(lambda: (SPOT, 0) in capacities(node))
        gone(node, agent)


@pytest.mark.parametrize("calls", range(4, 44, 4))
def test_the_first_node_is_killed_at_ten_moments_and_one_decision_is_in_force(node, calls):
    """After so many calls to AWS, from its start to the end of the change; the next first node does what is left."""
    node.give(policy(slack=20.0))
    node.set_job(STOPPABLE_JOB)
    mark(node, "_left/i-other")
    (node.root / "kill-after").write_text(str(calls))
    with node.start("train") as agent:
        agent.wait(PATIENCE_SECONDS)
        gone(node, agent)
    assert agent.returncode == -signal.SIGKILL
    decided = node.stored / "_on_demand"
    text = decided.read_text() if decided.exists() else None
    node.tell("instance-id", "i-other")
    set_groups(node, OTHER)
    with node.start("train") as agent:
        wait_until(lambda: (SPOT, 0) in capacities(node))
        gone(node, agent)
    assert set(capacities(node)) == {(FALLBACK, 2), (SPOT, 0)}
    assert text is None or decided.read_text() == text


def test_on_demand_nodes_train_and_empty_the_spot_group(node):
    node.give(policy(slack=20.0), node_count=1)
    set_groups(node, OTHER, on_demand=[ME])
    node.run("train")
    assert (node.stored / "_SUCCESS").exists()
    assert (node.stored / "_on_demand").exists()  # the group's own order had started this node
    assert len(node.containers) == 1
    assert capacities(node)[0] == (SPOT, 0)
    assert set(capacities(node)) == {(SPOT, 0), (FALLBACK, 0)}
    assert any("delete-scheduled-action" in call and FALLBACK in call for call in node.calls)


def test_a_run_that_fails_takes_its_order_back(node):
    node.give(policy(), node_count=1, max_failures=1)
    set_groups(node, ME)
    node.set_job("exit 1")
    node.run("train")
    assert any("delete-scheduled-action" in call for call in node.calls)
    assert set(capacities(node)) == {(SPOT, 0), (FALLBACK, 0)}


def test_another_policy_than_was_planned_is_not_obeyed(node):
    node.give(policy(), max_failures=1)
    (only,) = (node.stored / "policy").iterdir()
    only.write_text(policy(slack=20.0).model_dump_json())
    node.run_as_systemd_does("train")
    assert "the policy in S3 is not the one that was planned" in node.why_failed


def test_work_is_counted_from_checkpoints_across_losses(node):
    """What was done since the last one is lost; the next first node goes on from the note of the one before."""
    node.give(policy(deadline=10.0, work=4.0, slack=1.0, step=0.0001))
    mark(node, "_market.json", json.dumps({"done": 1.5, "up": True, "since": time.time() - HOUR}))
    node.set_job("trap 'exit 143' TERM; echo step 1; sleep 1; echo > one.pt; while :; do sleep 0.05; done")

    def noted():
        try:
            return json.loads((node.stored / "_market.json").read_text())
        except (OSError, ValueError):  # being written
            return {"done": 0}

    with node.start("train") as agent:
        wait_until(lambda: noted()["done"] > 1.5)
        gone(node, agent)
    assert noted()["done"] == pytest.approx(1.5 + 1 / HOUR, abs=20 / HOUR)
    assert RUN["policy"] is None


@pytest.mark.slow
def test_the_policy_is_lived_through_on_a_planned_workspace(attached_terraform, mock_aws, tmp_path):
    """Spot is taken away near the deadline: exactly one restart, on demand, and as the planner says for that state."""
    plan_workspace(tmp_path / "w", "digits-cnn", "--spot", "always", "--on-demand-fallback", "--nodes", "2")
    (tmp_path / "w" / "test_override.tf").write_text(OVERRIDE)
    ours = policy(deadline=1.0, work=0.1, slack=0.9, running_slack=0.0, step=0.001)
    (tmp_path / "w" / "scav.policy.json").write_text(ours.model_dump_json())

    def terraform(*words):
        result = attached_terraform.run(*words, "-no-color", "-input=false", cwd=tmp_path / "w")
        assert result.returncode == 0, result.stdout + result.stderr

    def keys():
        listed = mock_aws.client("s3").list_objects_v2(Bucket=bucket, Prefix="digits-cnn-1/")["Contents"]
        return {item["Key"].removeprefix("digits-cnn-1/") for item in listed}

    terraform("init")
    name = "scav-digits-cnn-1"
    job = """
        if [ -e "$SCAV_CHECKPOINT_DIR/half.pt" ]; then exit 0; fi
        trap 'exit 143' TERM; echo step 1; echo half > "$SCAV_CHECKPOINT_DIR/half.pt"; while :; do sleep 0.1; done
    """
    with played_nodes(mock_aws, root=tmp_path / "nodes", job=job) as nodes:
        terraform("apply", "-auto-approve")
        outputs = json.loads(attached_terraform.run("output", "-json", cwd=tmp_path / "w").stdout)
        bucket = outputs["checkpoint_bucket"]["value"]
        wait_until(lambda: {"checkpoints/half.pt", "_market.json"} <= keys())
        assert "_on_demand" not in keys()
        assert mock_aws.desired_capacity(f"{name}-on-demand") == 0
        with mock_aws.without_capacity():
            nodes.lose(nodes[1].instance_id)
            wait_until(lambda: "_on_demand" in keys())
        wait_until(lambda: {"_SUCCESS", "_FAILED"} & keys())
        assert "_SUCCESS" in keys()
        wait_until(lambda: mock_aws.desired_capacity(name) == mock_aws.desired_capacity(f"{name}-on-demand") == 0)
        gangs = [(node.group, len(node.containers)) for node in nodes if node.containers]
        assert gangs == [(name, 1), (name, 1), (f"{name}-on-demand", 1), (f"{name}-on-demand", 1)]
    state = json.loads(
        mock_aws.client("s3").get_object(Bucket=bucket, Key="digits-cnn-1/_on_demand")["Body"].read().decode()
    )
    assert not state["up"]
    for running, expected in (("idle", "on_demand"), ("spot", "spot")):
        answer = ours.decide(
            work_left_hours=ours.assumed_work_hours - state["done"],
            time_left_hours=ours.deadline_hours - state["passed"],
            spot_is_there=running == "spot",
            since_hours=state["age"],
            running=running,
        )
        assert answer == expected
