"""A home into which scav is installed as a provider, and Terraform that knows nothing but that home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.provider import installation

REPOSITORY = Path(__file__).resolve().parents[2]
# A narrow search, which takes milliseconds.
JOB = """\
name: small
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  target:
    epochs: 90
    reference_batch: 256
constraints:
  deadline: 24h
  budget: $400
  instance_types: ["g5.*"]
  nodes: 1..2
"""
ALONE = """\
terraform {
  required_providers {
    scav = { source = "terraform.local/scav/scav" }
  }
}

resource "scav_plan" "run" {
  job = file("scav.yaml")
}
"""


def write_alone(folder: Path, main: str = ALONE) -> Path:
    """A root with the plan alone, which takes a second, and no AWS."""
    folder.mkdir(exist_ok=True)
    (folder / "main.tf").write_text(main, encoding="utf-8")
    (folder / "scav.yaml").write_text(JOB, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def scav_home(tmp_path_factory, aws_versions) -> Path:
    """A home as `scav provider install` leaves it; Terraform finds the AWS provider in the same folder."""
    folder = tmp_path_factory.mktemp("home")
    plugins = folder / ".terraform.d/plugins"
    for found in aws_versions:
        offer(found, plugins / found.relative_to(found.parents[3]))
    install(tmp_path_factory.mktemp("code"), folder)
    return folder


def install(code: Path, home: Path) -> None:
    """Of a copy of scav, which nobody edits while the tests run."""
    shutil.copytree(REPOSITORY / "planner", code / "planner", ignore=shutil.ignore_patterns("__pycache__"))
    installed = scav("provider", "install", home=home, code=code)
    assert installed.returncode == 0, installed.stderr
    assert f'source = "{installation.SOURCE}"' in installed.stdout


def offer(found: Path, place: Path) -> None:
    """A packed version as a link; of an unpacked one each platform, since Terraform follows no link above that."""
    pairs = [(each, place / each.name) for each in found.iterdir()] if found.is_dir() else [(found, place)]
    for path, link in pairs:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def scav(*words: str, home: Path, code: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner", *words],
        cwd=code,
        env=os.environ
        | {
            "HOME": str(home),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def plain_terraform(terraform, scav_home) -> Any:
    return at_home(terraform, scav_home)


def at_home(terraform: Any, home: Path) -> Any:
    """Without a configuration: only the folders into which Terraform looks by itself."""
    empty = home / "empty.tfrc"
    empty.touch()
    return replace(terraform, environment=terraform.environment | {"HOME": str(home), "TF_CLI_CONFIG_FILE": str(empty)})
