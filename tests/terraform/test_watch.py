"""`scav watch`, `scav logs` and `scav stop` on the mock AWS: before a node is up, while it runs, after its end."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest
from test_played_nodes import make_group

SCAV = [sys.executable, "-c", "from planner.cli import main; main()"]
BUCKET, GROUP, LOGS = "results", "group", "/scav/small-1"


@pytest.fixture
def applied(workspace, terraform, mock_aws, monkeypatch):
    """The small plan, as if Terraform had applied it: its outputs, a bucket, a log group, and no group yet."""
    outputs = {
        "run_id": "small-1",
        "checkpoint_bucket": BUCKET,
        "checkpoint_uri": f"s3://{BUCKET}/small-1/checkpoints",
        "autoscaling_group_name": GROUP,
        "memory_autoscaling_group_name": None,
        "log_group_name": LOGS,
    }
    state = {
        "version": 4,
        "terraform_version": "1.5.7",
        "serial": 1,
        "lineage": "00000000-0000-0000-0000-000000000000",
        "outputs": {name: {"value": value, "type": "string"} for name, value in outputs.items() if value is not None},
        "resources": [],
    }
    (workspace / "terraform.tfstate").write_text(json.dumps(state))
    mock_aws.client("s3").create_bucket(Bucket=BUCKET)
    mock_aws.client("logs").create_log_group(logGroupName=LOGS)
    for name, value in (terraform.environment | mock_aws.environment).items():
        monkeypatch.setenv(name, value)
    return workspace


def put(aws, name, content=""):
    body = content if isinstance(content, str) else json.dumps(content)
    aws.client("s3").put_object(Bucket=BUCKET, Key=f"small-1/{name}", Body=body.encode())


def instances(aws):
    (group,) = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])[
        "AutoScalingGroups"
    ]
    return [instance["InstanceId"] for instance in group["Instances"]]


def play(aws):
    """What two nodes that train have written."""
    make_group(aws, "#!/bin/sh\n", count=2)
    put(aws, "_STARTED")
    for name in instances(aws):
        beat = {"instance_id": name, "phase": "running", "time": time.time(), "said": "step 80000: loss 0.5"}
        put(aws, f"heartbeats/{name}.json", beat)
        aws.client("logs").create_log_stream(logGroupName=LOGS, logStreamName=f"{name}/train")
        lines = [{"timestamp": int(time.time() * 1000), "message": f"step {step}: loss 0.5"} for step in (1, 2)]
        aws.client("logs").put_log_events(logGroupName=LOGS, logStreamName=f"{name}/train", logEvents=lines)
    put(aws, "checkpoints/step-1.pt")


def on_terminal(workspace, *words):
    """What a terminal of 80 columns is sent, and the exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        [*SCAV, *words], cwd=workspace.parent, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
    return sent.decode().replace("\r\n", "\n"), process.wait()


def test_what_was_not_applied_cannot_be_watched(workspace, terraform, mock_aws, monkeypatch, run_scav):
    for name, value in (terraform.environment | mock_aws.environment).items():
        monkeypatch.setenv(name, value)
    result = run_scav("watch", workspace, "--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("scav-plan: nothing is applied here: `terraform apply` first\n")


def test_before_any_node_is_up_it_says_why(applied, mock_aws, run_scav):
    with mock_aws.without_capacity():
        make_group(mock_aws, "#!/bin/sh\n", count=2)
        result = run_scav("watch", applied, "--once")
    assert result.exit_code == 0, result.stderr
    state = json.loads(result.stdout)
    assert (state["phase"], state["nodes"]["up"]) == ("waiting for nodes", 0)
    assert state["reason"].startswith("AWS says: We currently do not have sufficient g5.xlarge capacity")


def test_a_run_in_a_pipe_is_a_line_of_json(applied, mock_aws, run_scav):
    play(mock_aws)
    result = run_scav("watch", applied, "--once")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    state = json.loads(line)
    assert (state["phase"], state["nodes"]["doing"]) == ("running", {"running": 2})
    assert (state["training"]["step"], state["training"]["loss"]) == (80000, 0.5)
    assert state["checkpoint"]["newest"] == "step-1.pt"


def test_a_run_on_a_terminal_of_80_columns(applied, mock_aws):
    play(mock_aws)
    text, code = on_terminal(applied, "watch", str(applied), "--once")
    assert code == 0, text
    assert text.splitlines()[:3] == [
        "small-1     running; 2 of 2 nodes: 2 running",
        "Training    ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 34 % of the samples planned",
        "            step 80,000 of about 236,334, 41 M samples, loss 0.5",
    ]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_watching_ends_with_the_run_and_says_where_the_model_is(applied, mock_aws):
    play(mock_aws)
    put(mock_aws, "_SUCCESS")
    text, code = on_terminal(applied, "watch", str(applied))
    assert code == 0, text
    assert "small-1     succeeded" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert (
        plain.splitlines()[-1] == f"small-1 has succeeded. The trained model is in s3://{BUCKET}/small-1/checkpoints/"
    )


def test_a_run_that_failed_says_why(applied, mock_aws, run_scav):
    play(mock_aws)
    put(mock_aws, "_FAILED", {"run_id": "small-1", "reason": "the maximum runtime is used up"})
    result = run_scav("watch", applied)
    assert json.loads(result.stdout)["phase"] == "failed"
    assert (result.exit_code, result.stderr) == (1, "Error: small-1 failed: the maximum runtime is used up\n")


def test_logs_are_those_of_all_nodes(applied, mock_aws, run_scav):
    play(mock_aws)
    result = run_scav("logs", applied)
    assert result.exit_code == 0, result.stderr
    found = [line.split(" ", 1)[1] for line in result.stdout.splitlines()]
    assert sorted(found) == sorted(f"{name}  step {step}: loss 0.5" for name in instances(mock_aws) for step in (1, 2))
    node = instances(mock_aws)[0]
    of_one = run_scav("logs", applied, "--node", node, "--lines", "1", "--json")
    assert [json.loads(line)["text"] for line in of_one.stdout.splitlines()] == ["step 2: loss 0.5"]
    assert run_scav("logs", applied, "--agent").stderr == "Nothing was printed yet\n"


def test_followed_logs_end_with_the_run_and_come_once(applied, mock_aws, run_scav):
    play(mock_aws)
    put(mock_aws, "_SUCCESS")
    result = run_scav("logs", applied, "--follow", "--lines", "1")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_a_stopped_group_cannot_come_back(applied, mock_aws, run_scav):
    play(mock_aws)
    asked = run_scav("stop", applied)
    assert asked.exit_code == 1
    assert "Nobody is here to be asked" in asked.stderr
    assert mock_aws.desired_capacity(GROUP) == 2
    result = run_scav("stop", applied, "--yes")
    assert result.exit_code == 0, result.stderr
    assert "newest checkpoint: step-1.pt" in result.stderr
    assert f"s3://{BUCKET}/small-1/checkpoints/" in result.stdout
    client = mock_aws.client("autoscaling")
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"], group["Instances"]) == (0, 0, 0, [])
    assert json.loads(run_scav("watch", applied, "--once").stdout)["phase"] == "stopped"
