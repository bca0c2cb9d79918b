"""Logs that the real libraries wrote become measurements, and `scav fit` uses them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

for library in ("torch", "transformers", "lightning", "tensorboard", "mlflow", "wandb"):
    pytest.importorskip(library)

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "logging_scripts"
BATCHES = {2: 1, 4: 2, 8: 1}  # as the scripts train: samples per GPU and micro-step, and micro-steps
Import = Callable[..., Result]


def run_script(name: str, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, SCRIPTS / name, folder],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_script("trainer.py", tmp_path_factory.mktemp("trainer"))


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_script("lightning_csv.py", tmp_path_factory.mktemp("lightning"))


@pytest.fixture
def import_log(run_scav: Callable[..., Result], write_job: Callable[..., Path]) -> Import:
    write_job()
    where = ("--instance-type", "g5.xlarge", "--nodes", "1")
    return lambda log, *options: run_scav("measurements", "import", log, ".", *where, *options)


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "measurements.jsonl").read_text().splitlines()]


def is_used_by_fit(run_scav: Callable[..., Result], folder: Path, kind: str) -> None:
    """Three rows of the trained batches, which `fit` takes for three probes."""
    rows = rows_of(folder)
    assert {row["gpu_batch"]: row.get("accumulation_steps", 1) for row in rows} == BATCHES
    assert {row["imported_from"]["format"] for row in rows} == {kind}
    assert {row["batch_source"] for row in rows} == {"imported"}
    assert all(0 < row["step_seconds"] < 10 for row in rows)
    fitted = run_scav("fit", ".", "--json")
    assert fitted.exit_code == 0, fitted.stderr
    assert "3 probes (3 of g5.xlarge)" in run_scav("fit", ".").stdout


def test_trainer_state(trained: Path, import_log: Import, run_scav: Callable[..., Result], tmp_path: Path) -> None:
    for batch in BATCHES:
        result = import_log(trained / f"state-{batch}")
        assert result.exit_code == 0, result.stderr
    is_used_by_fit(run_scav, tmp_path, "Hugging Face trainer_state")
    state = json.loads((trained / "state-4" / "trainer_state.json").read_text())
    summary = state["log_history"][-1]
    evaluated = sum(entry.get("eval_runtime", 0.0) for entry in state["log_history"])
    (row,) = [row for row in rows_of(tmp_path) if row["gpu_batch"] == 4]
    assert row["step_seconds"] == pytest.approx((summary["train_runtime"] - evaluated) / 200)


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [("events-*", "TensorBoard"), ("wandb/offline-run-*", "W&B"), ("mlruns/0/*/metrics/..", "MLflow")],
)
def test_what_the_trainer_logged_elsewhere(
    trained: Path, import_log: Import, run_scav: Callable[..., Result], tmp_path: Path, pattern: str, kind: str
) -> None:
    found = sorted(path.resolve() for path in trained.glob(pattern))
    assert len(found) == 3
    for log in found:
        result = import_log(log)
        assert result.exit_code == 0, result.stderr
    is_used_by_fit(run_scav, tmp_path, kind)


def test_the_export_of_a_wandb_run(
    trained: Path, import_log: Import, run_scav: Callable[..., Result], tmp_path: Path
) -> None:
    """As `run.history().to_csv()` writes it: what was logged, without the run's settings."""
    from planner.outside.logs import _wandb

    for batch, log in zip(BATCHES, sorted(trained.glob("wandb/offline-run-*/*.wandb")), strict=True):
        records = _wandb(log).records
        exported = tmp_path / f"history-{batch}.csv"
        names = sorted({name for record in records for name in record})
        with exported.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["", *names])
            writer.writeheader()
            writer.writerows({"": index, **record} for index, record in enumerate(records))
        refused = import_log(exported)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr == f"Error: {exported}: says no batch of one GPU: add --gpu-batch\n"
        options = ("--gpu-batch", f"{batch}", "--accumulation-steps", f"{BATCHES[batch]}")
        assert import_log(exported, *options).exit_code == 0
    is_used_by_fit(run_scav, tmp_path, "W&B CSV")


def test_lightning(lightning: Path, import_log: Import, run_scav: Callable[..., Result], tmp_path: Path) -> None:
    for batch in BATCHES:
        result = import_log(lightning / f"batch-{batch}" / "metrics.csv")
        assert result.exit_code == 0, result.stderr
    is_used_by_fit(run_scav, tmp_path, "Lightning CSV")
    without_times = import_log(lightning / "batch-16")
    assert without_times.exit_code == 1
    assert "no column says the time of its rows: name it with --column time=NAME" in without_times.stderr
    assert len(without_times.stderr.splitlines()) == 1


def test_a_summary_writer_says_no_batch(import_log: Import, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    run_script("summary_writer.py", events)
    refused = import_log(events)
    assert refused.stderr == f"Error: {events}: says no batch of one GPU: add --gpu-batch\n"
    half = import_log(events, "--gpu-batch", "32")
    assert "how many batches one optimizer step takes: add --accumulation-steps" in half.stderr
    assert not (tmp_path / "measurements.jsonl").exists()
    assert import_log(events, "--gpu-batch", "32", "--accumulation-steps", "1").exit_code == 0
    (row,) = rows_of(tmp_path)
    assert row["windows"] == 7  # nine intervals; the first is left out, and so is that which begins at step 10
    assert row["step_seconds"] >= 0.001
