"""The job file's keys. A key's description here is its documentation, in the schema and on the docs page."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from planner.contract import Contract, text_form
from planner.inputs.catalog.tables import Precision
from planner.inputs.job.fields import Bytes, BytesOrZero, Count, CountRange, Flop, Hours, Range, Samples, Usd
from planner.inputs.job.placeholders import placeholder_fault

_DASHED = "small letters, digits and dashes, a dash not first, at most"
Name = Annotated[str, text_form(r"^[a-z0-9][a-z0-9-]{0,38}$", f"{_DASHED} 39 of them (my-job)")]
RunId = Annotated[str, text_form(r"^[a-z0-9][a-z0-9-]{0,7}$", f"{_DASHED} 8 of them (run-2)")]
VpcId = Annotated[str, text_form(r"^vpc-[0-9a-f]{8,17}$", "the ID of a VPC (vpc-0123456789abcdef0)")]
SubnetId = Annotated[str, text_form(r"^subnet-[0-9a-f]{8,17}$", "the ID of a subnet (subnet-0123456789abcdef0)")]
AmiId = Annotated[str, text_form(r"^ami-[0-9a-f]{8,17}$", "the ID of an AMI (ami-0123456789abcdef0)")]
Image = Annotated[
    str,
    text_form(
        r"^[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$",
        "an image by digest (registry/name@sha256: and 64 hex digits)",
        longest=470,
    ),
]
Bucket = Annotated[str, text_form(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "the name of an S3 bucket (my-checkpoints)")]
Email = Annotated[str, text_form(r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "an e-mail address (me@example.org)")]
Optimizer = Literal["sgd", "momentum", "lion", "adam", "adamw"]
Objective = Literal["cost", "time", "knee"]
SpotPolicy = Literal["never", "auto", "always"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]

LARGEST_BATCH = 2**24

_LONGEST_RUN_ID = 47  # with the prefix still a valid name of everything that Terraform creates
_LONGEST_COMMAND = 3000  # it reaches the nodes in their user data, which EC2 limits to 16 KiB

_COMMAND = (
    "what torchrun starts, as a list; {gpu_batch}, {accumulation_steps}, {global_batch} and {lr_scale} become the "
    "numbers of the plan or the probe"
)

# What an optimizer keeps per parameter beside weight and gradient, in bytes (fp32 state).
OPTIMIZER_STATE_BYTES: dict[Optimizer, int] = {"sgd": 0, "momentum": 4, "lion": 4, "adam": 8, "adamw": 8}


def _share(value: object) -> object:
    """`95 %` is 0.95."""
    text = str(value).strip()
    return f"{text.removesuffix('%').strip()}e-2" if text.endswith("%") else value


class TrainingAmount(Contract):
    """How much training was, or is, enough."""

    samples: Samples | None = Field(default=None, description="samples processed until the target metric is reached")
    epochs: Annotated[float, Field(ge=1e-6, le=1e9)] | None = Field(
        default=None, description="the same as passes over the data set; give one of the two"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.samples is None) == (self.epochs is None):
            raise ValueError("give either samples or epochs")
        return self

    def samples_needed(self, dataset_samples: int) -> float:
        return self.samples if self.samples is not None else (self.epochs or 0.0) * dataset_samples


class Target(TrainingAmount):
    """When the job is done, said for one batch size."""

    reference_batch: Count = Field(
        le=LARGEST_BATCH, description="the global batch size at which that many samples are needed"
    )


class ConvergenceRun(TrainingAmount):
    """One training run that reached the target."""

    batch: Count = Field(le=LARGEST_BATCH, description="its global batch size")


class Convergence(Contract):
    """What is known of how the samples to the target grow with the batch; leave out what is not."""

    runs: tuple[ConvergenceRun, ...] = Field(
        default=(), max_length=1000, description="runs that reached the target at other batch sizes"
    )
    noise_scale: Samples | None = Field(
        default=None, description="gradient noise scale in samples, as a noise probe reports it"
    )


class Workload(Contract):
    """What one training step costs in work, memory and traffic."""

    dataset_samples: Count = Field(description="samples in one epoch")
    flops_per_sample: Flop = Field(description="forward and backward pass of one sample")
    parameters: Count = Field(description="trainable parameters")
    gradient_bytes: Bytes | None = Field(
        default=None,
        description="all-reduced per step; default: as measured, else 4 bytes per parameter (DDP under autocast)",
    )
    activation_bytes_per_sample: Bytes = Field(description="kept between forward and backward pass")
    checkpoint_bytes: BytesOrZero | None = Field(
        default=None,
        description="default: as measured, else weights and optimizer state; 0: the job writes none, so no spot",
    )
    global_batch: Range = Field(description="range of global batch sizes that may be used")
    precision: Precision = Field(default="bf16", description="of the matrix multiplications")
    optimizer: Optimizer = Field(default="adamw", description="decides how much memory its state takes")
    target: Target
    convergence: Convergence = Convergence()

    @field_validator("global_batch")
    @classmethod
    def _realistic_batch(cls, batch: CountRange) -> CountRange:
        if batch.high > LARGEST_BATCH:
            raise ValueError(f"a global batch of {batch.high:,} is beyond what scav searches ({LARGEST_BATCH:,})")
        return batch

    @property
    def gradient_bytes_or_default(self) -> float:
        return self.gradient_bytes or 4.0 * self.parameters

    @property
    def optimizer_state_bytes(self) -> float:
        return float(OPTIMIZER_STATE_BYTES[self.optimizer] * self.parameters)

    @property
    def checkpoint_bytes_or_default(self) -> float:
        if self.checkpoint_bytes is None:
            return 4.0 * self.parameters + self.optimizer_state_bytes
        return self.checkpoint_bytes

    @property
    def target_samples(self) -> float:
        return self.target.samples_needed(self.dataset_samples)


class VcpuQuota(Contract):
    """vCPUs that AWS lets this account run at once, all G types together and all P types together."""

    g: Annotated[int, Field(ge=0)] | None = None
    p: Annotated[int, Field(ge=0)] | None = None


class Quotas(Contract):
    """Service quotas of the account; what is left out is taken as unlimited."""

    on_demand: VcpuQuota = VcpuQuota()
    spot: VcpuQuota = VcpuQuota()


class Constraints(Contract):
    """What the plan must keep to."""

    deadline_hours: Hours | None = Field(default=None, alias="deadline", description="wall time of the training run")
    budget_usd: Usd | None = Field(default=None, alias="budget", description="dollars for the training run")
    max_runtime_hours: Hours | None = Field(
        default=None,
        alias="max_runtime",
        description="when the run is stopped whatever happens; default 1.25 times the p95 hours",
    )
    confidence: Annotated[float, BeforeValidator(_share), Field(ge=0.5, le=0.999)] = Field(
        default=0.95, description="each limit must be kept with at least this probability"
    )
    regions: tuple[Text, ...] = Field(
        default=("us-east-1",), min_length=1, max_length=100, description="AWS regions, or [all]"
    )
    instance_types: tuple[Text, ...] = Field(
        default=("*",),
        min_length=1,
        max_length=100,
        description="type globs (g5.*) and GPU queries (A100:80GB:1..8)",
    )
    nodes: Range = Field(default=CountRange(1, 16), description="how many machines")
    spot: SpotPolicy = Field(default="auto", description="auto: where it is cheaper within the limits")
    on_demand_base: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="on-demand nodes beside spot ones; default: one, more where they pay"
    )
    on_demand_fallback: bool = Field(
        default=False,
        description="count on somebody executing scav.policy.json, which replaces spot nodes before it is too late",
    )
    quotas: Quotas = Quotas()

    @field_validator("nodes")
    @classmethod
    def _realistic_nodes(cls, nodes: CountRange) -> CountRange:
        if nodes.high > 1024:
            raise ValueError(f"{nodes.high:,} nodes are beyond what scav searches (1,024)")
        return nodes

    @model_validator(mode="after")
    def _spot_options_fit(self) -> Self:
        if self.on_demand_fallback and self.deadline_hours is None:
            raise ValueError("on_demand_fallback keeps a deadline, and there is none")
        if self.on_demand_base is not None and self.spot != "never" and self.on_demand_base >= self.nodes.high:
            raise ValueError(
                f"an on_demand_base of {self.on_demand_base} leaves no spot node among at most {self.nodes.high}; "
                "set spot to never, or allow more nodes"
            )
        return self


class Network(Contract):
    """Where the nodes live; scav never creates a network."""

    vpc: VpcId | None = None
    subnets: tuple[SubnetId, ...] = Field(default=(), max_length=100, description="one in each zone that may be used")


class Run(Contract):
    """What the nodes execute. Terraform asks for image and AMI when they are left out."""

    id: RunId = Field(default="1", description="a finished run stays finished; another id starts a new one")
    image: Image | None = Field(default=None, description="container image by digest")
    ami: AmiId | None = None
    command: tuple[Text, ...] = Field(default=(), max_length=1000, description=_COMMAND)
    checkpoint_bucket: Bucket | None = Field(
        default=None, description="existing S3 bucket; left out, Terraform creates one"
    )
    budget_emails: tuple[Email, ...] = Field(
        default=(), max_length=10, description="who is told when the run's spending nears its maximum"
    )

    @field_validator("command")
    @classmethod
    def _knows_its_placeholders(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if fault := placeholder_fault(command):
            raise ValueError(fault)
        return command

    @field_validator("command")
    @classmethod
    def _fits_user_data(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in word for word in command):
            raise ValueError("an argument cannot hold a NUL character")
        if len(json.dumps(command, ensure_ascii=False)) > _LONGEST_COMMAND:
            raise ValueError(
                f"longer than {_LONGEST_COMMAND:,} characters; put long arguments into a file in the image"
            )
        return command


class Job(Contract):
    """A training job and the limits under which it may be run."""

    name: Name = Field(description="lower-case letters, digits and hyphens; names what is created")
    workload: Workload
    constraints: Constraints = Constraints()
    objective: Objective | None = Field(
        default=None, description="default: time when only a budget is given, else cost"
    )
    network: Network = Network()
    run: Run = Run()

    @property
    def objective_or_default(self) -> Objective:
        only_budget = self.constraints.budget_usd is not None and self.constraints.deadline_hours is None
        return self.objective or ("time" if only_budget else "cost")

    @property
    def run_id(self) -> str:
        return f"{self.name}-{self.run.id}"

    @model_validator(mode="after")
    def _run_id_fits(self) -> Self:
        if len(self.run_id) > _LONGEST_RUN_ID:
            raise ValueError(f"name and run.id together are longer than {_LONGEST_RUN_ID - 1} characters")
        return self

    @model_validator(mode="after")
    def _spot_needs_checkpoints(self) -> Self:
        if self.constraints.spot == "always" and self.workload.checkpoint_bytes == 0:
            raise ValueError(
                "constraints.spot is always, but checkpoint_bytes is 0: without one a lost node loses the run"
            )
        return self
