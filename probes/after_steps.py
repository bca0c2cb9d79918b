"""Measured once the steps are done: all-reduce on its own, a checkpoint out and in, and the peak of memory."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from probes import cluster

_REPEATS = 5
_OTHER_SIZES = (64 * 1024, 1024 * 1024, 25 * 1024 * 1024)  # latency, DDP's first bucket, its usual bucket


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Counts the gradient once; a ring moves 2(K-1)/K of it through every link."""

    bytes: int
    seconds: float


def time_allreduce(gradient_bytes: int, place: cluster.Place) -> list[AllReduce]:
    """At the model's own size and three others, slowest process, median of a few."""
    return [_time_size(size, place) for size in (gradient_bytes, *_OTHER_SIZES)]


def _time_size(size: int, place: cluster.Place) -> AllReduce:
    tensor = torch.zeros(max(size // 4, 1), dtype=torch.float32, device=place.device)
    dist.all_reduce(tensor)  # buffers and connections are made at first use
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        seconds.append(_timed(lambda: dist.all_reduce(tensor)))
    (slowest,) = cluster.largest([statistics.median(seconds)], place)
    return AllReduce(bytes=size, seconds=slowest)


def time_checkpoint(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path, place: cluster.Place
) -> dict[str, Any]:
    """Rank 0 saves and loads, as scripts do; the others wait. Flushed to the disk, or the page cache is timed."""
    if place.rank != 0:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="scav-probe-", suffix=".pt", dir=folder)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

            def write() -> None:
                torch.save(state, stream)
                stream.flush()
                os.fsync(stream.fileno())

            save = _timed(write)
        restore = _timed(lambda: torch.load(path, map_location=place.device, weights_only=True))
        return {
            "checkpoint_save_seconds": save,
            "checkpoint_restore_seconds": restore,
            "checkpoint_bytes": path.stat().st_size,
        }
    finally:
        path.unlink()


def peak_memory_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def has_room_for(extra_bytes: float) -> bool:
    """Whether a GPU could hold that much beside the fullest moment so far; of host memory there is enough."""
    if not torch.cuda.is_available():
        return True
    free, _ = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() - torch.cuda.max_memory_allocated() > extra_bytes


def _timed(work: Callable[[], Any]) -> float:
    cluster.wait_for_device()
    start = time.perf_counter()
    work()
    cluster.wait_for_device()
    return time.perf_counter() - start
