"""The commands on recorded jobs: they probe whole nodes within their limit, and choose what is known to be good."""

from __future__ import annotations

import math

import numpy as np
import pytest
from regret_commands import Commands, whole_nodes
from regret_data import Problem
from step_time_data import Group


def recorded(cluster: str, gpus: int, speed: float) -> Group:
    """One to eight whole nodes and a single GPU; a step is launch, samples and, on several nodes, a network."""
    rows = [(n, g, m) for n in (1, 2, 4, 8) for g in (1, gpus) for m in (16, 32, 64, 128) if n == 1 or g == gpus]
    nodes, each, batch = np.array(rows).T
    seconds = (0.02 + batch / speed) + 0.05 * (nodes > 1)
    return Group(
        app="toy",
        cluster=cluster,
        placement=np.array([str(g) * n for n, g, _ in rows]),
        nodes=nodes,
        workers=nodes * each,
        most_per_node=each,
        gpu_batch=batch,
        step_seconds=seconds,
        sync_seconds=0.05 * (nodes > 1),
    )


def problem() -> Problem:
    groups = (recorded("aws", 4, 200.0), recorded("dgx-ext", 8, 900.0))
    batch = np.concatenate([group.workers * group.gpu_batch for group in groups])
    samples = 1e8 * (1 + batch / 4000)
    runs = tuple((float(size), 1e8 * (1 + size / 4000)) for size in (16, 256, 8192))
    return Problem(app="toy", groups=groups, iterations=samples / batch, runs=runs)


WHOLE = whole_nodes(problem())
COMMANDS = Commands(WHOLE, scale=1.0)
PROBED = COMMANDS.with_probes(math.inf)


def test_only_whole_nodes_can_be_chosen():
    assert len(WHOLE.iterations) == len(problem().iterations) - 8
    assert set((WHOLE.column("workers") / WHOLE.column("nodes")).tolist()) == {4.0, 8.0}


def test_the_plan_of_the_command_is_measured():
    nodes = WHOLE.column("nodes")[PROBED.measured]
    assert set(nodes.tolist()) == {1, 2, 4}
    assert set(WHOLE.node_type[PROBED.measured].tolist()) == {0, 1}
    assert len(set(PROBED.measured)) == len(PROBED.measured)
    rows = PROBED.survey.models.step_time.rows_
    assert sum(len(measured) for measured in rows.values()) == len(PROBED.measured)


def test_a_limit_leaves_the_cheapest_clusters():
    few = COMMANDS.with_probes(25.0)
    assert 0 < few.probe_usd <= 25.0 < PROBED.probe_usd
    assert set(few.measured) < set(PROBED.measured)
    assert COMMANDS.with_probes(1.0).measured == COMMANDS.without_probes().measured == []


@pytest.mark.parametrize("objective", ["cost", "time"])
def test_probes_lead_near_the_best(objective):
    truth = WHOLE.truth(objective)
    assert truth[COMMANDS.choose(PROBED, objective).chosen] < 1.15 * truth.min()


def test_probes_make_predictions_better():
    assert COMMANDS.score(PROBED).mape < 0.5 * COMMANDS.score(COMMANDS.without_probes()).mape
