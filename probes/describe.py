"""What a network costs per sample without running it for real: flops, parameters, gradient and activation bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True, slots=True)
class Description:
    """The workload's part of a job file."""

    flops_per_sample: float
    parameters: int
    gradient_bytes: int
    activation_bytes_per_sample: float


def describe(module: torch.nn.Module, loss: Callable[[], torch.Tensor], batch: int) -> Description:
    """`loss` computes the training loss of `batch` samples with `module`, on any device, the meta device included."""
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    own = {parameter.data_ptr() for parameter in module.parameters() if parameter.device.type != "meta"}
    kept: dict[Any, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        """Weights are saved for the backward pass too, but they do not grow with the batch."""
        storage = tensor.untyped_storage()
        is_weight = isinstance(tensor, torch.nn.Parameter) or tensor.data_ptr() in own - {0}
        if not is_weight:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = loss()
        value.backward()  # type: ignore[no-untyped-call]
    module.zero_grad(set_to_none=True)
    return Description(
        flops_per_sample=counter.get_total_flops() / batch,
        parameters=sum(parameter.numel() for parameter in trainable),
        gradient_bytes=sum(parameter.numel() * parameter.element_size() for parameter in trainable),
        activation_bytes_per_sample=sum(kept.values()) / batch,
    )
