"""`scav.plan.json`, the contract that review, Terraform checks and pipelines read.

Same inputs, same bytes: no clock, host name, path or set order gets in, and numbers keep six digits, so that the
last bits of floating point arithmetic on another processor do not show.
"""

from __future__ import annotations

import json
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from planner.contract import Contract, Interval, Share, WithLaterKeys, first_fault, six_digits
from planner.errors import InputError
from planner.inputs import Network, Objective, Origin, ParallelStrategy, Provenance, Run
from planner.search import Market
from planner.spot import AGE_EDGES_HOURS, AGES


class CheckpointTier(Contract):
    """On-demand nodes without GPUs that take checkpoints into memory."""

    instance_type: str
    node_count: PositiveInt
    hourly_usd: PositiveFloat = Field(description="of all of them; part of the choice's hourly_usd")


class NeededQuota(Contract):
    """What the account must be allowed to run at once."""

    family: str = Field(description="G or P: of all instance types that begin so")
    on_demand: NonNegativeInt
    spot: NonNegativeInt


class Choice(WithLaterKeys):
    """The cluster, as Terraform will build it and the training script will see it."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"strategy"})

    instance_type: str
    region: str
    availability_zone: str = Field(description="zone ID (use1-az4): zone names differ between accounts")
    other_zones: tuple[str, ...] = Field(
        default=(), description="of the same region, cheapest first: a single spot node may stand in any of them"
    )
    node_count: PositiveInt
    gpu: str
    gpus_per_node: PositiveInt
    on_demand_count: NonNegativeInt
    spot_count: NonNegativeInt
    global_batch: PositiveInt
    gpu_batch: PositiveInt = Field(description="samples per GPU and micro-step")
    accumulation_steps: PositiveInt
    strategy: ParallelStrategy | None = Field(
        default=None, description="how the model is spread over the GPUs; left out: the whole of it on each"
    )
    learning_rate_scale: PositiveFloat = Field(description="over the rate tuned at the reference batch")
    learning_rate_rule: Literal["linear", "square root"]
    checkpoint_interval_seconds: NonNegativeFloat
    max_runtime_hours: PositiveFloat = Field(description="the run is stopped then, whatever happens")
    overrides: tuple[str, ...] = Field(description="types with the same GPUs that may stand in for spot nodes")
    efa_interfaces: NonNegativeInt
    network_cards: PositiveInt
    placement_group: bool
    root_volume_gib: PositiveInt
    hourly_usd: PositiveFloat
    checkpoint_tier: CheckpointTier | None = None
    vcpu_quota: NeededQuota | None = Field(default=None, description="null in plans of earlier versions")


class UsdInterval(Interval):
    max: NonNegativeFloat = Field(
        description="all nodes at the on-demand price for max_runtime_hours, and two more to start and to stop"
    )


class Interruptions(Contract):
    mean: NonNegativeFloat = Field(description="losses of spot nodes expected in one run")


Rates = Annotated[tuple[NonNegativeFloat, ...], Field(min_length=AGES, max_length=AGES)]


class SpotMarket(WithLaterKeys):
    """When the spot nodes, which run together or not at all, are lost and when they are back."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"day_log_sd"})

    source: str = Field(description="where the rates come from")
    loss_per_hour: Rates = Field(description=f"while up since {', '.join(f'{e:g}' for e in AGE_EDGES_HOURS)} h")
    return_per_hour: Rates = Field(description="while gone, by the same ages")
    loss_log_sd: NonNegativeFloat = Field(description="what is not known of the rates")
    return_log_sd: NonNegativeFloat
    day_log_sd: NonNegativeFloat = Field(default=0.0, description="how far good and bad days lie apart")
    hours_between_losses: NonNegativeFloat
    availability: Share


class Spot(Contract):
    """What the simulation behind the estimate assumed and found; `scav simulate` repeats it from here."""

    market: SpotMarket
    work_hours: Interval = Field(description="steps alone: no start-up, checkpoints or losses")
    startup_seconds: NonNegativeFloat
    save_seconds: NonNegativeFloat
    restart_seconds: NonNegativeFloat
    uses_notice: bool = Field(description="a save fits into the two-minute notice, so few losses take back work")
    node_on_demand_usd: PositiveFloat = Field(description="per node and hour")
    node_spot_usd: PositiveFloat
    storage_hourly_usd: NonNegativeFloat
    price_age_days: NonNegativeFloat = Field(description="how old the prices are assumed to be when the run starts")
    rework_hours: NonNegativeFloat = Field(description="mean hours of work done again and of restarts")
    waiting_hours: NonNegativeFloat = Field(description="mean hours without spot capacity")
    counts_on_fallback: bool = Field(description="the estimate assumes that scav.policy.json is executed")
    runs: PositiveInt
    seed: NonNegativeInt
    why: str = Field(description="why this base and this share")
    interrupted_share: Share | None = Field(default=None, description="of runs that lose spot nodes at least once")
    on_demand_usd: Interval | None = Field(default=None, description="of the same cluster on demand, in the same runs")
    zone_measured: bool | None = Field(default=None, description="capacity in this zone was recorded, not assumed")


class Breakdown(Contract):
    """The p50 dollars by what they pay for."""

    compute: NonNegativeFloat
    storage: NonNegativeFloat
    network: NonNegativeFloat
    rework: NonNegativeFloat = Field(description="computing again what lost nodes had done, and waiting for new ones")


class AtConfidence(Contract):
    """What is compared and held against the limits, where the job asks for another confidence than 95 %."""

    hours: NonNegativeFloat
    usd: NonNegativeFloat


