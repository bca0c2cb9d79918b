"""Which local batch still fits into a GPU's memory."""

from __future__ import annotations

from planner.columns import Flags
from planner.inputs import Gpu, Workload
from planner.models.configurations import Configurations

GIB = 2.0**30
# CUDA context, NCCL and cuDNN work space; then what the caching allocator loses to fragmentation.
# Assumed, not measured: a probe reports the true peak and replaces both.
RESERVED_GIB = 1.5
USABLE_SHARE = 0.92


def fits(configurations: Configurations, workload: Workload) -> Flags:
    """Plain data parallelism: every GPU holds the whole model."""
    activations = configurations.gpu_batch * workload.activation_bytes_per_sample
    return model_bytes(workload) + activations <= _available_bytes(configurations.gpu)


def largest_batch(gpu: Gpu, workload: Workload) -> int:
    """The largest local batch that fits; 0 when not even one sample does."""
    room = _available_bytes(gpu) - model_bytes(workload)
    return max(int(room // workload.activation_bytes_per_sample), 0)


def _available_bytes(gpu: Gpu) -> float:
    return gpu.memory_gib * GIB * USABLE_SHARE - RESERVED_GIB * GIB


def model_bytes(workload: Workload) -> float:
    """Weights and gradients in fp32 as autocast keeps them, a cast copy for the half types, optimizer state."""
    cast_copy = {"fp32": 0.0, "tf32": 0.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}[workload.precision]
    return (4.0 + 4.0 + cast_copy) * workload.parameters + workload.optimizer_state_bytes
