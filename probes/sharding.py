"""Spreads a script's model over its processes as a strategy says, with PyTorch's own means.

    model = scav_probe.shard(Llama(), blocks=[Block], tensor_plan={"blocks.*.attention.query": ColwiseParallel(), ...})

Layers are cut first (tensor parallelism), then blocks become what is computed twice (recompute), then the whole is
wrapped in DDP, or each block and the rest in FSDP2. What PyTorch or this helper cannot do is refused in one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from probes.cluster import Place, join_even_alone, this_place
from probes.strategy import Strategy

TensorPlan = Mapping[str, Any]  # names of modules, with * for any number, and a ParallelStyle for each
BlockTypes = Sequence[type[nn.Module]]


class CannotShard(ValueError):
    """A strategy that this model, these processes or this helper cannot follow, in one line."""


def shard(
    model: nn.Module,
    *,
    strategy: Strategy,
    blocks: BlockTypes = (),
    tensor_plan: TensorPlan | None = None,
    **options: Any,
) -> nn.Module:
    """The model, ready for its optimizer: the same one with FSDP2 and tensor parallelism, a wrapper with DDP.

    `blocks` are the types of its equal parts: each is sharded and computed again for itself. `options` are those of
    `fully_shard` (mp_policy, offload_policy) or of DistributedDataParallel.
    """
    place = this_place()
    refuse(strategy, place, blocks=blocks, tensor_plan=tensor_plan)
    join_even_alone(place)
    model.to(place.device)
    units = [module for module in model.modules() if isinstance(module, tuple(blocks))]
    mesh = _mesh(strategy, place)
    if strategy.tensor_parallel > 1:
        from torch.distributed.tensor.parallel import parallelize_module

        parallelize_module(model, mesh["tensor"], dict(tensor_plan or {}))
    if strategy.recompute != "none":
        units = _recompute(model, blocks, strategy.recompute)
    if strategy.is_gathered:
        return _fully_sharded(model, units, mesh["replicate", "shard"] if _is_hybrid(strategy) else mesh["shard"],
                              reshard_after_forward=strategy.sharding != "zero2", **options)  # fmt: skip
    if place.world_size == strategy.tensor_parallel:
        return model
    devices = [place.local_rank] if torch.cuda.is_available() else None
    return nn.parallel.DistributedDataParallel(model, device_ids=devices, **options)


def data_parallel(strategy: Strategy, place: Place) -> tuple[int, int]:
    """Which of how many parts of a batch this process takes: those that share a model take the same."""
    return place.rank // strategy.model_processes, place.world_size // strategy.model_processes


def refuse(strategy: Strategy, place: Place, *, blocks: BlockTypes, tensor_plan: TensorPlan | None) -> None:
    """Raises CannotShard before anything is changed."""
    tensor = strategy.tensor_parallel
    if strategy.pipeline > 1:
        raise CannotShard("pipeline: stages are for the script to make, with torch.distributed.pipelining")
    if strategy.sharding == "zero1":
        optimizer = "torch.distributed.optim.ZeroRedundancyOptimizer"
        raise CannotShard(f"zero1 shards the optimizer and not the model: make it {optimizer} and the model DDP")
    if tensor > place.local_world_size:
        raise CannotShard(f"tensor_parallel: {tensor} is beyond a node of {place.local_world_size} processes")
    if place.local_world_size % tensor:
        raise CannotShard(f"tensor_parallel: {place.local_world_size} processes cannot be divided by {tensor}")
    if tensor > 1 and not tensor_plan:
        raise CannotShard("tensor_parallel: needs tensor_plan=, which says how each layer is cut")
    if tensor > 1 and strategy.sharding == "ddp" and place.world_size > tensor:
        raise CannotShard("tensor_parallel: does not go with PyTorch's DDP, use fsdp")
    if not blocks and (strategy.is_gathered or strategy.recompute != "none"):
        raise CannotShard("needs blocks=, the types of the model's equal parts")


def _is_hybrid(strategy: Strategy) -> bool:
    return strategy.sharding == "hsdp"


def _mesh(strategy: Strategy, place: Place) -> Any:
    """Nodes, then processes that share what is sharded, then those that cut layers: these are neighbours."""
    from torch.distributed.device_mesh import init_device_mesh

    tensor = strategy.tensor_parallel
    replicas = place.nodes if _is_hybrid(strategy) else 1
    sizes = {"replicate": replicas, "shard": place.world_size // (replicas * tensor), "tensor": tensor}
    names = [name for name, size in sizes.items() if name == "shard" or size > 1 or _is_asked(name, strategy)]
    return init_device_mesh(place.device.type, tuple(sizes[name] for name in names), mesh_dim_names=tuple(names))


def _is_asked(name: str, strategy: Strategy) -> bool:
    return name == "replicate" and _is_hybrid(strategy)


def _recompute(model: nn.Module, blocks: BlockTypes, kind: str) -> list[nn.Module]:
    """Blocks that keep their inputs (full), or those and the results of their matrix products (selective)."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointWrapper,
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    options: dict[str, Any] = {"context_fn": _keep_products} if kind == "selective" else {}
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=lambda block: checkpoint_wrapper(block, **options),
        check_fn=lambda module: isinstance(module, tuple(blocks)),
    )
    return [module for module in model.modules() if isinstance(module, CheckpointWrapper)]


def _keep_products() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    aten = torch.ops.aten
    kept = [aten.mm.default, aten.addmm.default, aten.linear.default]
    return create_selective_checkpoint_contexts(kept)  # type: ignore[no-untyped-call]


def _fully_sharded(model: nn.Module, units: Sequence[nn.Module], mesh: Any, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for unit in units:
        fully_shard(unit, mesh=mesh, **options)
    # Of the rest PyTorch keeps gathered after the forward what the backward needs first.
    fully_shard(model, mesh=mesh, **options)
    return model
