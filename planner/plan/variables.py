"""What Terraform is told of a plan: the values of the workspace's root variables."""

from __future__ import annotations

import math
from typing import Any

from planner.inputs import filled_command
from planner.plan.schema import Plan

POLICY_FILE = "scav.policy.json"
_OLD_FAMILIES = ("p2.", "p3.", "p3dn.", "g3.", "g3s.")  # as in modules/gpu-cluster/defaults.tf


def workspace_variables(plan: Plan) -> dict[str, Any]:
    """What the job leaves open is left out, so that the module's default holds."""
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
            strategy=choice.strategy,
        ),
    }
    if choice.strategy is not None:
        decided["strategy"] = choice.strategy.model_dump()
    open_ones = {
        "vpc_id": plan.network.vpc,
        "subnet_ids": list(plan.network.subnets),
        "security_group_ids": list(plan.network.security_groups),
        "ami_id": run.ami,
        "container_image": run.image,
        "source_folder": "source" if run.source else None,
        "data": run.data_values,
        "root_volume_mibps": run.volume_mibps,
        "policy_file": POLICY_FILE if plan.spot and plan.spot.counts_on_fallback else None,
    }
    return decided | {name: value for name, value in open_ones.items() if value}


def questions_left(plan: Plan) -> list[str]:
    """What the job file must say before this plan can be applied, each with the reason: the module has no default."""
    choice, run, network = plan.choice, plan.run, plan.network
    old = choice.instance_type.startswith(_OLD_FAMILIES)
    missing = {
        "network.vpc and network.subnets: several network interfaces get no public address": (
            max(choice.efa_interfaces, choice.network_cards) > 1 and not (network.vpc and network.subnets)
        ),
        f"run.ami: AWS's deep learning AMI has no driver for {choice.gpu}": old and not run.ami,
        f"run.image: AWS's container has no kernels for {choice.gpu}": old and not run.image,
        "run.source or run.image: the script": not old and not run.image and not run.source,
    }
    return [question for question, asked in missing.items() if asked]
