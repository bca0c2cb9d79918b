"""A job's configurations on one instance type, as the columns that the form takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Floats, Ints
from planner.inputs import RECOMPUTES, SHARDINGS, Gpu, InstanceType, Training, TransformerShape, Workload
from planner.models.configurations import Configurations
from planner.models.sharded_memory.architecture import parameters
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.traced import Number
from planner.models.step_time.data_sheet import EFA_NVLINK_EFFICIENCY, NVLINK_EFFICIENCY, PCIE_EFFICIENCY
from planner.models.step_time.data_sheet import allreduce_bytes_per_second as network_bytes
from planner.models.strategies import Strategies

DDP, HSDP = SHARDINGS.index("ddp"), SHARDINGS.index("hsdp")
RECOMPUTED = np.array([{"none": 0.0, "selective": 0.4, "full": 1.0}[name] for name in RECOMPUTES])
# The sheet's peak is for more power than sustained products of a Hopper are given.
SUSTAINED = {"H100": 0.85, "H200": 0.85, "GH200": 0.85}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What of the model is trained: all of it, or adapters of a rank beside frozen weights."""

    training: Training = "full"
    lora_rank: int = 8

    def share(self, shape: TransformerShape) -> float:
        """Of all parameters."""
        if self.training == "full":
            return 1.0
        every = parameters(shape).of(shape.layers, first=True, last=True, alone=True)
        return shape.layers * shape.adapter_parameters(self.lora_rank) / every


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Row i: a strategy on `gpus[i]` GPUs, which need not be whole nodes."""

    gpus: Ints
    gpu_batch: Ints
    accumulation_steps: Ints
    strategies: Strategies

    @classmethod
    def of(cls, configurations: Configurations, strategies: Strategies) -> Placed:
        return cls(
            gpus=configurations.gpus,
            gpu_batch=configurations.gpu_batch,
            accumulation_steps=configurations.accumulation_steps,
            strategies=strategies,
        )


def hardware_of(instance_type: InstanceType, gpu: Gpu, workload: Workload) -> Hardware:
    """From the catalogue. Links that are no NVLink, and networks without EFA, reach a smaller share of their sheet."""
    half = gpu.peak_flops_per_second("bf16") or gpu.peak_flops_per_second("fp16") or 0.0
    half = half or gpu.peak_flops_per_second("fp32") or 0.0
    peak = gpu.peak_flops_per_second(workload.precision)
    if peak is None:
        raise ValueError(f"{gpu.name} has no {workload.precision}")
    nvlink = instance_type.gpu_link.startswith("NVLink")
    sustained = SUSTAINED.get(gpu.model, 1.0)
    below_half = workload.precision != "fp8"  # tf32 and fp32 are slower in every product, attention included
    return Hardware(
        half_flops=(min(peak, half) if below_half else half) * sustained,
        matmul_flops=peak * sustained,
        memory_bytes_per_second=gpu.memory_bandwidth_gb_per_second * 1e9,
        link_bytes_per_second=instance_type.gpu_link_gb_per_second
        * 1e9
        * (1.0 if nvlink else PCIE_EFFICIENCY / NVLINK_EFFICIENCY),
        network_bytes_per_second=network_bytes(instance_type) / EFA_NVLINK_EFFICIENCY / instance_type.gpu_count,
        domain=float(instance_type.gpu_count),
    )


def layout_of(workload: Workload, trained: Trained, placed: Placed, domain: int) -> Layout:
    shape = workload.transformer
    if shape is None:
        raise ValueError("only a job with workload.transformer has strategies")
    counted, frozen = parameters(shape), trained.training != "full"
    return Layout(
        layers=float(shape.layers),
        width=float(shape.width),
        heads=float(shape.heads),
        sequence_length=float(shape.sequence_length),
        vocabulary=float(shape.vocabulary),
        block_parameters=float(counted.block),
        embedding_copies=1.0 if shape.tied_embeddings else 2.0,
        virtual_stages=1.0,
        context=1.0,
        micro_batch=placed.gpu_batch.astype(float),
        accumulation=placed.accumulation_steps.astype(float),
        recomputed=RECOMPUTED[placed.strategies.recompute],
        passes=2.0 if frozen else 3.0,
        trained_share=trained.share(shape),
        dequantised=1.0 if trained.training == "qlora" else 0.0,
        flash=1.0 if shape.attention == "flash" else 0.0,
        attention_power=0.5,
        split_sequence=1.0,
        fused=0.0,
        exposed_tensor=1.0,
        **_spread(placed, domain, _gradient_bytes(workload)),
    )


def _gradient_bytes(workload: Workload) -> float:
    """Per trained parameter."""
    return workload.gradient_bytes_or_default / workload.parameters


def _spread(placed: Placed, domain: int, gradient: float) -> dict[str, Number]:
    strategies = placed.strategies
    kind, tensor = strategies.sharding, strategies.tensor_parallel.astype(float)
    data = np.maximum(placed.gpus // strategies.gpus_per_copy, 1).astype(float)
    inside = np.maximum(np.minimum(domain // strategies.tensor_parallel, data), 1.0)
    # Only whole groups of shards: where they do not divide the copies, everything is one group.
    inside = np.where(data % inside == 0, inside, data)
    shards = np.where(kind == HSDP, inside, data)
    # Per micro-step weights are gathered for the forward and the backward pass, gradients scattered.
    gathered: Floats = np.array([0.0, 0.0, 2.0 + gradient, 4.0 + gradient, 4.0 + gradient])
    synchronised: Floats = np.array([2.0 * gradient, gradient + 2.0, 0.0, 0.0, 0.0])
    return {
        "tensor": tensor,
        "pipeline": strategies.pipeline.astype(float),
        "data": data,
        "shards": shards,
        "gathered_bytes": gathered[kind],
        "synchronised_bytes": synchronised[kind],
        "replica_bytes": np.where(kind == HSDP, 2.0 * gradient, 0.0),
        "update_shards": np.where(kind == DDP, 1.0, shards),
    }
