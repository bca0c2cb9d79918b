"""DeepVM: the published plan to the cent, HiGHS against plain loops, and the score by time and money."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError, NoFeasiblePlan
from planner.search.deepvm.clusters import enumerate_clusters, ranked
from planner.search.deepvm.inputs import EVERY_ARCHITECTURE, Cluster, CpuType, GpuType, Limits, Quota, saturation_nodes
from planner.search.deepvm.policies import cost_first, performance_first, recommend
from planner.search.deepvm.program import solve
from planner.search.deepvm.published import CPU_TYPES, GPU_TYPES, published_limits
from planner.search.deepvm.scaling import Scaling, fit_scaling
from planner.search.deepvm.scoring import CheckpointCosts, MeasuredScaling, score

GPU = {gpu.name: gpu for gpu in GPU_TYPES}
CPU = {cpu.name: cpu for cpu in CPU_TYPES}
LIMITS = published_limits()
# Seconds per epoch that the authors measured (github.com/lass-lab/DeepVM, results/real_world/fig5_data.xlsx).
MEASURED = MeasuredScaling(
    {
        "g4dn.xlarge": {1: 61.15543938, 8: 26.8979888, 12: 19.95566297, 16: 16.33841324, 20: 14.14573503},
        "g5.xlarge": {1: 31.0092845, 2: 65.60499501, 4: 50.18544173, 8: 30.19660449, 12: 22.53781629},
    }
)


def described(clusters: list[Cluster]) -> list[tuple[str, float]]:
    return [(str(cluster), cluster.hourly_usd) for cluster in clusters]


# The published case


def test_the_published_plan_and_its_runners_up():
    assert described(recommend(GPU_TYPES, CPU_TYPES, LIMITS)) == [
        ("17 spot g4dn.xlarge + 1 on-demand c5.xlarge", 2.8526),
        ("17 spot g4dn.xlarge + 1 on-demand m6i.xlarge", 2.8746),
        ("17 spot g4dn.xlarge + 1 on-demand c5n.xlarge", 2.8986),
    ]


def test_the_published_baselines():
    many, fast = cost_first(GPU_TYPES, LIMITS), performance_first(GPU_TYPES, LIMITS)
    assert (many.gpu.name, many.nodes, many.hourly_usd) == ("g4dn.xlarge", 16, 2.893)
    assert (fast.gpu.name, fast.nodes, fast.hourly_usd) == ("g5.xlarge", 7, 2.8168)


def test_tiering_beats_a_single_anchor_for_the_published_budget():
    anchored = recommend(GPU_TYPES, CPU_TYPES, LIMITS, 1, ("single anchor",))[0]
    assert (anchored.gpu.name, anchored.nodes, anchored.on_demand_nodes) == ("g4dn.xlarge", 16, 1)
    assert anchored.value < recommend(GPU_TYPES, CPU_TYPES, LIMITS, 1, ("tiering",))[0].value


def test_enumeration_ranks_the_published_case_alike():
    assert solve(GPU_TYPES, CPU_TYPES, LIMITS, 12) == ranked(enumerate_clusters(GPU_TYPES, CPU_TYPES, LIMITS), 12)


@pytest.mark.parametrize(
    ("name", "nodes", "speedup"),
    [
        ("g3s.xlarge", 1, 0.3365609531),
        ("g3s.xlarge", 32, 12.47325064),
        ("g4dn.xlarge", 12, 2.90759712),
        ("g4dn.xlarge", 32, 5.733678002),
        ("g5.xlarge", 20, 2.474051854),
        ("g5.xlarge", 32, 3.645474958),
    ],
)
def test_the_discounted_tangent_is_the_speedup_that_the_authors_plotted(name, nodes, speedup):
    scaling = GPU[name].scaling
    found = scaling.tangent(np.array([nodes])) * scaling.factor(np.array([nodes]))
    assert found[0] == pytest.approx(speedup, rel=1e-6)


def test_flopp_is_operations_per_dollar_of_spot():
    assert GPU["g4dn.xlarge"].flopp == pytest.approx(377 / 0.1578 * 3600)


# HiGHS against loops


def brute_force(gpus, cpus, limits) -> list[tuple[float, int]]:
    """The paper's loops with its inequalities; Z and millionths of a dollar of every (v, n, w), best first."""
    budget = round(limits.hourly_budget_usd * 1e6)
    found: dict[tuple, tuple[float, int]] = {}

    def consider(key, gpu, nodes, price):
        if price <= budget and (key not in found or price < found[key][1]):
            found[key] = (objective(gpu, nodes), price)

    for gpu in gpus:
        spot, on_demand = round(gpu.spot_usd * 1e6), round(gpu.on_demand_usd * 1e6)
        quota = limits.quotas[gpu.quota_class]
        for nodes in range(1, quota.spot_vcpu // gpu.vcpu):
            if nodes >= 2 and gpu.vcpu <= quota.on_demand_vcpu:
                consider((gpu.name, nodes), gpu, nodes, spot * (nodes - 1) + on_demand)
            for cpu in cpus:
                for memory_nodes in range(1, limits.quotas[cpu.quota_class].on_demand_vcpu // cpu.vcpu):
                    enough_memory = cpu.memory_gib >= limits.checkpoint_gib * limits.buffered_checkpoints
                    if enough_memory and nodes / memory_nodes < saturation_nodes(gpu, cpu):
                        price = spot * nodes + round(cpu.on_demand_usd * 1e6) * memory_nodes
                        consider((gpu.name, nodes, cpu.name), gpu, nodes, price)
    return sorted(found.values(), key=lambda row: (-row[0], row[1]))


def objective(gpu, nodes) -> float:
    factor = 1.0
    if gpu.scaling is not None and nodes > gpu.scaling.inflection_nodes:
        a, b, c = gpu.scaling.steepness, gpu.scaling.inflection_nodes, gpu.scaling.ceiling
        factor = c / (1 + math.exp(-a * (nodes - b))) / (c * a / 4 * (nodes - b) + c / 2)
    return float(f"{gpu.flops / gpu.spot_usd * 3600 * nodes * factor:.10g}")


def random_instance(seed: int) -> tuple[list[GpuType], list[CpuType], Limits]:
    """On a coarse grid of prices and flops, so that ties are common and budgets are met exactly."""
    draw = random.Random(seed)  # noqa: S311
    gpus = [
        GpuType(
            name=f"gpu{i}",
            on_demand_usd=draw.randint(4, 20) / 10,
            spot_usd=draw.randint(1, 8) / 10,
            vcpu=draw.choice((4, 8)),
            bandwidth_gbps=draw.choice((0.2, 0.3, 1.7, 10.0, 25.0)),
            flops=100.0 * draw.randint(1, 8),
            scaling=draw.choice(
                (None, Scaling(steepness=draw.uniform(0.1, 2), inflection_nodes=draw.uniform(-1, 9), ceiling=4.0))
            ),
        )
        for i in range(draw.randint(1, 3))
    ]
    cpus = [
        CpuType(
            name=f"cpu{i}",
            on_demand_usd=draw.randint(1, 6) / 10,
            vcpu=draw.choice((2, 4)),
            memory_gib=draw.choice((2.0, 4.0, 8.0)),
            bandwidth_gbps=draw.choice((0.2, 0.3, 1.7, 10.0)),
        )
        for i in range(draw.randint(0, 3))
    ]
    limits = Limits(
        hourly_budget_usd=draw.randint(2, 60) / 10,
        checkpoint_gib=draw.choice((1.0, 4.0)),
        buffered_checkpoints=draw.choice((0.5, 1.0, 2.0)),
        quotas={
            "G": Quota(on_demand_vcpu=draw.choice((4, 32)), spot_vcpu=draw.choice((8, 40, 64))),
            "standard": Quota(on_demand_vcpu=draw.choice((4, 16))),
        },
    )
    return gpus, cpus, limits


def test_highs_equals_plain_loops_and_columns_on_500_random_instances():
    empty = tiered = tied = several_memory_nodes = 0
    for seed in range(500):
        gpus, cpus, limits = random_instance(seed)
        expected = brute_force(gpus, cpus, limits)
        count = 3 if seed % 10 == 0 else 1
        solved = solve(gpus, cpus, limits, count)
        assert [(row.value, row.hourly_micro_usd) for row in solved] == expected[:count], seed
        columns = enumerate_clusters(gpus, cpus, limits)
        in_order = [(row.value, row.hourly_micro_usd) for row in ranked(columns, len(columns))]
        assert in_order == expected, seed
        empty += not expected
        tiered += bool(solved) and solved[0].architecture == "tiering"
        several_memory_nodes += bool(solved) and solved[0].cpu_nodes > 1
        tied += len(expected) > 1 and expected[0][0] == expected[1][0]
    assert min(empty, tiered, 500 - empty - tiered, several_memory_nodes, tied) >= 10


def test_without_quotas_the_budget_is_the_limit():
    open_limits = replace(LIMITS, quotas={})
    assert str(recommend(GPU_TYPES, CPU_TYPES, open_limits)[0]) == "17 spot g4dn.xlarge + 1 on-demand c5.xlarge"
    rich = recommend(GPU_TYPES, CPU_TYPES, replace(open_limits, hourly_budget_usd=12.0))[0]
    assert rich == ranked(enumerate_clusters(GPU_TYPES, CPU_TYPES, replace(open_limits, hourly_budget_usd=12.0)), 1)[0]
    assert rich.nodes > 31


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 30))
def test_more_money_never_lowers_the_objective(seed, more):
    gpus, cpus, limits = random_instance(seed)
    richer = replace(limits, hourly_budget_usd=limits.hourly_budget_usd + more / 10)
    before, after = (ranked(enumerate_clusters(gpus, cpus, given), 1) for given in (limits, richer))
    assert not before or after[0].value >= before[0].value


