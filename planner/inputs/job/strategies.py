"""How one model is spread over GPUs: what a job's script can do (`workload.strategies`), and one such strategy."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from planner.contract import Contract

Sharding = Literal["ddp", "zero1", "zero2", "fsdp", "hsdp"]
Recompute = Literal["none", "selective", "full"]
Training = Literal["full", "lora", "qlora"]
# fp32: everything in fp32. autocast: fp32 weights that are cast. pure: all of it in half precision. master: half
# weights beside an fp32 copy and fp32 gradients, as Megatron and nanotron keep them.
States = Literal["fp32", "autocast", "pure", "master"]

SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)  # from the one that shards least to the one that shards most
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)  # from the least work to the least memory

_Degree = Annotated[int, Field(ge=1, le=1024)]


class ParallelStrategy(Contract):
    """One strategy: in a plan, in a measurement, and as the JSON of SCAV_STRATEGY."""

    sharding: Sharding = Field(default="ddp", description="of data parallelism: ddp keeps everything whole")
    tensor_parallel: _Degree = Field(default=1, description="GPUs of a node that share every layer")
    pipeline: _Degree = Field(default=1, description="stages of layers")
    recompute: Recompute = Field(default="none", description="activations that the backward pass computes again")


class StrategyOptions(Contract):
    """What the script can do. The search takes nothing else, whatever would be cheaper."""

    sharding: tuple[Sharding, ...] = Field(
        default=("ddp", "fsdp"), min_length=1, max_length=5, description="of weights, gradients and optimizer state"
    )
    tensor_parallel: _Degree = Field(default=1, description="at most so many GPUs of a node share every layer")
    pipeline: _Degree = Field(default=1, description="at most so many stages of layers")
    recompute: tuple[Recompute, ...] = Field(
        default=RECOMPUTES, min_length=1, max_length=3, description="of activations; selective: of attention alone"
    )

    @field_validator("sharding", "recompute")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """In the order of this file, so that the order of the job file changes nothing."""
        order: tuple[str, ...] = SHARDINGS + RECOMPUTES
        return tuple(sorted(set(names), key=order.index))
