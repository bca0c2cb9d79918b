"""What can be said in Terraform and what it gets: the attributes of each resource, with their types as Terraform's.

docs/provider.md is made of these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

TYPE_NAME = "scav_plan"
JOB = "job"  # also what messages call that text, which is no file
STATE_VERSION = 0  # older states are read as they are: what they lack is null, what they have too much is left out
STRINGS = ["list", "string"]
# The values of modules/gpu-cluster that a plan decides, of the module's own types. Null: the module's default holds.
VARIABLES: dict[str, Any] = {
    "region": "string",
    "run_id": "string",
    "availability_zone_id": "string",
    "instance_type": "string",
    "instance_type_overrides": STRINGS,
    "node_count": "number",
    "gpus_per_node": "number",
    "on_demand_count": "number",
    "efa_interfaces": "number",
    "network_cards": "number",
    "placement_group": "bool",
    "root_volume_gib": "number",
    "root_volume_mibps": "number",
    "checkpoint_bucket": "string",
    "checkpoint_tier": ["object", {"instance_type": "string", "node_count": "number"}],
    "checkpoint_interval_seconds": "number",
    "global_batch": "number",
    "gpu_batch": "number",
    "accumulation_steps": "number",
    "learning_rate_scale": "number",
    "max_runtime_seconds": "number",
    "budget_usd": "number",
    "budget_emails": STRINGS,
    "container_command": STRINGS,
    "strategy": [
        "object",
        {"sharding": "string", "tensor_parallel": "number", "pipeline": "number", "recompute": "string"},
    ],
    "vpc_id": "string",
    "subnet_ids": STRINGS,
    "security_group_ids": STRINGS,
    "ami_id": "string",
    "container_image": "string",
    "source_folder": "string",
    "data": ["list", ["object", {"name": "string", "uri": "string", "gib": "number"}]],
}


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    name: str
    type: Any
    use: Literal["required", "optional", "computed"]
    description: str


def _rows(use: Literal["required", "optional", "computed"], *rows: tuple[str, Any, str]) -> tuple[AttributeSpec, ...]:
    return tuple(AttributeSpec(name, kind, use, text) for name, kind, text in rows)


_CATALOG = "File of prices. Not named: the newest catalog-DATE.json beside main.tf, else scav's own."
# They replace what the job file says, as the options of `scav plan` do.
OVERRIDES = _rows(
    "optional",
    ("deadline", "string", "Replaces the job's deadline: 24h, 1d12h."),
    ("budget", "string", "Replaces the job's budget: $400."),
    ("confidence", "number", "Replaces the probability with which limits must be kept."),
    ("objective", "string", "Replaces the job's objective: cost, time or knee."),
    ("spot", "string", "Replaces the job's spot policy: never, auto or always."),
    ("on_demand_base", "number", "Exactly so many on-demand nodes beside the spot ones."),
    ("nodes", "string", "Replaces the node range: 1..16."),
    ("regions", STRINGS, "Replaces the job's regions."),
    ("instance_types", STRINGS, "Replaces the job's types: g5.*, A100:80GB:8."),
)
FILES = _rows(
    "optional",
    ("measurements", "string", "File of measurements. Not named: measurements.jsonl beside main.tf, if it is there."),
    ("history", "string", "Folder of other jobs whose measurements say something of this one."),
    ("spot_history", "string", "Folder of recordings of spot capacity. Not named: spot-history beside main.tf."),
    ("catalog", "string", _CATALOG),
)
LIMITS = _rows(
    "optional",
    ("max_usd_p95", "number", "The plan fails where the p95 of its dollars is more."),
    ("max_hours_p95", "number", "The plan fails where the p95 of its hours is more."),
    ("max_usd", "number", "The plan fails where it can cost more, whatever happens."),
)
INPUTS = (
    *_rows("required", (JOB, "string", 'The job file, as text: file("scav.yaml").')),
    *OVERRIDES,
    *FILES,
    *LIMITS,
    *_rows(
        "optional",
        ("keepers", ["map", "string"], "Any values of yours: where one of them changes, the plan is made anew."),
    ),
)
COMPUTED = _rows(
    "computed",
    ("instance_type", "string", "The instance type that was chosen."),
    ("instance_type_order", STRINGS, "It, and those that may stand in for its spot nodes, in order of preference."),
    ("gpu", "string", "What GPUs it has."),
    ("node_count", "number", "How many nodes."),
    ("gpus_per_node", "number", "GPUs of each."),
    ("on_demand_count", "number", "How many of the nodes are on demand."),
    ("spot_count", "number", "How many are spot nodes."),
    ("region", "string", "The AWS region."),
    ("availability_zones", STRINGS, "IDs of the zones (use1-az4), the chosen one first."),
    ("global_batch", "number", "Samples per optimizer step over all GPUs."),
    ("gpu_batch", "number", "Samples per GPU and micro-step."),
    ("accumulation_steps", "number", "Micro-steps per optimizer step."),
    ("strategy", "string", "How the model is spread over the GPUs. Null: the whole of it on each."),
    ("checkpoint_interval_seconds", "number", "How often a checkpoint is written."),
    ("max_runtime_hours", "number", "The run is stopped then, whatever happens."),
    ("hours_p50", "number", "As likely as not the run takes less."),
    ("hours_p95", "number", "19 in 20 such runs take less."),
    ("usd_p50", "number", "As likely as not it costs less."),
    ("usd_p95", "number", "19 in 20 such runs cost less."),
    ("usd_max", "number", "All nodes at the on-demand price until max_runtime_hours, and what starts and stops them."),
    ("deadline_probability", "number", "With which the deadline is kept. Null: the job has none."),
    ("budget_probability", "number", "With which the budget is kept. Null: the job has none."),
    ("evidence", "string", "What the prediction rests on."),
    ("catalog_name", "string", "Whose prices."),
    ("run_id", "string", "Name of the run."),
    ("scav_version", "string", "The version of scav that decided."),
    ("plan_sha256", "string", "Of the scav.plan.json that `scav plan` writes of the same inputs."),
    (
        "variables",
        ["object", VARIABLES],
        "The variables of modules/planned-cluster, and by name of modules/gpu-cluster.",
    ),
)
RESOURCE = (*INPUTS, *COMPUTED)
DATA_PLAN = tuple(row for row in RESOURCE if row.name != "keepers")
OFFER: dict[str, Any] = {
    "instance_type": "string",
    "region": "string",
    "gpu": "string",
    "gpu_count": "number",
    "gpu_memory_gib": "number",
    "vcpu": "number",
    "ram_gib": "number",
    "on_demand_usd": "number",
    "spot_usd": "number",
}
DATA_OFFERS = (
    *_rows(
        "optional",
        ("queries", STRINGS, "Instance types (g5.*) or GPUs (A100:80GB, 24GB..:8). Not named: every machine."),
        ("regions", STRINGS, "AWS regions. Not named: wherever there is an offer."),
        (
            "catalog",
            "string",
            _CATALOG,
        ),
    ),
    *_rows(
        "computed",
        ("catalog_name", "string", "Whose prices."),
        (
            "offers",
            ["list", ["object", OFFER]],
            "A machine in a region: dollars per hour, spot in the cheapest zone.",
        ),
    ),
)
DATA_SOURCES = {TYPE_NAME: DATA_PLAN, "scav_offers": DATA_OFFERS}
