"""What Terraform plans when AWS is mocked: `terraform test` shows each run's plan, user data and all."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

MODULE = Path(__file__).resolve().parents[2] / "modules" / "gpu-cluster"

# Everything that the module wants to be told; a run says what it wants otherwise.
SETTINGS: dict[str, Any] = {
    "run_id": "run-1",
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_ids": ["subnet-0000000000000000a"],
    "ami_id": "ami-0123456789abcdef0",
    "container_image": "registry.example.com/team/train@sha256:" + "0123456789abcdef" * 4,
    "container_command": ["train.py", "--epochs", "90"],
    "availability_zone_id": "use1-az4",
    "instance_type": "g5.12xlarge",
    "node_count": 1,
    "gpus_per_node": 4,
    "on_demand_count": 1,
    "root_volume_gib": 200,
    "checkpoint_interval_seconds": 600,
    "global_batch": 1024,
    "gpu_batch": 64,
    "max_runtime_seconds": 36000,
}

Plans = dict[str, dict[str, dict[str, Any]]]


def mock_provider() -> str:
    """The provider that answers in the module's own tests."""
    source = (MODULE / "tests" / "cluster.tftest.hcl").read_text(encoding="utf-8")
    mock = re.search(r'^mock_provider "aws" \{\n.*?^\}\n', source, re.DOTALL | re.MULTILINE)
    assert mock is not None
    return mock[0]


def copy_module(folder: Path) -> Path:
    ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*", "tests", "__pycache__")
    return Path(shutil.copytree(MODULE, folder / MODULE.name, ignore=ignored))


def plan_mocked(terraform: Any, root: Path, runs: dict[str, dict[str, Any]], *, mock: str = "") -> Plans:
    """Run -> address -> planned values, for a root that is initialised; a run's values must be free of `${`."""
    blocks = "".join(
        f'\nrun "{name}" {{\n  command = plan\n\n  variables {{\n'
        + "".join(f"    {key} = {json.dumps(value)}\n" for key, value in values.items())
        + "  }\n}\n"
        for name, values in runs.items()
    )
    (root / "mocked.tftest.hcl").write_text((mock or mock_provider()) + blocks, encoding="utf-8")
    result = terraform.run("test", "-json", "-verbose", "-filter=mocked.tftest.hcl", cwd=root)
    assert result.returncode == 0, re.sub(r'.*"type":"test_plan".*\n', "", result.stdout) + result.stderr
    events = (json.loads(line) for line in result.stdout.splitlines() if '"test_plan"' in line)
    return {
        event["@testrun"]: {
            change["address"]: change["change"]["after"] for change in event["test_plan"]["resource_changes"]
        }
        for event in events
        if event["type"] == "test_plan"
    }


def user_data(launch_template: dict[str, Any]) -> str:
    """The script, as cloud-init finds it."""
    return gzip.decompress(base64.b64decode(launch_template["user_data"])).decode()
