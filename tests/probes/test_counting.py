"""Samples and micro-steps of every optimizer step, counted from outside, are what the script itself wrote down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from libraries import needs_libraries
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

import torch
from torch import nn

from probes.counting import BackwardWatch, SampleCounter, StepCount, samples_in

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STEPS = 12
PLAIN = (
    "",
    "--accumulate 4",
    "--keep-last --samples 100",
    "--keep-last --samples 100 --accumulate 3 --rebuild",
    "--rebuild --samples 50 --evaluate",
    "--stream --keep-last --samples 100",
    "--checkpointing --accumulate 2",
)
WITH_LIBRARIES = {
    "trainer.py": ("--accumulate 4 --drop-last", "--samples 100 --accumulate 3", "--stream --by-hand"),
    "lightning_module.py": (
        "--accumulate 4",
        "--keep-last --samples 100 --data-module --by-hand",
        "--keep-last --samples 100 --accumulate 3 --rebuild",
        "--stream --keep-last --samples 100 --accumulate 2",
    ),
    "accelerated.py": (
        "--accumulate 4",
        "--keep-last --samples 100 --rebuild",
        "--stream --keep-last --samples 100 --accumulate 3",
        "--split --batch-sampler",
    ),
}


class RequestedRun(NamedTuple):
    samples: int
    micro_steps: int


class Case(NamedTuple):
    script: str
    options: str
    environment: dict[str, str] = {}  # noqa: RUF012
    adapted: RequestedRun | None = None


ASKED = RequestedRun(5, 3)
ENVIRONMENT = {"SCAV_GPU_BATCH": "5", "SCAV_ACCUMULATION": "3"}


def counted_and_written(folder: Path, processes: int, cases: Sequence[Case]) -> Iterator[tuple[Case, list, list]]:
    """Of every case and process: what the probe counted of its steps, and what the script itself wrote down."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--"]
    told = [
        {**case._asdict(), "script": str(HERE / "scripts" / case.script), "options": case.options.split()}
        for case in cases
    ]
    finished = subprocess.run(
        [
            *(sys.executable, *(torchrun if processes > 1 else ()), str(HERE / "count_steps.py")),
            *(str(folder), str(STEPS), json.dumps(told)),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    for number, case in enumerate(cases):
        for rank in range(processes):
            counted = json.loads((folder / f"counted.{number}.{rank}").read_text())
            lines = (folder / f"written.{number}.{rank}").read_text().splitlines()
            assert len(counted) == STEPS, case
            yield case, counted, [[int(word) for word in line.split()] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_each_step_is_counted_as_the_script_took_it(tmp_path: Path, processes: int) -> None:
    cases = [Case("ddp.py", f"--batch-size 24 {options}") for options in PLAIN]
    for case, counted, written in counted_and_written(tmp_path, processes, cases):
        assert counted[:-1] == written, case  # it was ended before it wrote of its last step


@pytest.mark.slow
@needs_libraries
@pytest.mark.parametrize("processes", [1, 2])
def test_libraries_are_counted_alike_and_take_the_batch_that_is_asked_for(tmp_path: Path, processes: int) -> None:
    own = [Case(script, options) for script, cases in WITH_LIBRARIES.items() for options in cases]
    by_hand = [case._replace(environment=ENVIRONMENT) for case in own if "--by-hand" in case.options]
    by_adapters = [case._replace(adapted=ASKED) for case in own]
    as_asked = [ASKED.samples * ASKED.micro_steps, ASKED.micro_steps]
    for case, counted, written in counted_and_written(tmp_path, processes, [*own, *by_hand, *by_adapters]):
        assert counted[:-1] == written, case
        assert (written.count(as_asked) > STEPS / 2) == (case not in own), case


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
