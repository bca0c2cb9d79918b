"""`scav probe --on aws` before anything is rented: what it shows, and what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn"
ANSWERS = f"""\
network:
  vpc: vpc-0123456789abcdef0
  subnets: [subnet-0123456789abcdef0]

run:
  ami: ami-0123456789abcdef0
  image: registry.example.com/train@sha256:{"0" * 64}"""


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """With everything that a cluster needs to know."""
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "digits"))
    file = folder / "scav.yaml"
    file.write_text(file.read_text().replace("run:", ANSWERS))
    return folder


def refused(result: Result, folder: Path, words: str) -> None:
    assert result.exit_code == 1
    assert words in result.stderr.splitlines()[-1]
    assert not (folder / "scav-probes").exists()


def test_a_cap_below_the_cheapest_probe_is_refused(run_scav: Callable[..., Result], digits: Path) -> None:
    result = run_scav("probe", digits, "--on", "aws", "--yes", "--max-cost", "$0.10")
    refused(result, digits, "--max-cost: $0.10 is below what the cheapest probe (1 x g4dn.xlarge) can cost at most")


def test_without_credentials_it_says_how_to_get_some(
    run_scav: Callable[..., Result], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(digits / "none"))
    refused(run_scav("probe", digits, "--on", "aws", "--yes"), digits, "no AWS credentials: run `aws configure`")


def test_a_leftover_of_a_running_scav_is_not_touched(run_scav: Callable[..., Result], digits: Path) -> None:
    import fcntl

    workspace = digits / "scav-probes" / "digits-cnn-123456"
    workspace.mkdir(parents=True)
    with (workspace.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run_scav("probe", digits, "--cleanup")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: another scav is probing in")
    assert workspace.is_dir()


class TestDryRun:
    def test_shows_probes_price_and_time_and_rents_nothing(self, run_scav: Callable[..., Result]) -> None:
        result = run_scav("probe", EXAMPLE, "--on", "aws", "--dry-run")
        assert result.exit_code == 0, result.stderr
        lines = result.stdout.splitlines()
        assert lines[0].split() == ["cluster", "region", "local", "batches", "minutes", "about", "at", "most"]
        assert len(lines) == 1 + 6 + 1 + 1
        assert all(len(line) <= 80 for line in lines)
        assert not (EXAMPLE / "scav-probes").exists()

    def test_says_when_the_cap_allows_nothing(self, run_scav: Callable[..., Result]) -> None:
        result = run_scav("probe", EXAMPLE, "--on", "aws", "--dry-run", "--max-cost", "$0.05")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[-1].startswith("Within --max-cost $0.05: 0 of 6")


def test_a_job_without_answers_is_told_which(run_scav: Callable[..., Result]) -> None:
    result = run_scav("probe", EXAMPLE, "--on", "aws", "--yes")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith(
        "set network.vpc, network.subnets, run.ami, run.image to probe on AWS"
    )


def test_options_of_other_places_are_refused(run_scav: Callable[..., Result]) -> None:
    result = run_scav("probe", EXAMPLE, "--instance-type", "g5.*")
    assert result.stderr == "Error: --instance-type: has no meaning with --on local, only with --on aws\n"


def test_a_terminal_that_was_closed_does_not_keep_a_cluster_from_going(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.cli import probe_aws

    def closed(*_arguments: object, **_options: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(probe_aws.click, "echo", closed)
    probe_aws.say("Destroying")
