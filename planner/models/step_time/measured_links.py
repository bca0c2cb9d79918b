"""What the all-reduces of an instance type's probes say instead of the data sheet: inside a node, and between nodes.

An all-reduce over several nodes first adds up inside each, so what the link inside takes is taken off. All rows of the
type count together, whatever their nodes. What is a hundred times off the data sheet is not believed, and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from planner.inputs import InstanceType, Measurement
from planner.models.bandwidth import EffectiveNetwork, effective_network, moved_bytes
from planner.models.step_time.data_sheet import Links, link_seconds, network_seconds

# However slow the data sheet takes the link inside for: so much of an all-reduce over several nodes is the network.
LEAST_NETWORK_SHARE = 0.1
ABSURD_FACTOR = 100.0


def measured_links(
    rows: Sequence[Measurement], instance_type: InstanceType, gradient_bytes: float
) -> tuple[Links, list[str]]:
    """Of one instance type, with a warning for what is not believed. Unmeasured links stay the data sheet's."""
    inside = _ring(
        (moved_bytes(timed.bytes, row.gpus_per_node), timed.seconds)
        for row in rows
        if row.nodes == 1
        for timed in row.allreduce
    )
    usual = link_seconds(instance_type, gradient_bytes)
    warnings = _absurd(f"inside a {instance_type.name}", inside, usual, gradient_bytes, instance_type.gpu_count)
    inside = None if warnings else inside
    between = _ring(
        (
            moved_bytes(timed.bytes, row.nodes),
            _without_link(timed.seconds, link_seconds(instance_type, timed.bytes, inside)),
        )
        for row in rows
        if row.nodes > 1
        for timed in row.allreduce
    )
    usual = float(network_seconds(instance_type, np.array([2.0]), gradient_bytes)[0])
    absurd = _absurd(f"between nodes of {instance_type.name}", between, usual, gradient_bytes, 2)
    return Links(inside=inside, between=None if absurd else between), [*warnings, *absurd]


def _without_link(seconds: float, link: float) -> float:
    return max(seconds - link, LEAST_NETWORK_SHARE * seconds)


def _ring(points: Iterable[tuple[float, float]]) -> EffectiveNetwork | None:
    columns = np.array(list(points), dtype=float).reshape(-1, 2)
    return effective_network(columns[:, 0], columns[:, 1])


def _absurd(
    where: str, found: EffectiveNetwork | None, usual_seconds: float, gradient_bytes: float, workers: int
) -> list[str]:
    if found is None:
        return []
    seconds = found.allreduce_seconds(gradient_bytes, workers)
    if usual_seconds / ABSURD_FACTOR < seconds < usual_seconds * ABSURD_FACTOR:
        return []
    sizes = f"{seconds:.3g} s for the gradient, the data sheet says {usual_seconds:.3g} s"
    return [f"used without the measured all-reduce {where}: {sizes}"]
