"""A row is what a script did, which is what it was asked to do; else there is no row."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from libraries import needs_libraries
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

from planner.errors import ScavError, ScriptFailed
from planner.inputs import LOCAL, Measurement
from planner.outside.runners import LocalRunner, Script
from planner.probing import Probe
from probes.batch_check import fault
from probes.cluster import Place
from probes.counting import StepCount

SCRIPTS = Path(__file__).parent / "scripts"


def measure(
    command: str,
    *,
    folder: Path = SCRIPTS,
    workers: int = 1,
    gpu_batch: int = 32,
    accumulation: int = 1,
    stated: bool = False,
) -> Measurement:
    script = Script(folder=folder, command=tuple(command.split()), samples_are_stated=stated).checked()
    runner = LocalRunner(script=script, timeout_seconds=PATIENCE_SECONDS, windows=1, window_steps=4)
    probe = Probe(LOCAL, 1, workers, gpu_batch, accumulation, "fp32")
    return runner.run(probe, reference_batch=32, measure_noise=False)


def batch_of(row: Measurement) -> tuple[object, ...]:
    asked = (row.asked_gpu_batch, row.asked_accumulation_steps)
    return row.gpu_batch, row.accumulation_steps, *asked, row.samples_per_step, row.batch_source


@pytest.mark.slow
def test_placeholders_hand_the_batch_over_and_the_count_agrees() -> None:
    command = "ddp.py --batch-size {gpu_batch} --accumulate {accumulation_steps}"
    row = measure(command, workers=2, gpu_batch=8, accumulation=3)
    assert row.gpus_per_node == 2
    assert batch_of(row) == (8, 3, 8, 3, 24.0, "counted")


@pytest.mark.slow
def test_rows_of_different_batches_come_from_different_work() -> None:
    small, large = (measure("ddp.py --width 1024 --batch-size {gpu_batch}", gpu_batch=size) for size in (2, 2048))
    assert (small.samples_per_step, large.samples_per_step) == (2.0, 2048.0)
    kept = 2048 * 1024 * 4  # the hidden layer alone
    assert large.peak_memory_bytes is not None
    assert small.peak_memory_bytes is not None
    assert large.peak_memory_bytes - small.peak_memory_bytes > kept


@pytest.mark.slow
@needs_libraries
@pytest.mark.parametrize(
    ("script", "adapter"),
    [
        ("trainer.py --samples 200 --epochs 1 --evaluate", "transformers"),
        ("lightning_module.py --samples 200 --epochs 1 --evaluate --devices 1 --by-hand", None),
    ],
)
def test_libraries_take_the_batch_go_on_long_enough_and_write_nothing(
    tmp_path: Path, script: str, adapter: str | None
) -> None:
    for file in SCRIPTS.glob("*.py"):
        shutil.copy(file, tmp_path)
    row = measure(script, folder=tmp_path, workers=2, gpu_batch=8, accumulation=3)
    assert batch_of(row)[:4] == (8, 3, 8, 3)
    assert (row.batch_source, row.adapter) == ("counted", adapter)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".py" and path.name != "__pycache__"]


@pytest.mark.slow
@needs_libraries
def test_rows_of_an_unchanged_script_come_from_different_work(tmp_path: Path) -> None:
    for size in (4, 64):
        row = measure(f"accelerated.py --log {tmp_path / str(size)}", gpu_batch=size)
        assert batch_of(row) == (size, 1, size, 1, size, "counted")
        written = (tmp_path / f"{size}.0").read_text(encoding="utf-8")  # by the script, of what its model got
        assert set(written.splitlines()) == {f"{size} 1"}


@pytest.mark.slow
def test_a_smaller_last_batch_is_counted_and_not_timed() -> None:
    row = measure("ddp.py --batch-size {gpu_batch} --keep-last --samples 70")
    assert row.gpu_batch == 32
    assert row.samples_per_step is not None
    assert row.samples_per_step == pytest.approx((32 + 32 + 6) / 3, abs=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        pytest.param(
            *("accelerated.py --batch-size 48 --accumulate {accumulation_steps}", {}, "took 48 samples in 1 micro"),
            marks=needs_libraries,
        ),
        ("own_batch.py", {"workers": 2}, "took 48 samples in 1 micro-step per optimizer step, asked for 32 in 1"),
        ("no_module.py {gpu_batch}", {}, "cannot be counted from the calls of its model: say --samples-per-step"),
        ("no_module.py {gpu_batch}", {"workers": 2, "stated": True}, "2 processes were started and 1 train together"),
    ],
    ids=["placeholders come first", "ignores the batch", "no module", "no group"],
)
def test_a_script_that_does_otherwise_is_refused(command: str, options: dict[str, int], words: str) -> None:
    with pytest.raises(ScavError) as refused:
        measure(command, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


ALONE = Place(rank=0, world_size=1, local_rank=0, local_world_size=1)
ASKED, SMALLER = StepCount(32, 1), StepCount(6, 1)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (
            [StepCount(64, 2)] * 20,
            "each process took 64 samples in 2 micro-steps per optimizer step, asked for 32 in 1",
        ),
        ([StepCount(32, 2)] * 20, "took 32 samples in 2 micro-steps"),
        (
            [StepCount(1, 1)] * 20,
            "took 1 sample in 1 micro-step per optimizer step, asked for 32 in 1 micro-step: hand the batch over with",
        ),
        ([StepCount(1, 1)] * 20, "; where samples are packed into one row, say --samples-per-step asked"),
        ([SMALLER] * 11 + [ASKED] * 9, "each process mostly took 6 samples"),
        ([StepCount(None, 0)] * 20, "cannot be counted"),
    ],
)
def test_what_was_seen_is_said(counts: list[StepCount], words: str) -> None:
    assert words in str(fault(counts, ASKED, ALONE, early=False))


def test_a_smaller_batch_now_and_then_is_no_fault() -> None:
    assert fault([ASKED, SMALLER] * 10, ASKED, ALONE, early=False) is None
    assert fault([SMALLER, SMALLER, SMALLER, ASKED], ASKED, ALONE, early=True) is None
    assert fault([SMALLER] * 4, ASKED, ALONE, early=True) is not None


@pytest.mark.slow
def test_what_cannot_be_counted_can_be_stated() -> None:
    assert batch_of(measure("no_module.py {gpu_batch}", stated=True)) == (32, 1, 32, 1, 32.0, "stated")


@pytest.mark.slow
def test_a_failing_script_shows_its_own_error_once() -> None:
    with pytest.raises(ScriptFailed) as failed:
        measure("ddp.py --batches {gpu_batch}", workers=2)
    lines = failed.value.said_before.splitlines()
    assert lines[0].startswith("usage: ddp.py [-h]")
    assert lines[-1] == "ddp.py: error: the following arguments are required: --batch-size"
    assert str(failed.value).endswith("the script failed with exit code 1")
