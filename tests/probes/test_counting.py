"""Samples and micro-steps of every optimizer step, counted from outside, are what the script itself wrote down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

import torch
from torch import nn

from probes.counting import BackwardWatch, SampleCounter, StepCount, samples_in

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STEPS = 12
CASES = (
    (),
    ("--accumulate", "4"),
    ("--keep-last", "--samples", "100"),
    ("--keep-last", "--samples", "100", "--accumulate", "3", "--rebuild"),
    ("--rebuild", "--samples", "50", "--evaluate"),
    ("--stream", "--keep-last", "--samples", "100"),
    ("--checkpointing", "--accumulate", "2"),
)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_each_step_is_counted_as_the_script_took_it(tmp_path: Path, processes: int) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--"]
    cases = json.dumps([["--batch-size", "24", *case] for case in CASES])
    finished = subprocess.run(
        [
            *(sys.executable, *(torchrun if processes > 1 else ()), str(HERE / "count_steps.py")),
            *(str(tmp_path), str(STEPS), str(HERE / "scripts" / "ddp.py"), cases),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    for number, case in enumerate(CASES):
        for rank in range(processes):
            counted = json.loads((tmp_path / f"counted.{number}.{rank}").read_text())
            lines = (tmp_path / f"written.{number}.{rank}").read_text().splitlines()
            written = [[int(word) for word in line.split()] for line in lines]
            assert len(counted) == STEPS
            assert counted[:-1] == written, case  # it was ended before it wrote of its last step


@pytest.fixture
def count() -> Iterator[Callable[..., StepCount]]:
    """Runs a training step by hand: modules as they are called, with their inputs, and backwards in between."""

    def one_step(*happenings: tuple[nn.Module, torch.Tensor] | None) -> StepCount:
        counter = SampleCounter()
        for happening in happenings:
            if happening is None:
                counter.went_backward()
            else:
                counter.called(happening[0], happening[1:])
        counter.end_step()
        return counter.last

    return one_step


MODEL, OTHER = nn.Linear(4, 4), nn.Linear(4, 4)
BACKWARD = None


def data(samples: int) -> torch.Tensor:
    return torch.zeros(samples, 4)


def made_of(samples: int) -> torch.Tensor:
    return MODEL(data(samples))


def test_micro_steps_are_summed_in_whatever_order_they_go_backward(count: Callable[..., StepCount]) -> None:
    call = (MODEL, data(6))
    assert count(call, BACKWARD, call, BACKWARD) == (12, 2)
    assert count(call, call, BACKWARD, BACKWARD) == (12, 2)  # as pipelines do
    assert count(call, BACKWARD, BACKWARD) == (6, 1)  # two losses of one call


def test_parts_of_a_model_get_the_same_samples(count: Callable[..., StepCount]) -> None:
    assert count((MODEL, data(6)), (OTHER, made_of(30)), BACKWARD) == (6, 1)
    assert count((MODEL, data(6)), (OTHER, data(6)), BACKWARD, (MODEL, data(6)), (OTHER, data(6)), BACKWARD) == (12, 2)
    assert count((MODEL, data(6)), (MODEL, made_of(6)), (MODEL, made_of(6)), BACKWARD) == (6, 1)  # a loop over time


def test_what_nobody_can_tell_is_not_guessed(count: Callable[..., StepCount]) -> None:
    assert count((MODEL, data(6)), (MODEL, data(6)), BACKWARD).samples is None  # two views, or twice the samples
    assert count((MODEL, data(6))).samples is None  # no backward: its gradient came from somewhere else
    assert count(BACKWARD) == (None, 0)
    assert count((MODEL, torch.zeros(())), BACKWARD).samples is None


def test_the_commonest_first_dimension_counts() -> None:
    batch = {"x": torch.zeros(8, 3), "mask": torch.zeros(8, 3), "positions": torch.zeros(3), "scale": torch.zeros(())}
    assert samples_in([batch, 17]) == 8
    assert samples_in(["text"]) is None


def test_a_backward_inside_a_backward_is_no_other() -> None:
    counter = SampleCounter()
    watch = BackwardWatch(counter)

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                watch(torch.ones(1, requires_grad=True).sum())
            return gradient

    counter.called(MODEL, [data(5)])
    watch(Again.apply(torch.ones(3, requires_grad=True)).sum())
    counter.end_step()
    assert counter.last == (5, 1)
