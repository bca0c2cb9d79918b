"""`scav probe --on container` where nothing is run: what would be, and one line where it cannot be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "digits"))


def test_a_dry_run_needs_no_engine(
    run_scav: Callable[..., Result], digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    result = run_scav("probe", digits, "--on", "container", "--dry-run")
    assert result.exit_code == 0
    assert "2 x 1 workers, local batch 64" in result.stdout.splitlines()
    assert "4 probes on container, 0 measured before" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "container"], "no container engine: install Docker or Podman, or probe with --on local"),
        (
            ["--on", "container", "--workers", "2"],
            "--workers: has no meaning with --on container, only with --on local",
        ),
        (["--image", "mine"], "--image: has no meaning with --on local, only with --on container"),
        (["--nodes", "2"], "--nodes: has no meaning with --on local"),
        (["--on", "container", "--image", "a", "--base", "b"], "--base: is what an image is built on"),
        (["--on", "container", "--writes-steps"], "--writes-steps: measures a program on one node"),
        (["--on", "container", "--", "nowhere.py"], "nowhere.py: no such script"),
    ],
)
def test_bad_input_is_one_line(
    run_scav: Callable[..., Result],
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.setenv("PATH", "")
    result = run_scav("probe", digits, *arguments)
    assert result.exit_code == 1
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert words in error
    assert not (digits / "measurements.jsonl").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="other users' containers run as themselves")
def test_a_folder_that_the_container_cannot_read_is_named(
    run_scav: Callable[..., Result], digits: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = tmp_path / "podman"
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    digits.chmod(0o700)
    result = run_scav("probe", digits, "--on", "container")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith("the container's user is another: chmod o+rx it")
