"""`workload`: what one training step costs in work, memory and traffic, as flat numbers or as a transformer's shape."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from planner.contract import Contract, WithLaterKeys
from planner.inputs.catalog.tables import Precision
from planner.inputs.job.fields import LARGEST_BATCH, Bytes, BytesOrZero, Count, CountRange, Flop, Range, Seconds
from planner.inputs.job.strategies import States, StrategyOptions, Training
from planner.inputs.job.target import Convergence, Target, TrainingAmount
from planner.inputs.job.transformer import TransformerShape

Optimizer = Literal["sgd", "momentum", "lion", "adam", "adamw"]
InputKind = Literal["jpeg", "tokens", "tensors", "other"]
InputSource = Literal["s3", "fsx", "volume"]
Origin = Literal["measured", "derived", "given"]

_BY_FORMULA = "of a transformer by formula"
LORA_RANK = 8  # the default of peft and of litgpt

# What an optimizer keeps per parameter beside weight and gradient, in bytes (fp32 state).
OPTIMIZER_STATE_BYTES: dict[Optimizer, int] = {"sgd": 0, "momentum": 4, "lion": 4, "adam": 8, "adamw": 8}


class InputPipeline(Contract):
    """What it takes to have a sample ready for the GPU; `input: jpeg` is short for `input: {kind: jpeg}`."""

    kind: InputKind = Field(
        description="jpeg is decoded, which takes processors; tokens and tensors are only read; other: nothing is "
        "assumed, so feeding is in the price only where the next keys or measurements say what it takes"
    )
    cpu_seconds_per_sample: Seconds | None = Field(
        default=None,
        description="of one processor, to read, decode and transform a sample; default: as measured, else by kind",
    )
    bytes_per_sample: Bytes | None = Field(
        default=None, description="as stored; default: 115 kB for jpeg (the mean of ImageNet), else not counted"
    )
    source: InputSource | None = Field(
        default=None, description="where the samples are read from; default: its throughput is not counted"
    )


def _kind_alone(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


_OrKind = BeforeValidator(_kind_alone, json_schema_input_type=InputPipeline | InputKind | None)


class Origins(Contract):
    """Where a value comes from: measured (`scav inspect`), derived by a formula, or given by a person."""

    dataset_samples: Origin = "given"
    flops_per_sample: Origin = "given"
    parameters: Origin = "given"
    gradient_bytes: Origin = "given"
    activation_bytes_per_sample: Origin = "given"
    checkpoint_bytes: Origin = "given"
    global_batch: Origin = "given"
    precision: Origin = "given"
    optimizer: Origin = "given"
    input: Origin = "given"


class Workload(WithLaterKeys):
    """What one training step costs in work, memory and traffic."""

    # Plans of jobs without them stay up to date.
    later_keys: ClassVar[frozenset[str]] = frozenset(
        {"input", "origins", "transformer", "training", "lora_rank", "states", "strategies", "memory_factor"}
    )

    transformer: TransformerShape | None = Field(
        default=None, description="the shape of a language model, from which flops, parameters and activations follow"
    )
    training: Training | None = Field(
        default=None,
        description="of a transformer: all weights, or adapters beside frozen ones; it changes what is trained, so the "
        "search never chooses it; default: full",
    )
    lora_rank: Annotated[int, Field(ge=1, le=10**5)] | None = Field(
        default=None, description="of the adapters on queries and values; default: 8"
    )
    states: States | None = Field(
        default=None,
        description="precision of a transformer's weights and optimizer state: fp32 weights that are cast (autocast), "
        "all in half precision (pure), half weights beside fp32 copies (master); default: by precision",
    )
    strategies: StrategyOptions | None = Field(
        default=None, description="what the script of a transformer can do; default: ddp and fsdp, recomputation"
    )
    memory_factor: Annotated[float, Field(ge=0.1, le=10)] | None = Field(
        default=None,
        description="what a transformer's script holds of a GPU, over what the formulas say: `scav memory --trace` "
        "prints it; default: as measured, else as published trainings do",
    )
    dataset_samples: Count = Field(description="samples in one epoch")
    flops_per_sample: Flop = Field(
        default=None, validate_default=True, description=f"forward and backward pass of one sample; {_BY_FORMULA}"
    )
    parameters: Count = Field(default=None, validate_default=True, description=f"trainable parameters; {_BY_FORMULA}")
    gradient_bytes: Bytes | None = Field(
        default=None,
        description="all-reduced per step; default: as measured, else 4 bytes per parameter (DDP under autocast)",
    )
    activation_bytes_per_sample: Bytes = Field(
        default=None, validate_default=True, description=f"kept between forward and backward pass; {_BY_FORMULA}"
    )
    checkpoint_bytes: BytesOrZero | None = Field(
        default=None,
        description="default: as measured, else weights and optimizer state; 0: the job writes none, so no spot",
    )
    global_batch: Range = Field(description="range of global batch sizes that may be used")
    precision: Precision = Field(default="bf16", description="of the matrix multiplications")
    optimizer: Optimizer = Field(default="adamw", description="decides how much memory its state takes")
    target: Target
    convergence: Convergence = Convergence()
    input: Annotated[InputPipeline | None, _OrKind] = Field(
        default=None, description="what feeding the GPUs takes; left out, plans take them as fed at any speed"
    )
    origins: Origins = Origins()

    @field_validator("flops_per_sample", "parameters", "activation_bytes_per_sample", mode="before")
    @classmethod
    def _by_formula(cls, value: object, known: ValidationInfo) -> object:
        """Of a transformer, where nothing is said."""
        if value or isinstance(value, str):
            return value
        if "transformer" not in known.data:
            return 1  # its shape is refused: nothing else is wrong here
        shape: TransformerShape | None = known.data["transformer"]
        if shape is None:
            raise PydanticCustomError("missing", "this key is required")
        adapters = known.data.get("training") in ("lora", "qlora")
        if adapters and known.field_name == "parameters":
            return shape.layers * shape.adapter_parameters(known.data.get("lora_rank") or LORA_RANK)
        return getattr(shape.counted, known.field_name or "")

    @field_validator("global_batch")
    @classmethod
    def _realistic_batch(cls, batch: CountRange) -> CountRange:
        if batch.high > LARGEST_BATCH:
            raise ValueError(f"a global batch of {batch.high:,} is beyond what scav searches ({LARGEST_BATCH:,})")
        return batch

    @model_validator(mode="after")
    def _origins_of_what_is_there(self) -> Self:
        for key, origin in self.origins:
            if origin != "given" and getattr(self, key) is None:
                raise ValueError(f"origins says that {key} is {origin}, and there is no {key}")
        return self

    @model_validator(mode="after")
    def _of_transformers_alone(self) -> Self:
        shape = self.transformer
        if shape is None:
            for key in ("training", "lora_rank", "states", "strategies", "memory_factor"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} needs workload.transformer, the shape of the model")
            amounts: tuple[TrainingAmount, ...] = (self.target, *self.convergence.runs)
            if any(amount.tokens is not None for amount in amounts):
                raise ValueError("tokens need workload.transformer, which says how many a sample has")
            return self
        if fault := _strategy_fault(shape, self):
            raise ValueError(fault)
        return self

    @property
    def training_or_default(self) -> Training:
        return self.training or "full"

    @property
    def lora_rank_or_default(self) -> int:
        return self.lora_rank or LORA_RANK

    @property
    def states_or_default(self) -> States:
        return self.states or ("fp32" if self.precision in ("fp32", "tf32") else "autocast")

    @property
    def strategies_or_default(self) -> StrategyOptions:
        return self.strategies or StrategyOptions()

    @property
    def frozen_parameters(self) -> int:
        """Beside the trainable ones: of the model that adapters are trained for."""
        frozen = self.transformer is not None and self.training_or_default != "full"
        return self.transformer.counted.parameters if frozen and self.transformer else 0

    @property
    def gradient_bytes_or_default(self) -> float:
        return self.gradient_bytes or 4.0 * self.parameters

    @property
    def optimizer_state_bytes(self) -> float:
        return float(OPTIMIZER_STATE_BYTES[self.optimizer] * self.parameters)

    @property
    def checkpoint_bytes_or_default(self) -> float:
        if self.checkpoint_bytes is None:
            half = 0.5 if self.states == "pure" else 1.0
            return half * (4.0 * self.parameters + self.optimizer_state_bytes)
        return self.checkpoint_bytes

    @property
    def target_samples(self) -> float:
        return self.samples_of(self.target)

    def samples_of(self, amount: TrainingAmount) -> float:
        return amount.samples_needed(self.dataset_samples, self.transformer.sequence_length if self.transformer else 1)


def _strategy_fault(shape: TransformerShape, workload: Workload) -> str | None:
    """What the script is said to do and no shape allows, in one line."""
    options, rank = workload.strategies_or_default, workload.lora_rank
    t, heads, keys = options.tensor_parallel, shape.heads, shape.key_value_heads_or_default
    if heads % t or keys % t:
        return f"strategies.tensor_parallel: {heads} heads and {keys} key-value heads cannot be divided among {t} GPUs"
    if options.pipeline > shape.layers:
        return f"strategies.pipeline: {shape.layers} layers are too few for {options.pipeline} stages"
    if rank is not None and workload.training_or_default == "full":
        return "lora_rank is of training: lora or qlora, and training is full"
    if rank is not None and rank > shape.width:
        return f"lora_rank: {rank:,} is beyond the width of {shape.width:,}"
    return None