# Edges


@pytest.mark.parametrize(("budget", "nodes"), [(2.8526, 17), (2.8525, 16)])
def test_a_budget_may_be_spent_to_the_cent(budget, nodes):
    assert recommend(GPU_TYPES, CPU_TYPES, published_limits(budget))[0].nodes == nodes


def test_a_checkpoint_that_no_memory_holds_leaves_the_single_anchor():
    found = recommend(GPU_TYPES, CPU_TYPES, replace(LIMITS, checkpoint_gib=100.0))
    assert {cluster.architecture for cluster in found} == {"single anchor"}
    assert found[0].nodes == 16


def test_a_slow_network_takes_more_memory_nodes():
    found = recommend([GPU["g4dn.xlarge"]], [CPU["c4.xlarge"]], published_limits(3.2), 1, ("tiering",))
    assert described(found) == [("17 spot g4dn.xlarge + 2 on-demand c4.xlarge", 3.0806)]


def test_past_the_knee_more_nodes_are_worth_less():
    knee = Scaling(steepness=2.0, inflection_nodes=5.0, ceiling=5.0)
    gpu = replace(GPU["g4dn.xlarge"], scaling=knee)
    found = recommend([gpu], CPU_TYPES, LIMITS, 1)[0]
    assert 4 <= found.nodes <= 7
    assert found == ranked(enumerate_clusters([gpu], CPU_TYPES, LIMITS), 1)[0]


