"""What a plan says of how its model is spread over GPUs, for those jobs that have a shape."""

from __future__ import annotations

from planner.plan.schema import Choice, Plan
from planner.plan.strategy_words import chosen_words


def strategy_of(choice: Choice) -> str:
    """Empty where the whole model is on every GPU."""
    if choice.strategy is None:
        return ""
    return chosen_words(
        choice.strategy,
        nodes=choice.node_count,
        gpus_per_node=choice.gpus_per_node,
        gpu_batch=choice.gpu_batch,
        accumulation_steps=choice.accumulation_steps,
    )


def strategy_entries(plan: Plan) -> list[tuple[str, str]]:
    """Labels and sentences."""
    said = (
        ("Strategy", strategy_of(plan.choice)),
        ("Memory", plan.memory.statement if plan.memory else ""),
        ("No room", plan.too_small or ""),
    )
    return [(label, words) for label, words in said if words]
