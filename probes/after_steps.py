"""Measured once the steps are done: communication on its own, a checkpoint out and in, and the peak of memory."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from probes import cluster

_REPEATS = 5
_OTHER_SIZES = (64 * 1024, 1024 * 1024, 25 * 1024 * 1024)  # latency, DDP's first bucket, its usual bucket


@dataclass(frozen=True, slots=True)
class Collective:
    """`bytes` of what all have together; of K processes a ring moves (K-1)/K of it through every link to gather it or
    to reduce it into shards, twice that for an all-reduce."""

    bytes: int
    seconds: float


def time_allreduce(own_bytes: int, place: cluster.Place) -> list[Collective]:
    """At the model's own size and three others, slowest process, median of a few."""

    def prepared(size: int) -> Callable[[], Any]:
        tensor = _zeros(size, place)
        return lambda: dist.all_reduce(tensor)

    return _time_sizes(own_bytes, prepared, place)


def time_gather(own_bytes: int, group: Any, place: cluster.Place) -> list[Collective]:
    """What FSDP does with the parameters of each block."""
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # its later name, and the one before

    def prepared(size: int) -> Callable[[], Any]:
        shard = _zeros(size // dist.get_world_size(group), place)
        gathered = shard.repeat(dist.get_world_size(group))
        return lambda: gather(gathered, shard, group=group)

    return _time_sizes(own_bytes, prepared, place)


def time_reduce_scatter(own_bytes: int, group: Any, place: cluster.Place) -> list[Collective]:
    """What FSDP does with the gradients of each block."""
    reduce = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

    def prepared(size: int) -> Callable[[], Any]:
        shard = _zeros(size // dist.get_world_size(group), place)
        gradient = shard.repeat(dist.get_world_size(group))
        return lambda: reduce(shard, gradient, group=group)

    return _time_sizes(own_bytes, prepared, place)


def _zeros(size: int, place: cluster.Place) -> torch.Tensor:
    return torch.zeros(max(size // 4, 1), dtype=torch.float32, device=place.device)


def _time_sizes(own_bytes: int, prepared: Callable[[int], Callable[[], Any]], place: cluster.Place) -> list[Collective]:
    return [_time_size(size, prepared(size), place) for size in (own_bytes, *_OTHER_SIZES)]


def _time_size(size: int, work: Callable[[], Any], place: cluster.Place) -> Collective:
    work()  # buffers and connections are made at first use
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        seconds.append(_timed(work))
    (slowest,) = cluster.largest([statistics.median(seconds)], place)
    return Collective(bytes=size, seconds=slowest)


def time_checkpoint(
    model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], folder: Path, place: cluster.Place
) -> dict[str, Any]:
    """Rank 0 saves and loads, as scripts do; the others wait. Flushed to the disk, or the page cache is timed."""
    for optimizer in optimizers:
        if consolidate := getattr(optimizer, "consolidate_state_dict", None):
            consolidate()  # PyTorch's optimizer of ZeRO: to rank 0, by all
    if place.rank != 0:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="scav-probe-", suffix=".pt", dir=folder)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            state = {"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers]}

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


def time_sharded_checkpoint(
    model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], folder: Path, place: cluster.Place
) -> dict[str, Any]:
    """Every process saves and loads its part. Only where all see one folder can it be loaded again."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save as save_shards

    path = folder / "scav-probe-shards"
    path.mkdir(parents=True, exist_ok=True)
    try:
        parameters, moments = get_state_dict(model, optimizers)
        state = {"model": parameters, "optimizer": moments}
        writer = FileSystemWriter(path, sync_files=True)
        save = _timed(lambda: save_shards(state, storage_writer=writer))
        is_node = place.local_rank == 0
        size = torch.tensor([_bytes_in(path) if is_node else 0], dtype=torch.float64, device=place.device)
        (save, unseen) = cluster.largest([save, float(not (path / ".metadata").exists())], place)
        if not unseen:  # one folder, which every node would count
            restore = _timed(lambda: load(state, checkpoint_id=path))
            (restore,) = cluster.largest([restore], place)
            size = size * (place.rank == 0)
        dist.all_reduce(size)
    finally:
        dist.barrier()
        shutil.rmtree(path, ignore_errors=True)
    found = {"checkpoint_save_seconds": save, "checkpoint_bytes": int(size)}
    return found if unseen else {**found, "checkpoint_restore_seconds": restore}


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


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
