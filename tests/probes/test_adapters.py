"""What adapters are made of; that libraries obey them is in test_counting.py and test_proven_batches.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS

pytest.importorskip("torch")

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from probes.adapters.loaders import give_batch
from probes.adapters.requested_run import RequestedRun, epochs_for, length_of

REPOSITORY = Path(__file__).resolve().parents[2]
NUMBERS = torch.arange(10)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class SizedStream(Stream):
    def __len__(self) -> int:
        return 10


def sizes(loader: DataLoader) -> list[int]:
    return [len(batch) for batch in loader]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("data", [NUMBERS, Stream(), SizedStream()])
def test_a_loader_takes_another_batch_and_is_otherwise_the_same(data: object, drop_last: bool) -> None:
    loader = DataLoader(data, batch_size=3, drop_last=drop_last)
    sampler, collate = loader.sampler, loader.collate_fn
    assert sizes(loader)[:3] == [3, 3, 3]
    give_batch(RequestedRun(gpu_batch=4, accumulation_steps=1), "some library", loader)
    assert sizes(loader) == [4, 4] + [2] * (not drop_last)
    assert (loader.batch_size, loader.drop_last, loader.sampler, loader.collate_fn) == (4, drop_last, sampler, collate)
    assert length_of(loader) == (0 if type(data) is Stream else 3 - drop_last)


def test_a_batch_sampler_of_the_script_takes_it_as_well() -> None:
    batches = BatchSampler(RandomSampler(NUMBERS), batch_size=3, drop_last=False)
    loader = DataLoader(NUMBERS, batch_sampler=batches)
    give_batch(RequestedRun(gpu_batch=5, accumulation_steps=1), "some library", loader)
    assert sizes(loader) == [5, 5]
    assert loader.batch_size is None  # as torch has it where the sampler says


@pytest.mark.parametrize(
    "loader",
    [DataLoader(NUMBERS, batch_size=None), DataLoader(NUMBERS, batch_sampler=[[1, 2], [3]]), [1, 2, 3]],
    ids=["batches made by the dataset", "batches written down", "no loader"],
)
def test_what_has_no_batch_size_is_left_alone(loader: DataLoader) -> None:
    before = list(loader)
    give_batch(RequestedRun(gpu_batch=5, accumulation_steps=1), "some library", loader)
    assert list(map(str, loader)) == list(map(str, before))


@given(st.integers(1, 1000), st.integers(0, 500), st.integers(1, 20))
def test_epochs_are_just_enough_for_the_steps(steps: int, batches: int, accumulation: int) -> None:
    epochs, each = epochs_for(steps, batches, accumulation), max(batches // accumulation, 1)
    assert (epochs - 1) * each < steps <= epochs * each


def test_a_library_is_told_of_only_if_it_would_have_taken_another_batch() -> None:
    told: list[str] = []
    asked = RequestedRun(gpu_batch=4, accumulation_steps=1, tell=told.append)
    loader = DataLoader(NUMBERS, batch_size=4)
    give_batch(asked, "some library", loader)
    assert told == []
    give_batch(asked, "some library", loader, processes=2)
    assert told == ["some library"]
    assert sizes(loader) == [8, 2]
    give_batch(RequestedRun(gpu_batch=None, accumulation_steps=None), "some library", loader)
    assert sizes(loader) == [8, 2]


def test_outside_of_scav_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCAV_GPU_BATCH", raising=False)
    assert RequestedRun.from_environment() is None
    monkeypatch.setenv("SCAV_GPU_BATCH", "16")
    monkeypatch.delenv("SCAV_ACCUMULATION", raising=False)
    assert RequestedRun.from_environment() == RequestedRun(gpu_batch=16, accumulation_steps=1)


@pytest.mark.slow
def test_nothing_is_imported_that_the_script_does_not_import() -> None:
    program = """
import sys
from probes import adapters, scav_probe
from probes.adapters.requested_run import RequestedRun
adapters.install(RequestedRun(gpu_batch=4, accumulation_steps=1))
assert not {"accelerate", "lightning", "pytorch_lightning", "transformers"} & set(sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert finished.returncode == 0, finished.stderr
