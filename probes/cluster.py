"""Which process this is among how many, on which device, and how they talk: the one switch between GPU and CPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Place:
    """As torchrun says in the environment; one process alone without it."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def nodes(self) -> int:
        return max(self.world_size // self.local_world_size, 1)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")


def this_place() -> Place:
    def number(name: str, default: int) -> int:
        return int(os.environ.get(name, default))

    return Place(
        rank=number("RANK", 0),
        world_size=number("WORLD_SIZE", 1),
        local_rank=number("LOCAL_RANK", 0),
        local_world_size=number("LOCAL_WORLD_SIZE", 1),
    )


def join(place: Place) -> None:
    """Meet the other processes, over NCCL where there are GPUs and gloo where there are none."""
    if place.world_size == 1 or dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(place.device)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def join_even_alone(place: Place) -> None:
    """A process of its own is a group of one, for what wants a group."""
    if place.world_size > 1:
        join(place)
    elif not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def any_of(flags: Sequence[bool], place: Place) -> list[bool]:
    """For each flag whether any process has raised it, the same everywhere."""
    return [raised > 0 for raised in largest([float(flag) for flag in flags], place)]


def largest(values: Sequence[float], place: Place) -> list[float]:
    """Of all processes, each value for itself, the same everywhere: the slowest sets the pace."""
    tensor = torch.tensor(list(values), dtype=torch.float64, device=place.device)
    if dist.is_initialized():
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [float(value) for value in tensor.tolist()]


def wait_for_device() -> None:
    """GPU work is queued: a clock is only right when the queue is empty."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def hardware(place: Place) -> dict[str, Any]:
    """What the machine says of itself, for whoever reads the measurement later."""
    gpu = torch.cuda.get_device_name(place.device) if torch.cuda.is_available() else None
    memory = torch.cuda.get_device_properties(place.device).total_memory if torch.cuda.is_available() else None
    return {
        "gpu": gpu,
        "gpu_memory_bytes": memory,
        "cpu": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def software() -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions
