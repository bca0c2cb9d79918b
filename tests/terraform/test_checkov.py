"""checkov on the modules' source and on a plan: nothing failed, and every skip has its reason beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from mock_aws import copy_workspace, plan_workspace
from mocked_plan import MODULE, copy_module

pytestmark = pytest.mark.slow

VERSION = "3.3.30"
# Of the checkpoint bucket: access logs, a copy in another region, notifications.
OF_THE_BUCKET = {"CKV_AWS_18", "CKV_AWS_144", "CKV2_AWS_62"}
OF_THE_SCHEDULE = "CKV_AWS_297"  # which stops a run: a key of one's own for the name of a group
OF_THE_ALARM = {"CKV_AWS_284", "CKV_AWS_285"}  # which stops it on silence: traces and logs of a single call
ALWAYS_SKIPPED = {*OF_THE_BUCKET, OF_THE_SCHEDULE, *OF_THE_ALARM}
OF_THE_SCRIPT = "CKV_AWS_186"  # where one travels with the plan: a key of its own, beside that of its bucket
# Logs under AWS's own key, which kms_key_arn changes; and a security group that a plan's JSON does not show attached.
SKIPPED_IN_A_PLAN = {"CKV_AWS_158", "CKV2_AWS_5"}
EVERYTHING = {
    "kms_key_arn": "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef",
    "interruption_topic_arn": "arn:aws:sns:us-east-1:123456789012:training",
    "checkpoint_tier": {"instance_type": "r6i.4xlarge", "node_count": 1},
}


@pytest.fixture(scope="session")
def checkov() -> Path:
    """A Python that has checkov: in an environment of its own, since it pins half of what scav uses otherwise.

    It is made once, inside the environment that runs the tests, and goes with it.
    """
    home = Path(sys.prefix) / f"checkov-{VERSION}"
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        venv.create(home, with_pip=True, clear=True, symlinks=True)
        command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", f"checkov=={VERSION}"]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode != 0:
            reason = f"checkov cannot be installed: {installed.stderr.strip()}"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
        ready.touch()
    return python


def scan(checkov: Path, *arguments: str, cwd: Path) -> dict[str, list[dict[str, str]]]:
    """Failed, passed and skipped checks, without asking the network."""
    command = [checkov, "-m", "checkov.main", "--skip-download", "--compact", "--output", "json", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=1800)
    assert result.stdout.strip(), result.stderr
    report = json.loads(result.stdout)
    assert report["results"]["parsing_errors"] == []
    return report["results"]


def names(checks: list[dict[str, str]]) -> set[str]:
    return {check["check_id"] for check in checks}


def test_source_passes(checkov, tmp_path):
    copy_module(tmp_path)
    found = scan(checkov, "--framework", "terraform", "--directory", ".", cwd=tmp_path / MODULE.name)
    assert names(found["failed_checks"]) == set()
    assert names(found["skipped_checks"]) == ALWAYS_SKIPPED | SKIPPED_IN_A_PLAN
    assert len(found["passed_checks"]) > 40


def test_every_skip_has_a_reason():
    text = "".join(path.read_text(encoding="utf-8") for path in MODULE.glob("*.tf"))
    reasons = dict(re.findall(r"checkov:skip=(\w+): ?(.*)", text))
    assert set(reasons) == ALWAYS_SKIPPED | SKIPPED_IN_A_PLAN | {OF_THE_SCRIPT}
    assert all(len(reason) > 30 for reason in reasons.values())


@pytest.fixture
def planned(attached_terraform, mock_aws, tmp_path):
    """Plans a workspace with these options, by the real provider; the plan's JSON is then beside it."""

    def plan(options):
        values = plan_workspace(tmp_path / "planned", "resnet50-imagenet")
        values |= mock_aws.answers(instance_type=values["instance_type"], zone_id=values["availability_zone_id"])
        workspace = tmp_path / "workspace"
        copy_workspace(tmp_path / "planned", workspace, values | options, override="")
        for words in (["init"], ["plan", "-out=plan.bin"]):
            done = attached_terraform.run(*words, "-input=false", "-no-color", cwd=workspace)
            assert done.returncode == 0, done.stdout + done.stderr
        shown = attached_terraform.run("show", "-json", "plan.bin", cwd=workspace)
        (tmp_path / "plan.json").write_text(shown.stdout, encoding="utf-8")
        return tmp_path

    return plan


PLAN = ("--framework", "terraform_plan", "--file", "plan.json")


def test_plan_passes(checkov, planned):
    """As the README of a pipeline would have it: the reasons for skips come from the source beside the plan."""
    found = scan(checkov, *PLAN, "--repo-root-for-plan-enrichment", "workspace", cwd=planned({}))
    assert names(found["failed_checks"]) == set()
    assert names(found["skipped_checks"]) == ALWAYS_SKIPPED | SKIPPED_IN_A_PLAN
    assert len(found["passed_checks"]) > 40


def test_plan_with_every_option_needs_only_the_skips_of_bucket_and_stops(checkov, planned):
    found = scan(checkov, *PLAN, cwd=planned(EVERYTHING))
    bucket = "module.gpu_cluster.aws_s3_bucket.checkpoints[0]"
    failed = {(check["check_id"], check["resource"]) for check in found["failed_checks"]}
    schedules = {f'module.gpu_cluster.aws_scheduler_schedule.stop["{group}"]' for group in ("gpu", "memory")}
    silence = "module.gpu_cluster.aws_sfn_state_machine.silent"
    assert failed == (
        {(check, bucket) for check in OF_THE_BUCKET}
        | {(OF_THE_SCHEDULE, each) for each in schedules}
        | {(check, silence) for check in OF_THE_ALARM}
    )
