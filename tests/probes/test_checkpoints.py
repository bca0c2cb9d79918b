"""A run that loses a process, or is told to go, continues where it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

torch = pytest.importorskip("torch")

from probes.checkpoints import Checkpoints  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "examples" / "tiny-transformer" / "train.py"


def start(folder: Path, *arguments: str, processes: int = 1, restarts: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, str(TRAIN), *arguments]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *launcher, f"--max-restarts={restarts}", str(TRAIN), *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        # Without it a restarted group finds the addresses of the dead one in the launcher's store (torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "SCAV_GPU_BATCH": "8",
        "SCAV_CHECKPOINT_DIR": str(folder),
        "SCAV_CHECKPOINT_INTERVAL_SECONDS": "0",
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=PATIENCE_SECONDS)[0]


def final_loss(output: str) -> float:
    found = re.search(r"finished: loss ([\d.]+)", output)
    assert found is not None, output
    return float(found[1])


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Reads until the words appear."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    pytest.fail(f"ended without {words!r}: {seen}")


@pytest.fixture
def handled_sigterm() -> Iterator[None]:
    """Checkpoints take SIGTERM for themselves, here only as long as the test lasts."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_13_and_the_run_continues(tmp_path: Path) -> None:
    process = start(tmp_path, "--steps", "100000")
    wait_for(process, "step 50:")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 13
    resumed = finished(start(tmp_path, "--steps", "150"))
    assert int(re.search(r"resumed at step (\d+)", resumed)[1]) >= 50


@pytest.mark.usefixtures("handled_sigterm")
def test_the_step_in_which_sigterm_comes_is_the_last(tmp_path: Path) -> None:
    """A spot notice leaves two minutes: no further step may take them."""
    checkpoints = Checkpoints(tmp_path, interval_seconds=1e9)
    checkpoints.after_step(dict)
    assert not list(tmp_path.iterdir())
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        checkpoints.after_step(lambda: {"step": 8})
    assert left.value.code == 13
    assert torch.load(tmp_path / "checkpoint.pt") == {"step": 8}


@pytest.mark.slow
def test_a_killed_worker_is_restarted_and_the_result_is_the_same(tmp_path: Path) -> None:
    whole = finished(start(tmp_path / "whole", "--steps", "150", processes=2))
    process = start(tmp_path / "killed", "--steps", "150", processes=2, restarts=2)
    seen = wait_for(process, "step 50:")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    rest = finished(process)
    assert process.returncode == 0, seen + rest
    assert "resumed at step" in rest
    # The smoothed loss starts anew after a restart, so compare what follows from the weights: a few more steps.
    again = [finished(start(tmp_path / name, "--steps", "151", processes=2)) for name in ("whole", "killed")]
    assert final_loss(again[0]) == pytest.approx(final_loss(again[1]), rel=1e-5), whole


@pytest.mark.slow
def test_both_examples_really_learn() -> None:
    digits = REPOSITORY / "examples" / "digits-cnn" / "train.py"
    command = [sys.executable, str(digits), "--target", "0.97", "--epochs", "40"]
    learned = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert float(learned.stdout.split()[-1]) >= 0.97


@pytest.mark.slow
def test_the_transformer_learns_what_can_be_known(tmp_path: Path) -> None:
    output = finished(start(tmp_path, "--steps", "1500", "--target", "0.30"))
    first = float(re.search(r"step 50: loss ([\d.]+)", output)[1])
    assert final_loss(output) <= 0.30 < first / 2
