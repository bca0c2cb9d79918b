"""`scav tune --online` from end to end, on a script whose steps take what they are told to take."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

from planner.probing import Stretch, fault_of_last, parse_stretches, trained_samples

SCRIPT = """
import os, sys, time, torch
from probes.checkpoints import Checkpoints
from probes.ending import leave

batch, samples = int(os.environ["SCAV_GPU_BATCH"]), int(sys.argv[1])
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
checkpoints, done = Checkpoints(), 0
if state := checkpoints.load():
    done = state["done"]
    model.load_state_dict(state["model"])
torch.manual_seed(done)
while done < samples:
    {before_step}
    time.sleep(0.004 + 0.0001 * batch)
    loss = (model(torch.randn(batch, 8)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += batch
    checkpoints.after_step(lambda: {{"done": done, "model": model.state_dict()}})
leave()
"""
JOB = """
name: told
workload:
  dataset_samples: 10000
  flops_per_sample: 1e6
  parameters: 9
  activation_bytes_per_sample: 32
  global_batch: 16..64
  precision: fp32
  target: {{samples: {samples}, reference_batch: 16}}
  convergence: {{runs: [{{batch: 64, samples: {samples}}}]}}
run: {{command: [train.py]}}
"""


def trained(folder: Path, samples: int, before_step: str) -> tuple[list[Stretch], str]:
    """The journal, and what was said on the way; the job is named as somebody beside it would."""
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT.format(before_step=before_step))
    (job / "scav.yaml").write_text(JOB.format(samples=samples))
    done = subprocess.run(
        [sys.executable, "-m", "planner", "tune", "job", "--online", "--workers", "1", "--", "train.py", str(samples)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Trained " in done.stdout
    file = job / "scav-online" / "stretches.jsonl"
    return parse_stretches(file.read_text(), file=str(file)), done.stderr


@pytest.mark.slow
def test_what_does_not_fit_is_left_and_the_run_goes_on_with_what_fits(tmp_path: Path) -> None:
    journal, said = trained(tmp_path, 40_000, "torch.empty(10**15 if batch > 40 else 1)")
    refused = [stretch for stretch in journal if not stretch.fits]
    assert [stretch.gpu_batch for stretch in refused] == [64, 48][: len(refused)]
    assert "at local batch 64: does not fit the memory" in said
    assert journal[-1].ended
    assert journal[-1].gpu_batch <= 40
    assert trained_samples(journal) >= 40_000


@pytest.mark.slow
def test_steps_that_become_slower_are_noticed_and_the_run_goes_on_elsewhere(tmp_path: Path) -> None:
    """Large batches, of which it took few steps, are five times slower from a quarter of the run on."""
    samples = 160_000
    journal, _ = trained(tmp_path, samples, "time.sleep(0.05 if batch > 40 and done > 40_000 else 0)")
    late = next(number for number, _ in enumerate(journal) if trained_samples(journal[: number + 1]) > 40_000)
    assert journal[late].gpu_batch > 40  # where it was going to the end
    assert not journal[late].ended
    assert journal[-1].gpu_batch <= 40
    assert journal[-1].ended
    assert sum(stretch.samples for stretch in journal if stretch.gpu_batch <= 40) > samples / 4
    assert fault_of_last(journal) is None
    assert all(one.to_state == other.from_state for one, other in pairwise(journal))
    assert trained_samples(journal) == pytest.approx(samples, abs=64)
