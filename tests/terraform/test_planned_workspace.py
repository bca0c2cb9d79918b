"""What `scav plan` writes, given to real Terraform: formatted, valid, every decision within the variables' rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
MODULE_TESTS = REPOSITORY / "modules" / "gpu-cluster" / "tests" / "cluster.tftest.hcl"
ANSWERS = {
    "ami_id": "ami-0123456789abcdef0",
    "container_image": "registry.example.com/train@sha256:" + "0123456789abcdef" * 4,
    "subnet_ids": ["subnet-0000000000000000a"],
    "vpc_id": "vpc-0123456789abcdef0",
}
PLANS = [
    pytest.param(
        "gpt2-openwebtext", ["--policy", "deepvm", "--hourly-budget", "3"], id="one-spot-node-and-a-memory-node"
    ),
    pytest.param(
        "resnet50-imagenet",
        [
            "--spot",
            "always",
            "--nodes",
            "2..16",
            "--instance-type",
            "g5.12xlarge",
            "--instance-type",
            "g5.24xlarge",
            "--budget",
            "$4000",
        ],
        id="mixed-with-stand-in",
    ),
    pytest.param(
        "gpt2-openwebtext",
        ["--spot", "never", "--nodes", "2..8", "--instance-type", "p5.48xlarge", "--budget", "$40000"],
        id="on-demand-with-efa",
    ),
]


@pytest.mark.parametrize(("example", "options"), PLANS)
def test_terraform_accepts_what_scav_plans(terraform, tmp_path, example, options):
    workspace = tmp_path / "workspace"
    result = CliRunner().invoke(cli, ["plan", str(EXAMPLES / example), "--out", str(workspace), *options])
    assert result.exit_code == 0, result.output

    formatted = terraform.run("fmt", "-check", "-recursive", cwd=workspace)
    assert (formatted.returncode, formatted.stdout) == (0, "")

    (workspace / "answers.auto.tfvars.json").write_text(json.dumps(ANSWERS))
    values = json.loads((workspace / "terraform.tfvars.json").read_text())
    (workspace / "planned.tftest.hcl").write_text(mocked_aws(values) + '\nrun "plan" {\n  command = plan\n}\n')
    terraform.init(workspace)
    valid = terraform.run("validate", "-no-color", cwd=workspace)
    assert valid.returncode == 0, valid.stdout + valid.stderr

    planned = terraform.run("test", "-no-color", cwd=workspace)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "Value for undeclared variable" not in planned.stdout


def mocked_aws(values: dict) -> str:
    """The module's own mocked provider, answering as AWS would for the planned machine and zone."""
    mock = re.search(r'^mock_provider "aws" \{\n.*?^\}\n', MODULE_TESTS.read_text(), re.DOTALL | re.MULTILINE)
    assert mock is not None
    answers = {
        '"us-east-1"': json.dumps(values["region"]),
        '"use1-az4"': json.dumps(values["availability_zone_id"]),
        "efa_maximum_interfaces  = 1": f"efa_maximum_interfaces  = {max(values['efa_interfaces'], 1)}",
        "maximum_network_cards   = 1": f"maximum_network_cards   = {values['network_cards']}",
        "count = 4": f"count = {values['gpus_per_node']}",
    }
    text = mock[0]
    for before, after in answers.items():
        assert before in text
        text = text.replace(before, after)
    return text
