"""What it takes to have a sample ready: CPU seconds and bytes read, of the data loader that the script trains from.

Batches are fetched in this process, whatever workers the script's loader has: reading, decoding, transforming and
collating, on one thread as in a worker. The first batch opens files and fills caches, and does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from probes.counting import samples_in

_BATCHES = 6
_LONGEST_SECONDS = 20.0
_READ = Path("/proc/self/io")


class InputCost(NamedTuple):
    cpu_seconds_per_sample: float
    read_bytes_per_sample: float | None  # None: the system does not say


class Fetch(NamedTuple):
    samples: int
    cpu_seconds: float
    read_bytes: int | None


def dataset_samples(loader: DataLoader[Any]) -> int | None:
    """In one epoch of this process, which is alone; a sampler may leave some of the data set for other purposes."""
    sized: Any = loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler
    try:
        return len(sized) or None
    except (TypeError, NotImplementedError):
        return None


def input_cost(loader: DataLoader[Any]) -> InputCost | None:
    """None where the samples of its batches cannot be counted."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return cost_of(list(_fetches(loader)))
    finally:
        torch.set_num_threads(threads)


def cost_of(fetches: list[Fetch]) -> InputCost | None:
    counted = fetches[1:] or fetches  # an epoch of one batch has no other
    if not counted:
        return None
    seconds = statistics.median(fetch.cpu_seconds / fetch.samples for fetch in counted)
    read = [fetch.read_bytes for fetch in counted if fetch.read_bytes is not None]
    samples = sum(fetch.samples for fetch in counted)
    return InputCost(seconds, sum(read) / samples if len(read) == len(counted) else None)


def _fetches(loader: DataLoader[Any]) -> Iterator[Fetch]:
    batches = iter(_without_workers(loader))
    started = time.monotonic()
    own = _own_read()
    for _ in range(_BATCHES):
        read, cpu = _bytes_read(), time.process_time()
        try:
            batch = next(batches)
        except StopIteration:
            return
        cpu_seconds, after = time.process_time() - cpu, _bytes_read()
        samples = samples_in(batch)
        if samples is None:
            return
        yield Fetch(samples, cpu_seconds, None if read is None or after is None else max(after - read - own, 0))
        if time.monotonic() - started > _LONGEST_SECONDS:
            return


def _without_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    dataset, collate = loader.dataset, loader.collate_fn
    if isinstance(dataset, IterableDataset):
        return DataLoader(dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, collate_fn=collate)
    if loader.batch_sampler is None:  # a data set of whole batches
        return DataLoader(dataset, batch_size=None, sampler=loader.sampler, collate_fn=collate)
    return DataLoader(dataset, batch_sampler=loader.batch_sampler, collate_fn=collate)


def _bytes_read() -> int | None:
    """By this process so far, through reads of files and sockets; pages of mapped files are not among them."""
    try:
        text = _READ.read_text(encoding="ascii")
    except OSError:
        return None
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar"))


def _own_read() -> int:
    """Looking at the number is a read, too."""
    first, second = _bytes_read(), _bytes_read()
    return 0 if first is None or second is None else second - first
