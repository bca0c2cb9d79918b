"""DeepVM's machines by time and money of the job, and the rules of thumb that its authors compare it with."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from deepvm_clusters import EVERY_ARCHITECTURE, enumerate_clusters
from deepvm_published import GPU_TYPES, published_limits
from deepvm_rules import cost_first, performance_first
from deepvm_scoring import CheckpointCosts, MeasuredScaling, score

from planner.errors import InputError
from planner.search.deepvm.inputs import Quota
from planner.search.deepvm.policies import recommend
from planner.search.deepvm.published import CPU_TYPES

GPU = {gpu.name: gpu for gpu in GPU_TYPES}
LIMITS = published_limits()
# Seconds per epoch that the authors measured (github.com/lass-lab/DeepVM, results/real_world/fig5_data.xlsx).
MEASURED = MeasuredScaling(
    {
        "g4dn.xlarge": {1: 61.15543938, 8: 26.8979888, 12: 19.95566297, 16: 16.33841324, 20: 14.14573503},
        "g5.xlarge": {1: 31.0092845, 2: 65.60499501, 4: 50.18544173, 8: 30.19660449, 12: 22.53781629},
    }
)


def test_the_published_baselines():
    many, fast = cost_first(GPU_TYPES, LIMITS), performance_first(GPU_TYPES, LIMITS)
    assert (many.gpu.name, many.nodes, many.hourly_usd) == ("g4dn.xlarge", 16, 2.893)
    assert (fast.gpu.name, fast.nodes, fast.hourly_usd) == ("g5.xlarge", 7, 2.8168)


def test_the_rule_of_thumb_takes_one_node_more_of_a_quota():
    tight = replace(LIMITS, quotas={"G": Quota(on_demand_vcpu=32, spot_vcpu=40)})
    assert cost_first([GPU["g4dn.xlarge"]], tight).nodes == 10


def measured_scores():
    return score(enumerate_clusters(GPU_TYPES, CPU_TYPES, LIMITS, EVERY_ARCHITECTURE), MEASURED)


def of(scores, text):
    return next(row for row in map(scores.row, range(len(scores.clusters))) if str(row.cluster) == text)


def test_for_the_same_budget_the_measured_job_is_done_no_later_and_no_dearer():
    scores = measured_scores()
    theirs = of(scores, str(recommend(GPU_TYPES, CPU_TYPES, LIMITS)[0]))
    fastest = scores.best("time", most_seconds=theirs.seconds, most_usd=theirs.usd)
    assert str(fastest.cluster) == "19 spot g4dn.xlarge"
    assert fastest.seconds < 0.94 * theirs.seconds
    assert fastest.usd < 0.98 * theirs.usd
    cheapest = scores.best("cost", most_seconds=theirs.seconds)
    assert cheapest.usd < 0.95 * theirs.usd


def test_operations_per_dollar_miss_that_one_fast_node_is_the_cheapest():
    scores = measured_scores()
    cheapest = scores.best("cost")
    assert str(cheapest.cluster) == "1 spot g5.xlarge"
    assert cheapest.usd == pytest.approx(31.0092845 * 0.3018 / 3600)


def test_nothing_is_said_about_what_was_not_measured():
    seconds = MEASURED(GPU["g5.xlarge"], np.array([1, 8, 13]))
    assert seconds.tolist() == [pytest.approx(31.0092845), pytest.approx(30.19660449), math.inf]
    assert MEASURED(GPU["g3s.xlarge"], np.array([1])).tolist() == [math.inf]
    scores = measured_scores()
    assert scores.best("time", most_usd=1e-6) is None
    assert all(math.isinf(row) for row in scores.seconds[scores.clusters.gpu == 0])


def test_losses_stretch_spot_and_leave_on_demand_alone():
    clusters = enumerate_clusters(GPU_TYPES, CPU_TYPES, LIMITS, EVERY_ARCHITECTURE)
    costs = CheckpointCosts(
        seconds_between_losses=3600.0, save_to_storage_seconds=8.0, save_to_tier_seconds=2.0, restart_seconds=180.0
    )
    plain, lossy = score(clusters, MEASURED), score(clusters, MEASURED, costs)
    known, on_demand = np.isfinite(plain.seconds), clusters.spot_nodes == 0
    stretched = lossy.seconds[known] / plain.seconds[known]
    assert np.all(stretched[on_demand[known]] == 1)
    assert np.all(stretched[~on_demand[known]] > 1.05)
    tiered, untiered = (stretched[(~on_demand & tier)[known]] for tier in (clusters.tiered, ~clusters.tiered))
    assert tiered.max() < untiered.min()


def test_losses_faster_than_a_restart_never_finish():
    clusters = enumerate_clusters(GPU_TYPES, CPU_TYPES, LIMITS, EVERY_ARCHITECTURE)
    costs = CheckpointCosts(
        seconds_between_losses=100.0, save_to_storage_seconds=8.0, save_to_tier_seconds=2.0, restart_seconds=180.0
    )
    assert score(clusters, MEASURED, costs).best("time").cluster.architecture == "on demand"


def test_every_column_is_a_cluster_within_the_budget():
    clusters = enumerate_clusters(GPU_TYPES, CPU_TYPES, LIMITS, EVERY_ARCHITECTURE)
    rows = [clusters.row(index) for index in range(len(clusters))]
    assert [row.hourly_micro_usd for row in rows] == clusters.hourly_micro_usd.tolist()
    assert max(row.hourly_usd for row in rows) <= 3
    assert {row.architecture for row in rows} == set(EVERY_ARCHITECTURE)
    for row, other in itertools.pairwise(rows):
        assert row != other


@pytest.mark.parametrize("points", [{}, {1: 0.0}, {0: 3.0}, {1: math.nan}])
def test_measured_scaling_needs_seconds(points):
    with pytest.raises(InputError, match="scaling needs seconds above 0"):
        MeasuredScaling({"g5.xlarge": points})
