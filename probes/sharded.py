"""Models whose parameters are kept in shards: how to tell, and what the shards are together.

Nothing of PyTorch's sharding is imported here unless the script has imported it: that takes a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from probes.strategy import Strategy

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_WAYS = "use scav_probe.shard or scav_probe.strategy, or {strategy} in the command"


def is_shard(tensor: torch.Tensor) -> bool:
    """Of a tensor that several processes, or one that shards alone, hold together: a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_sharded(model: torch.nn.Module) -> bool:
    return any(is_shard(parameter) for parameter in model.parameters())


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of it."""
    return _as_shard(tensor).to_local() if is_shard(tensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Gathered; all processes must ask."""
    return _as_shard(tensor).full_tensor() if is_shard(tensor) else tensor


def fault(model: torch.nn.Module, asked: Strategy | None, *, is_taken: bool, recomputes: bool) -> str | None:
    """One line where a script does not do what is asked, as far as that can be seen.

    `is_taken`: the script asked for the strategy. It may then shard by means that cannot be seen here.
    """
    older = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if older is not None and any(isinstance(module, older) for module in model.modules()):
        return "its FSDP is FullyShardedDataParallel, whose shards cannot be measured: use fully_shard (FSDP2)"
    shards = is_sharded(model)
    if asked is None:
        return "the script shards its model by itself: name the way, as in --strategy fsdp" if shards else None
    if asked.sharding == "ddp" and asked.model_processes == 1 and shards:
        return f"asked for ddp, and the script shards its model: {_WAYS}"
    if recomputes and asked.recompute == "none":
        return f"asked for no recompute, and the script computes activations twice: {_WAYS}"
    if is_taken:
        return None
    if not shards and (asked.sharding != "ddp" or asked.model_processes > 1):
        return f"asked for {asked.shown}, and the script shards nothing: {_WAYS}"
    if not recomputes and asked.recompute != "none":
        return f"asked for {asked.shown}, and the script computes nothing twice: {_WAYS}"
    return None


def _as_shard(tensor: torch.Tensor) -> DTensor:
    return cast("DTensor", tensor)


def shard_group(parameters: Iterable[torch.Tensor]) -> Any:
    """The processes that share what is sharded; None for all of them."""
    for parameter in parameters:
        if is_shard(parameter):
            placements = _as_shard(parameter).placements
            dimension = next((number for number, how in enumerate(placements) if how.is_shard()), None)
            if dimension is not None:
                return _as_shard(parameter).device_mesh.get_group(dimension)
    return None


def largest_unit_bytes(model: torch.nn.Module) -> int:
    """Of what is gathered at once: a block, in the precision that its parameters are kept in."""
    return max((sum(sizes) for sizes in _unit_sizes(model)), default=0)


def _unit_sizes(model: torch.nn.Module) -> Iterator[list[int]]:
    from torch.distributed.fsdp import FSDPModule

    units: list[torch.nn.Module] = [module for module in model.modules() if isinstance(module, FSDPModule)]
    units = units or [model]
    for unit in units:
        inner = {id(p) for other in unit.modules() if other in units and other is not unit for p in other.parameters()}
        yield [p.numel() * p.element_size() for p in unit.parameters() if id(p) not in inner]
