"""The job file's keys. A key's description here is its documentation, in the schema and on the docs page."""

from __future__ import annotations

import json
import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from planner.contract import Contract, WithLaterKeys, text_form
from planner.inputs.job.data import DataSource, copied_bytes, data_fault
from planner.inputs.job.fields import CountRange, Hours, Range, Usd
from planner.inputs.job.placeholders import placeholder_fault
from planner.inputs.job.workload import Workload

_DASHED = "small letters, digits and dashes, a dash not first, at most"
Name = Annotated[str, text_form(r"^[a-z0-9][a-z0-9-]{0,38}$", f"{_DASHED} 39 of them (my-job)")]
RunId = Annotated[str, text_form(r"^[a-z0-9][a-z0-9-]{0,7}$", f"{_DASHED} 8 of them (run-2)")]
VpcId = Annotated[str, text_form(r"^vpc-[0-9a-f]{8,17}$", "the ID of a VPC (vpc-0123456789abcdef0)")]
SubnetId = Annotated[str, text_form(r"^subnet-[0-9a-f]{8,17}$", "the ID of a subnet (subnet-0123456789abcdef0)")]
SecurityGroupId = Annotated[str, text_form(r"^sg-[0-9a-f]{8,17}$", "the ID of a security group (sg-0123456789abcdef0)")]
AmiId = Annotated[str, text_form(r"^ami-[0-9a-f]{8,17}$", "the ID of an AMI (ami-0123456789abcdef0)")]
Image = Annotated[
    str,
    text_form(
        r"^[a-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$",
        "an image by digest (registry/name@sha256: and 64 hex digits)",
        longest=470,
    ),
]
SourceFolder = Annotated[
    str, text_form(r"^[A-Za-z0-9._-][A-Za-z0-9._/-]*$", "a folder, from the job file's on (. or src)", longest=255)
]
Bucket = Annotated[str, text_form(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "the name of an S3 bucket (my-checkpoints)")]
Email = Annotated[str, text_form(r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "an e-mail address (me@example.org)")]
Objective = Literal["cost", "time", "knee"]
SpotPolicy = Literal["never", "auto", "always"]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]

_LONGEST_RUN_ID = 47  # with the prefix still a valid name of everything that Terraform creates
GP3_MIBPS = 125  # what every gp3 volume gives; more is ordered, up to 750 with the IOPS that it comes with (AWS, 2026)
_LONGEST_COMMAND = 3000  # it reaches the nodes in their user data, which EC2 limits to 16 KiB

_COMMAND = (
    "what torchrun starts, as a list; {gpu_batch}, {accumulation_steps}, {global_batch}, {lr_scale} and, of jobs with "
    "a transformer, {strategy}, {tensor_parallel}, {pipeline} and {recompute} become those of the plan or the probe"
)


def _share(value: object) -> object:
    """`95 %` is 0.95."""
    text = str(value).strip()
    return f"{text.removesuffix('%').strip()}e-2" if text.endswith("%") else value


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
        description="on-demand nodes take over from spot nodes before it is too late, and the plan counts on that",
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


class Network(WithLaterKeys):
    """Where the nodes live; scav never creates a network. Left out: the default VPC, with public addresses."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"security_groups"})

    vpc: VpcId | None = None
    subnets: tuple[SubnetId, ...] = Field(default=(), max_length=100, description="one in each zone that may be used")
    security_groups: tuple[SecurityGroupId, ...] = Field(
        default=(), max_length=4, description="beside the run's own, for what lets in only their members (FSx)"
    )


class Run(WithLaterKeys):
    """What the nodes execute; what is left out is AWS's own (its deep learning AMI and container)."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"source", "data", "volume_mibps"})

    id: RunId = Field(default="1", description="a finished run stays finished; another id starts a new one")
    image: Image | None = Field(
        default=None, description="container image by digest; left out, AWS's deep learning container, with source"
    )
    ami: AmiId | None = Field(default=None, description="machine image; left out, AWS's deep learning AMI")
    source: SourceFolder | None = Field(
        default=None,
        description="folder of the script, from the job file's on: its text files travel with the plan, and nodes "
        "start the command in them, after pip has installed what requirements.txt names",
    )
    command: tuple[Text, ...] = Field(default=(), max_length=1000, description=_COMMAND)
    data: tuple[DataSource, ...] = Field(
        default=(), max_length=10, description="what the job reads, in folders of SCAV_DATA_DIR"
    )
    volume_mibps: int | None = Field(
        default=None,
        ge=GP3_MIBPS,
        le=750,
        description="MiB/s of each node's gp3 volume, at a price; left out, the 125 that come with it",
    )
    checkpoint_bucket: Bucket | None = Field(
        default=None, description="existing S3 bucket; left out, Terraform creates one"
    )
    budget_emails: tuple[Email, ...] = Field(
        default=(), max_length=10, description="who is told when the run's spending nears its maximum"
    )

    @property
    def copied_bytes(self) -> float:
        """Of data that every node copies before it starts."""
        return copied_bytes(self.data)

    @property
    def volume_mibps_or_default(self) -> int:
        return self.volume_mibps or GP3_MIBPS

    @property
    def data_values(self) -> list[dict[str, object]]:
        """As Terraform is told."""
        return [
            {"name": source.name, "uri": source.uri, "gib": math.ceil((source.size or 0.0) / 2**30)}
            for source in self.data
        ]

    @field_validator("data")
    @classmethod
    def _data_can_be_had(cls, data: tuple[DataSource, ...]) -> tuple[DataSource, ...]:
        if fault := data_fault(data):
            raise ValueError(fault)
        return data

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
    def _lustre_lets_nodes_in(self) -> Self:
        if any(source.kind == "lustre" for source in self.run.data) and not self.network.security_groups:
            raise ValueError(
                "run.data has FSx for Lustre, which lets in members of a security group only: name it in "
                "network.security_groups"
            )
        return self

    @model_validator(mode="after")
    def _spot_needs_checkpoints(self) -> Self:
        if self.constraints.spot == "always" and self.workload.checkpoint_bytes == 0:
            raise ValueError(
                "constraints.spot is always, but checkpoint_bytes is 0: without one a lost node loses the run"
            )
        return self
