"""What Terraform is told of a plan: the values of the workspace's root variables."""

from __future__ import annotations

import math
from typing import Any

from planner.inputs import filled_command
from planner.plan.schema import Plan


def workspace_variables(plan: Plan) -> dict[str, Any]:
    """What the job leaves open is left out, so that Terraform asks for it."""
    choice, run, budget = plan.choice, plan.run, plan.constraints.budget_usd
    decided = {
        "region": choice.region,
        "run_id": plan.run_id,
        "availability_zone_id": "" if choice.other_zones else choice.availability_zone,  # empty: any of the subnets'
        "instance_type": choice.instance_type,
        "instance_type_overrides": list(choice.overrides),
        "node_count": choice.node_count,
        "gpus_per_node": choice.gpus_per_node,
        "on_demand_count": choice.on_demand_count,
        "efa_interfaces": choice.efa_interfaces,
        "network_cards": choice.network_cards,
        "placement_group": choice.placement_group,
        "root_volume_gib": choice.root_volume_gib,
        "checkpoint_bucket": run.checkpoint_bucket,
        "checkpoint_tier": choice.checkpoint_tier and choice.checkpoint_tier.model_dump(exclude={"hourly_usd"}),
        # Without checkpoints: not before the end.
        "checkpoint_interval_seconds": round(choice.checkpoint_interval_seconds or choice.max_runtime_hours * 3600),
        "global_batch": choice.global_batch,
        "gpu_batch": choice.gpu_batch,
        "accumulation_steps": choice.accumulation_steps,
        "learning_rate_scale": choice.learning_rate_scale,
        "max_runtime_seconds": round(choice.max_runtime_hours * 3600),
        "budget_usd": round(min(plan.estimate.usd.max, budget.limit if budget else math.inf), 2),
        "budget_emails": list(run.budget_emails),
        "container_command": filled_command(
            run.command,
            gpu_batch=choice.gpu_batch,
            accumulation_steps=choice.accumulation_steps,
            global_batch=choice.global_batch,
            lr_scale=choice.learning_rate_scale,
        ),
    }
    return decided | {name: value for name, (value, _) in _open_questions(plan).items() if value}


def questions_left(plan: Plan) -> list[str]:
    """Keys of the job file without which Terraform will ask."""
    return [key for value, key in _open_questions(plan).values() if not value]


def _open_questions(plan: Plan) -> dict[str, tuple[Any, str]]:
    return {
        "vpc_id": (plan.network.vpc, "network.vpc"),
        "subnet_ids": (list(plan.network.subnets), "network.subnets"),
        "ami_id": (plan.run.ami, "run.ami"),
        "container_image": (plan.run.image, "run.image"),
    }