def test_the_spot_quota_counts_as_the_paper_counts_it():
    tight = replace(LIMITS, quotas={"G": Quota(on_demand_vcpu=32, spot_vcpu=40)})
    assert recommend([GPU["g4dn.xlarge"]], CPU_TYPES, tight)[0].nodes == 9
    assert cost_first([GPU["g4dn.xlarge"]], tight).nodes == 10


def test_no_anchor_without_an_on_demand_quota():
    limits = replace(LIMITS, quotas={"G": Quota(on_demand_vcpu=2, spot_vcpu=128)})
    assert {row.architecture for row in recommend(GPU_TYPES, CPU_TYPES, limits, 20)} == {"tiering"}
    with pytest.raises(NoFeasiblePlan, match="quotas are too small"):
        cost_first(GPU_TYPES, limits)


def test_the_list_ends_where_nothing_else_fits():
    found = recommend([GPU["g5.xlarge"]], [CPU["c5.xlarge"]], published_limits(0.5), 5)
    assert described(found) == [("1 spot g5.xlarge + 1 on-demand c5.xlarge", 0.4718)]


def test_a_budget_below_everything_names_the_cheapest():
    with pytest.raises(NoFeasiblePlan) as caught:
        recommend(GPU_TYPES, CPU_TYPES, published_limits(0.1))
    cheapest = "1 spot g4dn.xlarge + 1 on-demand t3.xlarge for $0.3242 an hour"
    assert str(caught.value) == f"no cluster for $0.1 an hour: the cheapest is {cheapest}"


