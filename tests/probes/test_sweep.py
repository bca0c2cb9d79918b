"""Several batch sizes in turn on the same processes: one crashes, one fits, one does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

from torch.distributed import HashStore

from planner.inputs.measurements import Measurement
from planner.outside.runners.fitting import measure_what_fits
from planner.outside.runners.local import LocalRunner, Script
from planner.probing.probe_plan import LOCAL, Probe
from probes import sweep, trial
from probes.cluster import Place
from probes.trial import Report, run_trial, together

REPOSITORY = Path(__file__).resolve().parents[2]
# The second process has less memory than the first, as on a GPU that somebody else uses too.
SCRIPT = """
import os, sys, torch
from torch import nn
batch, last = int(sys.argv[1]), int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
if batch == 8 and last:
    raise ValueError("no data here")
if batch > 18 and last:
    raise torch.OutOfMemoryError("CUDA out of memory")
assert os.environ["SCAV_GLOBAL_BATCH"] == str(batch * int(os.environ["WORLD_SIZE"]))
assert not os.path.exists(os.path.join(os.environ["SCAV_CHECKPOINT_DIR"], "checkpoint.pt"))
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(batch, 8)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_size_that_crashes_or_does_not_fit_leaves_the_others_to_be_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("-m", "probes.sweep", "--batches", "8,16,20,64", "--reference-batch", "32", "--windows", "1"),
            *("--window-steps", "3", "--no-noise", "--seconds-per-batch", str(PATIENCE_SECONDS)),
            *("--", "train.py", "{gpu_batch}"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
            "SCAV_RESULTS_DIR": str(tmp_path / "results"),
            "TMPDIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    records = [json.loads(line) for line in (tmp_path / "results" / "probes.jsonl").read_text().splitlines()]
    assert [(record["gpu_batch"], record["outcome"]) for record in records] == [
        (8, "failed"),
        (16, "measured"),
        (20, "out_of_memory"),
        (64, "out_of_memory"),
    ]
    assert records[0]["reason"].endswith("exit code 1: ValueError: no data here")
    assert records[1]["allreduce"][0]["bytes"] == 4 * 72
    assert (records[2]["gpus_per_node"], records[3]["reason"]) == (2, "local batch 20 does not fit already")
    assert not list(tmp_path.glob("scav-sweep-*"))


@pytest.mark.slow
def test_the_local_runner_goes_on_below_what_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    script = Script(folder=tmp_path, command=("train.py", "{gpu_batch}"))
    runner = LocalRunner(script=script, timeout_seconds=PATIENCE_SECONDS, windows=1, window_steps=3)
    said: list[str] = []

    def run(probe: Probe) -> Measurement:
        return runner.run(probe, reference_batch=32, measure_noise=False)

    probes = [Probe(LOCAL, 1, 2, batch, 1, "fp32") for batch in (16, 20)]
    (row,) = measure_what_fits(run, probes, say=said.append)
    assert (row.gpu_batch, row.out_of_memory_at) == (16, 20)
    assert said == ["local batch 20 does not fit the memory of 1 x 2 workers; the largest that fits is 16"]


def test_a_sweep_ends_with_the_first_batch_that_is_ignored(tmp_path: Path) -> None:
    results = sweep.Results(tmp_path / "probes.jsonl", Place(0, 1, 0, 1), [8, 16, 32])
    results.add(8, Report("other_batch", "each process took 48 samples"))
    assert results.next_order() == {"batch": None, "code": 1}
    assert [record["gpu_batch"] for record in results.records] == [8]


def run_python(code: str, tmp_path: Path, store: HashStore, seconds: float) -> Report:
    return run_trial([sys.executable, "-c", code], os.environ, tmp_path / "none.json", store, seconds)


def test_a_process_that_hangs_is_ended_and_the_others_are_told(tmp_path: Path) -> None:
    store = HashStore()
    report = run_python("import time; time.sleep(3600)", tmp_path, store, 0.3)
    assert (report.outcome, report.order) == ("timed_out", 1)
    assert store.check(["alarm"])


def test_a_process_whose_fellow_failed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_GRACE_SECONDS", 0.2)
    store = HashStore()
    store.add("alarm", 1)
    assert run_python("import time; time.sleep(3600)", tmp_path, store, PATIENCE_SECONDS) == Report("ended")


def test_the_first_that_failed_has_the_word_unless_memory_ran_out() -> None:
    first, second = Report("failed", "no data", 1), Report("failed", "connection closed", 2)
    assert together([second, first, Report("ended")]) is first
    full = Report("out_of_memory", "too large", 3)
    assert together([second, first, full]) is full
    assert together([Report("measured", record={}), first]).outcome == "measured"
    assert together([Report("too_few_steps", "0 steps"), Report("ended")]).outcome == "too_few_steps"
