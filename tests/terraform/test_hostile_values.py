"""Hostile text in a job: refused in one clear line, or literal text to the end. Proven by executing what comes out."""

from __future__ import annotations

import copy
import json
import re
import unicodedata

import pytest
import yaml
from mocked_plan import SETTINGS, copy_module, mock_provider, plan_mocked, user_data
from namespace_node import BootedNode, require_namespaces
from stand_ins import World, wait_until
from test_planned_workspace import EXAMPLES, mocked_aws

HOSTILE = [
    '"; ${file("x")}',
    "%{ for x in [1] }x%{ endfor }",
    "$${x} %%{ if true } ${var.run_id} ${path.module} {{ scav_version }} {% raw %}",
    "`touch owned` $(touch owned) ; touch owned & | > owned",
    "line\nSCAV_RUN\ntouch owned\nSCAV_FILE\nSCAV_UNIT\n",
    "'\"\\ \\n \\\" '\\'' $'\\x41' !! ~ * ? [a-z] {a,b}",
    "--entrypoint=sh",
    "tab\tbell\a return\r\n delete\x7f escape\x1b[31m",
    "naïve 模型 🚂 \u202eright to left\u202c \u200b \u2028 \ufeff",
    "<script>&amp; </SCAV> \\u003c %s %d %n",
]
# Terraform normalises every string: the one change that text suffers, and none of ours.
DECOMPOSED = unicodedata.normalize("NFD", "naïve")
MEMBERS = {
    "ami": "ami-0123456789abcdef0",
    "image": "registry.example.com/train@sha256:" + "0123456789abcdef" * 4,
}
NETWORK = {"vpc": "vpc-0123456789abcdef0", "subnets": ["subnet-0000000000000000a"]}
HOSTILE_EMAIL = '"\';${file("x")}`id`$(id)%{if}@example.com'
# Where the job file takes text, and no hostile text has any business.
REFUSED = ["name", "network.vpc", "network.subnets.0", "run.id", "run.image", "run.ami", "run.checkpoint_bucket"]


def job(**run) -> dict:
    text = (EXAMPLES / "resnet50-imagenet" / "scav.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text) | {"network": copy.deepcopy(NETWORK), "run": MEMBERS | run}


def write_job(folder, values):
    folder.mkdir(exist_ok=True)
    (folder / "scav.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return folder


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(HOSTILE[0], id="interpolation"),
        pytest.param(HOSTILE[1], id="directive"),
        pytest.param(HOSTILE[3], id="shell"),
        pytest.param(HOSTILE[4], id="newlines"),
        pytest.param(HOSTILE[8], id="unicode"),
        pytest.param("a" * 10_240, id="ten-kilobytes"),
    ],
)
def test_a_name_that_is_no_name_is_refused_in_one_line(run_scav, tmp_path, key, value):
    values = job()
    place = values
    *folders, last = key.split(".")
    for folder in folders:
        place = place[folder]
    place[int(last) if last.isdigit() else last] = value
    result = run_scav("plan", write_job(tmp_path / "job", values), "--out", tmp_path / "workspace")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"Error: .*{re.escape(key)}: .*\n", result.stderr), result.stderr
    assert len(result.stderr) < 1000
    assert not (tmp_path / "workspace").exists()


def test_an_argument_of_ten_kilobytes_is_refused(run_scav, tmp_path):
    result = run_scav("plan", write_job(tmp_path / "job", job(command=["x" * 10_240])), "--out", tmp_path / "workspace")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "run.command.0: string should have at most 4096 characters" in result.stderr


@pytest.mark.slow
def test_hostile_text_reaches_the_container_as_it_was_written(run_scav, terraform, tmp_path):
    """From the job file through scav, Terraform, user data, bash and the agent to the container's argument list."""
    require_namespaces()
    workspace = tmp_path / "workspace"
    written = [word.replace("{x}", "{{x}}") for word in HOSTILE]  # else a placeholder that nobody knows
    folder = write_job(tmp_path / "job", job(command=[*written, DECOMPOSED], budget_emails=[HOSTILE_EMAIL]))
    planned = run_scav("plan", folder, "--out", workspace, "--nodes", "1")
    assert planned.exit_code == 0, planned.stderr
    (workspace / "x").write_text("what file() would have read", encoding="utf-8")
    terraform.init(workspace)
    values = json.loads((workspace / "terraform.tfvars.json").read_text(encoding="utf-8"))
    (plan,) = plan_mocked(terraform, workspace, {"plan": {}}, mock=mocked_aws(values)).values()

    (budget,) = (after for address, after in plan.items() if "aws_budgets_budget" in address)
    assert {tuple(part["subscriber_email_addresses"]) for part in budget["notification"]} == {(HOSTILE_EMAIL,)}

    (template,) = (after for address, after in plan.items() if "aws_launch_template" in address)
    me = {"InstanceId": "i-1", "PrivateIpAddress": "10.0.0.1", "LaunchTime": "2025-01-01T00:00:01+00:00"}
    (tmp_path / "node").mkdir()
    world = World(tmp_path / "node", me)
    world.set_groups({f"scav-{values['run_id']}": [me]})
    with BootedNode(world, user_data(template), me["PrivateIpAddress"]) as machine:
        machine.wait_until_started()
        wait_until(lambda: world.groups_scaled_to_zero)
        owned = machine.inside("find", "/etc/scav", "/opt/scav", "/var/lib/scav", "-name", "owned*")
        assert (owned.returncode, owned.stdout) == (0, "")
    (command,) = world.containers
    image = command.index(MEMBERS["image"])
    assert command[image - 2 : image] == ["--entrypoint", "torchrun"]
    arguments = [*HOSTILE, unicodedata.normalize("NFC", DECOMPOSED)]
    assert command[-len(arguments) :] == arguments
    assert all(word.startswith("--") for word in command[image + 1 : -len(arguments)])
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.slow
def test_terraform_refuses_what_scav_could_not_know(terraform, tmp_path):
    """Values that somebody wrote into terraform.tfvars.json or a *.auto.tfvars file by hand."""
    root = copy_module(tmp_path)
    terraform.init(root)
    texts = [name for name, value in SETTINGS.items() if isinstance(value, str)]
    lists = ["budget_emails", "subnet_ids", "instance_type_overrides"]
    more = ["checkpoint_bucket", "capacity_reservation_id", "interruption_topic_arn", "kms_key_arn"]
    hostile = HOSTILE[0]
    bad = dict.fromkeys([*texts, *more, "permissions_boundary_arn"], hostile) | {name: [hostile] for name in lists}
    bad |= {"tags": {"team": hostile}, "checkpoint_tier": {"instance_type": hostile, "node_count": 1}}
    bad |= {"container_command": ["nul\0"]}
    (root / "terraform.tfvars.json").write_text(json.dumps(SETTINGS | bad), encoding="utf-8")
    expected = ", ".join(f"var.{name}" for name in bad)
    test = f'{mock_provider()}\nrun "plan" {{\n  command = plan\n\n  expect_failures = [{expected}]\n}}\n'
    (root / "hostile.tftest.hcl").write_text(test, encoding="utf-8")
    result = terraform.run("test", "-no-color", "-filter=hostile.tftest.hcl", cwd=root)
    assert result.returncode == 0, result.stdout + result.stderr