@pytest.mark.parametrize("gpus", [(), [replace(GPU["g5.xlarge"], vcpu=192)]])
def test_nothing_at_any_price_says_so(gpus):
    with pytest.raises(NoFeasiblePlan, match="or any other price"):
        recommend(gpus, CPU_TYPES, LIMITS)


@pytest.mark.parametrize("budget", [0.0, -3.0, math.nan, math.inf])
def test_a_budget_is_a_positive_number(budget):
    with pytest.raises(InputError, match="hourly budget must be a positive number"):
        published_limits(budget)


@pytest.mark.parametrize("change", [{"spot_usd": -0.1}, {"flops": math.nan}, {"vcpu": 0}, {"on_demand_usd": 0.0}])
def test_a_machine_has_positive_numbers(change):
    with pytest.raises(InputError, match=r"g5\.xlarge: prices, sizes and speeds"):
        replace(GPU["g5.xlarge"], **change)


@pytest.mark.parametrize(("gbps", "nodes"), [(0.2, 0), (0.3, 2), (1.6, 2), (7.0, 16), (12.5, 24), (25.0, 28)])
def test_saturation_falls_back_to_the_next_slower_measured_network(gbps, nodes):
    assert saturation_nodes(GPU["g4dn.xlarge"], replace(CPU["c6in.xlarge"], bandwidth_gbps=gbps)) == nodes


@given(st.floats(0.01, 3), st.floats(-5, 40), st.floats(0.1, 50), st.integers(1, 200))
def test_a_scaling_factor_is_a_share(steepness, inflection, ceiling, nodes):
    scaling = Scaling(steepness=steepness, inflection_nodes=inflection, ceiling=ceiling)
    before, after = scaling.factor(np.array([nodes, nodes + 1]))
    assert 0 < after <= before <= 1 + 1e-12


def test_a_sigmoid_is_found_again():
    truth = GPU["g4dn.xlarge"].scaling
    nodes = np.array([1, 2, 4, 8, 12, 16, 20, 24, 28, 32])
    found = fit_scaling(nodes.tolist(), truth.speedup(nodes).tolist())
    assert found.steepness == pytest.approx(truth.steepness, rel=1e-3)
    assert found.inflection_nodes == pytest.approx(truth.inflection_nodes, rel=1e-3)
    assert found.ceiling == pytest.approx(truth.ceiling, rel=1e-3)


@pytest.mark.parametrize("speedups", [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, -1.0], [1.0, 2.0, 3.0, math.nan]])
def test_a_sigmoid_needs_points(speedups):
    with pytest.raises(InputError, match="scaling needs speed-ups"):
        fit_scaling(range(1, len(speedups) + 1), speedups)


# By time and money


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
