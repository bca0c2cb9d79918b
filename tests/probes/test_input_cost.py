"""What feeding takes: as many bytes as the files have, as many samples as an epoch draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from probes.input_cost import Fetch, InputCost, cost_of, dataset_samples, input_cost


class Files(Dataset):
    """One file is one sample."""

    def __init__(self, folder: Path, size: int) -> None:
        self.files = [folder / str(number) for number in range(24)]
        for file in self.files:
            file.write_bytes(bytes(size))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.files[index].read_bytes()), dtype=torch.uint8)


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(50, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_are_those_of_the_files(tmp_path: Path, workers: int) -> None:
    cost = input_cost(DataLoader(Files(tmp_path, 30_000), batch_size=4, num_workers=workers, shuffle=True))
    assert cost is not None
    assert cost.cpu_seconds_per_sample > 0
    assert cost.read_bytes_per_sample == pytest.approx(30_000, rel=0.01)


def test_what_is_in_memory_is_not_read() -> None:
    threads = torch.get_num_threads()
    cost = input_cost(DataLoader(TensorDataset(torch.ones(100, 3)), batch_size=10))
    assert cost is not None
    assert cost.read_bytes_per_sample == pytest.approx(0, abs=1)
    assert torch.get_num_threads() == threads


def test_the_first_batch_does_not_count_unless_there_is_no_other() -> None:
    first, second, third = Fetch(10, 50.0, 900), Fetch(10, 1.0, 100), Fetch(5, 1.5, 50)
    assert cost_of([first, second, third]) == InputCost(pytest.approx(0.2), pytest.approx(150 / 15))
    assert cost_of([first]) == InputCost(5.0, 90.0)
    assert cost_of([first, Fetch(10, 1.0, None)]) == InputCost(0.1, None)
    assert cost_of([]) is None


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (DataLoader(TensorDataset(torch.ones(70, 2)), batch_size=32, drop_last=True), 70),
        (DataLoader(TensorDataset(torch.ones(70, 2)), sampler=SubsetRandomSampler(range(50))), 50),
        (DataLoader(TensorDataset(torch.ones(70, 2)), batch_size=None), 70),
        (DataLoader(Stream()), None),
    ],
    ids=["data set", "a part of it", "whole batches", "stream"],
)
def test_samples_are_those_of_an_epoch(loader: DataLoader, samples: int | None) -> None:
    assert dataset_samples(loader) == samples
    assert input_cost(loader) is not None


def test_batches_without_samples_have_no_cost() -> None:
    assert input_cost(DataLoader(["a", "b"])) is None