class Estimate(Contract):
    hours: Interval
    usd: UsdInterval
    samples: Interval
    step_seconds: Interval
    interruptions: Interruptions
    statistical_efficiency: PositiveFloat = Field(description="progress per sample over that at the reference batch")
    parallel_efficiency: Share = Field(description="share of a step that is not waiting for other GPUs")
    breakdown: Breakdown
    at_confidence: AtConfidence | None = None


class Limit(Contract):
    limit: PositiveFloat
    probability: Share = Field(description="of keeping it")


class LimitsKept(Contract):
    confidence: Share
    deadline_hours: Limit | None
    budget_usd: Limit | None


class Feeding(Contract):
    """Preparing samples as fast as the GPUs take them. A step takes the longer of computing and feeding."""

    limits: bool = Field(description="the GPUs wait for data, as likely as not")
    by: str | None = Field(description="what takes longest: processors, loader, storage, or waiting as probes saw it")
    samples_per_second: Interval | None = Field(description="prepared for each GPU; null where nothing is known")
    statement: str


class MemoryParts(Contract):
    """GiB on the fullest GPU at its fullest moment, by formula."""

    weights: NonNegativeFloat
    gathered: NonNegativeFloat
    gradients: NonNegativeFloat
    optimizer: NonNegativeFloat
    activations: NonNegativeFloat
    logits: NonNegativeFloat
    load: NonNegativeFloat


class Memory(Contract):
    """What the choice holds of a GPU's memory."""

    gpu_gib: PositiveFloat
    allocated_gib: Interval
    moment: str = Field(description="of a step, when most is held")
    parts: MemoryParts
    probability: Share = Field(description="of fitting")
    statement: str


class Option(WithLaterKeys):
    """A candidate in one row: on the Pareto front, or an alternative."""

    later_keys: ClassVar[frozenset[str]] = frozenset({"limited_by_feeding", "strategy", "at_confidence"})

    instance_type: str
    node_count: PositiveInt
    gpu: str
    gpus_per_node: PositiveInt
    region: str
    availability_zone: str
    market: Market
    on_demand_count: NonNegativeInt
    global_batch: PositiveInt
    hours: Interval
    usd: Interval
    limited_by_feeding: bool = Field(default=False, description="left out where it is not")
    strategy: ParallelStrategy | None = Field(default=None, description="of jobs with workload.transformer")
    at_confidence: AtConfidence | None = Field(default=None, description="left out where that is the p95")


class Alternative(Option):
    checkpoint_tier: CheckpointTier | None = None
    why_not: str


class DoubtedInput(Contract):
    """The value of the job file that the estimate depends on most, among those that nobody measured."""

    key: str = Field(description="of `workload`")
    value: PositiveFloat = Field(description="of `precision`: its bits")
    origin: Origin
    factor: PositiveFloat = Field(description="nine in ten such values are off by less than this factor")
    hours_factor: PositiveFloat | None = Field(description="on the p50 hours, were it off by that; null: nothing fits")


class Evidence(Contract):
    """What the prediction rests on."""

    probe_count: NonNegativeInt
    probe_usd: NonNegativeFloat
    cross_validated_error: PositiveFloat | None = Field(description="null until there are probes to hold out")
    extrapolated: bool
    statement: str
    doubted_input: DoubtedInput | None = Field(default=None, description="null where none matters")


class LeftOut(Contract):
    """Instance types that took no part, though the job allows them."""

    considered: PositiveInt
    reasons: dict[str, PositiveInt] = Field(description="how many, by the reason")


class Plan(WithLaterKeys):
    later_keys: ClassVar[frozenset[str]] = frozenset({"feeding", "memory", "too_small", "left_out"})

    schema_version: Literal[1] = 1
    scav_version: str
    job: str
    run_id: str
    summary: str = Field(description="the job in one line")
    inputs: Provenance
    objective: Objective
    choice: Choice
    run: Run = Field(description="what the nodes execute, as the job file says")
    network: Network
    estimate: Estimate
    spot: Spot | None = Field(default=None, description="null when all nodes are on demand")
    feeding: Feeding | None = Field(default=None, description="left out where the job file has no workload.input")
    memory: Memory | None = Field(default=None, description="left out where the job file has no workload.transformer")
    too_small: str | None = Field(default=None, description="types whose GPUs cannot hold the job, and why")
    constraints: LimitsKept
    candidate_count: NonNegativeInt
    left_out: LeftOut | None = Field(default=None, description="left out where every type took part")
    compared: Literal["simulation", "closed form"] | None = Field(
        default=None, description="what the hours and dollars of choice and alternatives come from, the same for all"
    )
    reason: str = Field(description="why this one")
    sensitivity: tuple[str, ...] = Field(
        description="what would change the answer: a line per limit, the input that it depends on most, a probe"
    )
    alternatives: tuple[Alternative, ...]
    pareto: tuple[Option, ...] = Field(description="of all candidates, in closed form: losses averaged, not simulated")
    evidence: Evidence


def rounded(plan: Plan) -> Plan:
    """Six digits everywhere: what is shown from memory is then what is shown from the file."""
    return Plan.model_validate(six_digits(plan.model_dump(mode="json")))


def format_plan(plan: Plan) -> str:
    return json.dumps(plan.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def parse_plan(text: str, *, file: str) -> Plan:
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        fault, wrong = first_fault(error, Plan), "not a plan that this version of scav wrote"
        raise InputError(f"{wrong}: {fault.message}", file=file, key=fault.key) from None
