"""How a model is spread over GPUs and trained, as far as that decides what a GPU holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.errors import InputError
from planner.inputs import Optimizer, Recompute, Sharding, States, Training, TransformerShape, Workload

Load = Literal["sharded", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to train; `gpus` are those of the whole run, of which tensor, pipeline and data parallelism share."""

    sharding: Sharding = "ddp"
    gpus: int = 1
    gpus_per_node: int = 8
    tensor_parallel: int = 1
    pipeline: int = 1
    recompute: Recompute = "none"
    training: Training = "full"
    lora_rank: int = 8
    lora_dropout: bool = True  # keeps a dropped copy and its mask of every adapted input
    double_quantized: bool = True  # of qlora: the scales are quantized, too
    optimizer: Optimizer = "adamw"
    fused_optimizer: bool = False  # else torch steps with foreach, which copies
    states: States = "autocast"
    compiled: bool = False  # torch.compile fuses the norms, and the loss of a chunk
    micro_batch: int = 1
    accumulation: int = 1
    flat_parameters: bool = False  # FSDP's first version, with all weights of a block in one
    load: Load = "sharded"  # full: every process gathers the whole state once, as from one file

    @property
    def data_parallel(self) -> int:
        return self.gpus // (self.tensor_parallel * self.pipeline)

    @property
    def shards(self) -> int:
        """Over how many GPUs one copy of what is sharded is spread."""
        if self.sharding == "ddp":
            return 1
        if self.sharding == "hsdp":
            return max(min(self.gpus_per_node // self.tensor_parallel, self.data_parallel), 1)
        return self.data_parallel

    @property
    def is_gathered(self) -> bool:
        """Weights are sharded and gathered where they are used."""
        return self.sharding in ("fsdp", "hsdp")

    @property
    def frozen(self) -> bool:
        return self.training != "full"


def job_strategy(workload: Workload) -> Strategy:
    """What all strategies of a job share; how it is spread is to be filled in."""
    return Strategy(
        training=workload.training_or_default,
        lora_rank=workload.lora_rank_or_default,
        states=workload.states_or_default,
        optimizer=workload.optimizer,
    )


def check_strategy(shape: TransformerShape, strategy: Strategy) -> None:
    """Raises what cannot be, in one line that names the option."""
    t, p = strategy.tensor_parallel, strategy.pipeline
    for option, value in (
        ("--tensor-parallel", t),
        ("--pipeline", p),
        ("--micro-batch", strategy.micro_batch),
        ("--accumulation", strategy.accumulation),
        ("--lora-rank", strategy.lora_rank),
    ):
        if value < 1:
            raise InputError(f"{value} is not a whole number from 1", key=option)
    if t > strategy.gpus_per_node:
        raise InputError(f"{t} is beyond a node of {strategy.gpus_per_node} GPUs", key="--tensor-parallel")
    if shape.heads % t or shape.key_value_heads_or_default % t:
        heads = f"{shape.heads} heads and {shape.key_value_heads_or_default} key-value heads"
        raise InputError(f"{heads} cannot be divided among {t} GPUs", key="--tensor-parallel")
    if p > shape.layers:
        raise InputError(f"{shape.layers} layers are too few for {p} stages", key="--pipeline")
    if strategy.gpus % (t * p):
        raise InputError(f"{strategy.gpus} GPUs cannot be divided into {t} x {p} (tensor x stages)", key="--pipeline")
    if strategy.lora_rank > shape.width:
        raise InputError(f"{strategy.lora_rank:,} is beyond the width of {shape.width:,}", key="--lora-rank")
