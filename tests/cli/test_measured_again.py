"""After an edit a job is measured again, and what was measured before is kept but not used."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from planner.inputs.measurements import Measurement
from planner.outside.what_ran import ran_here, ran_in_image

PROGRAM = """\
#!/usr/bin/env python3
import json, os
from seconds import SECONDS

step = {"step_seconds": SECONDS, "samples": int(os.environ["SCAV_GLOBAL_BATCH"])}
with open(os.environ["SCAV_PROBE_STEPS"], "a") as steps:
    steps.write((json.dumps(step) + "\\n") * 200)
"""
ONE_BATCH = {"global_batch: 256..1024": "global_batch: 256"}


@pytest.fixture
def job(write_job: Callable[..., Path], tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    write_job(ONE_BATCH, folder=folder)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "train.py").chmod(0o755)
    (folder / "seconds.py").write_text("SECONDS = 0.1\n")  # edits have other lengths: Python's cache has whole seconds
    return folder


@pytest.fixture
def probe(run_scav: Callable[..., Result], job: Path) -> Callable[..., Result]:
    def run(*options: str, arguments: tuple[str, ...] = (), workers: tuple[str, ...] = ("--workers", "1")) -> Result:
        command = (*workers, "--writes-steps", "--", "./train.py", *arguments)
        result = run_scav("probe", job, *options, *command)
        assert result.exit_code == 0, result.stderr
        return result

    return run


def rows(job: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (job / "measurements.jsonl").read_text().splitlines()]


def test_an_edit_is_measured_again_and_taking_it_back_is_not(probe: Callable[..., Result], job: Path) -> None:
    assert "1 probe on local, 0 measured before" in probe().stderr
    assert "1 probe on local, 1 measured before" in probe().stderr
    assert len(rows(job)) == 1

    (job / "seconds.py").write_text("SECONDS = 0.20\n")  # which the script imports
    again = probe()
    assert "1 probe on local, 0 measured before" in again.stderr
    assert [row["step_seconds"] for row in rows(job)] == [0.1, 0.2]
    assert "200.0" in again.stdout
    assert "100.0" not in again.stdout
    assert "has 2 measurements" in again.stdout

    (job / "seconds.py").write_text("SECONDS = 0.1\n")
    assert "1 measured before" in probe("--dry-run").stderr
    assert [row["step_seconds"] for row in rows(job)] == [0.1, 0.2]
    assert "1 measured before" in probe().stderr
    assert [row["step_seconds"] for row in rows(job)] == [0.2, 0.1]  # the last counts


def test_other_arguments_are_another_run_and_force_measures_whatever_is_known(
    probe: Callable[..., Result], job: Path
) -> None:
    probe()
    assert "0 measured before" in probe(arguments=("--fast",)).stderr
    assert "0 measured before" in probe("--force", arguments=("--fast",)).stderr
    found = rows(job)
    assert [row["run_command"] for row in found] == ["train.py", "train.py --fast", "train.py --fast"]
    assert found[0]["run_key"] != found[1]["run_key"] == found[2]["run_key"]


def test_plans_leave_older_runs_out_and_say_so(
    probe: Callable[..., Result], run_scav: Callable[..., Result], job: Path
) -> None:
    probe()
    (job / "seconds.py").write_text("SECONDS = 0.20\n")
    probe()
    command = (job / "scav.yaml").read_text() + "run:\n  command: [./train.py]\n"
    (job / "scav.yaml").write_text(command)
    warnings = run_scav("fit", job).stderr
    assert "used without 1 of 2 measurements: something else was run since; scav measurements list" in warnings
    assert "was changed since" not in warnings
    (job / "seconds.py").write_text("SECONDS = 0.3\n")
    assert "run.command was changed since it was measured: scav probe measures it again" in run_scav("fit", job).stderr


def rented(run_key: str | None, step_seconds: float, digest: str) -> str:
    row = Measurement(
        instance_type="g5.xlarge",
        nodes=1,
        gpus_per_node=1,
        gpu_batch=256,
        precision="bf16",
        step_seconds=step_seconds,
        run_key=run_key,
        run_command="train.py",
        image_digest=f"sha256:{digest * 64}",
    )
    return row.model_dump_json(exclude_defaults=True) + "\n"


def test_rented_clusters_are_measured_again_with_another_image(
    run_scav: Callable[..., Result], write_job: Callable[..., Path], tmp_path: Path
) -> None:
    write_job({**ONE_BATCH, '"g5.*"': "g5.xlarge"})
    images = {digest: f"registry.example.com/train@sha256:{digest * 64}" for digest in "12"}
    keys = {digest: ran_in_image(["train.py"], image).key for digest, image in images.items()}
    described = (tmp_path / "scav.yaml").read_text()

    def dry_run(digest: str, *options: str) -> str:
        run = f"run:\n  command: [train.py]\n  image: {images[digest]}\n"
        (tmp_path / "scav.yaml").write_text(described + run)
        result = run_scav("probe", "--on", "aws", "--nodes", "1", *options, "--dry-run")
        assert result.exit_code == 0, result.stderr
        return result.stderr

    (tmp_path / "measurements.jsonl").write_text(rented(keys["1"], 0.1, "1"))
    assert "1 cluster on aws, 1 measured before" in dry_run("1")
    assert "0 measured before" in dry_run("1", "--force")
    changed = dry_run("2")
    assert "0 measured before" in changed
    assert "run.image was changed since it was measured" in changed

    (tmp_path / "measurements.jsonl").write_text(rented(keys["1"], 0.1, "1") + rented(keys["2"], 0.2, "2"))
    assert "1 measured before" in dry_run("2")
    back = run_scav("probe", "--on", "aws", "--nodes", "1", "--yes")  # everything is known: nothing is rented
    assert (back.exit_code, rows(tmp_path)[-1]["step_seconds"]) == (0, 0.2)
    assert "1 measured before" in dry_run("1")
    run_scav("probe", "--on", "aws", "--nodes", "1", "--yes")
    assert rows(tmp_path)[-1]["step_seconds"] == 0.1
    (tmp_path / "measurements.jsonl").write_text(rented(None, 0.1, "1"))
    assert "1 measured before" in dry_run("2")


@pytest.mark.slow
def test_an_edited_training_script_is_measured_again(run_scav: Callable[..., Result], job: Path) -> None:
    """With torchrun and PyTorch, as users have it."""
    pytest.importorskip("torch")
    shutil.rmtree(job / "__pycache__", ignore_errors=True)
    script = textwrap.dedent("""\
        import os
        import torch

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.ones(int(os.environ["SCAV_GPU_BATCH"]), 4)
        while True:
            optimizer.zero_grad()
            model(data).mean().backward()
            optimizer.step()
    """)
    (job / "train.py").write_text(script)
    for edit, expected in (("", 0), ("", 1), ("# edited\n", 0)):
        (job / "train.py").write_text(script + edit)
        result = run_scav("probe", job, "--workers", "1", "--", "train.py")
        assert result.exit_code == 0, result.stderr
        assert f"1 probe on local, {expected} measured before" in result.stderr
    first, second = rows(job)
    assert first["script_sha256"] != second["script_sha256"]
    assert first["run_key"] != second["run_key"]


def test_a_script_that_lies_elsewhere_is_hashed_with_what_it_imports(job: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(job, tmp_path / "elsewhere"))

    def keys() -> set[str | None]:
        named = (elsewhere / "train.py", "../elsewhere/train.py")
        return {ran_here(job, (str(name),), in_python=False).script_sha256 for name in named}

    before = keys()
    assert len(before) == 1
    assert None not in before
    (elsewhere / "seconds.py").write_text("SECONDS = 0.20\n")
    assert not keys() & before
    inside = {ran_here(job, (name,), in_python=False).script_sha256 for name in ("train.py", str(job / "train.py"))}
    assert len(inside) == 1


def test_what_is_not_in_a_container_yet_is_not_known_by_rows_of_this_machine(probe: Callable[..., Result]) -> None:
    probe()
    found = probe("--on", "container", "--nodes", "1", "--dry-run", workers=())
    assert "0 measured before" in found.stderr


@pytest.mark.slow
def test_a_command_with_placeholders_is_remembered_for_plans(job: Path, probe: Callable[..., Result]) -> None:
    before = (job / "scav.yaml").read_text()
    probe("--dry-run", arguments=("{global_batch}",))
    probe()  # without a placeholder there is nothing to remember
    assert (job / "scav.yaml").read_text() == before
    said = probe(arguments=("--batch", "{global_batch}")).stderr
    assert f"Wrote the command to {job / 'scav.yaml'} (run.command)" in said
    assert (job / "scav.yaml").read_text() == (
        f'{before.rstrip()}\n\nrun:\n  command: ["./train.py", "--batch", "{{global_batch}}"]\n'
    )
    remembered = (job / "scav.yaml").read_text()
    assert "run.command" not in probe(arguments=("--batch", "{global_batch}")).stderr
    said = probe(arguments=("--size", "{global_batch}")).stderr
    assert (
        'run.command is another; for plans to use the line that was measured, write command: ["./train.py", "-' in said
    )
    assert (job / "scav.yaml").read_text() == remembered
