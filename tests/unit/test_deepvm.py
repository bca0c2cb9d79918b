"""DeepVM: the published plan to the cent, and HiGHS against plain loops."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from deepvm_clusters import enumerate_clusters, ranked
from deepvm_published import GPU_TYPES, published_limits
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError, NoFeasiblePlan
from planner.search.deepvm.inputs import Cluster, CpuType, GpuType, Limits, Quota, saturation_nodes
from planner.search.deepvm.policies import recommend
from planner.search.deepvm.program import solve
from planner.search.deepvm.published import CPU_TYPES
from planner.search.deepvm.scaling import Scaling, fit_scaling

GPU = {gpu.name: gpu for gpu in GPU_TYPES}
CPU = {cpu.name: cpu for cpu in CPU_TYPES}
LIMITS = published_limits()


def described(clusters: list[Cluster]) -> list[tuple[str, float]]:
    return [(str(cluster), cluster.hourly_usd) for cluster in clusters]


# The published case


def test_the_published_plan_and_its_runners_up():
    assert described(recommend(GPU_TYPES, CPU_TYPES, LIMITS)) == [
        ("17 spot g4dn.xlarge + 1 on-demand c5.xlarge", 2.8526),
        ("17 spot g4dn.xlarge + 1 on-demand m6i.xlarge", 2.8746),
        ("17 spot g4dn.xlarge + 1 on-demand c5n.xlarge", 2.8986),
    ]


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


def test_no_anchor_without_an_on_demand_quota():
    limits = replace(LIMITS, quotas={"G": Quota(on_demand_vcpu=2, spot_vcpu=128)})
    assert {row.architecture for row in recommend(GPU_TYPES, CPU_TYPES, limits, 20)} == {"tiering"}
    with pytest.raises(NoFeasiblePlan, match="quotas are too small"):
        recommend(GPU_TYPES, (), limits)


def test_the_list_ends_where_nothing_else_fits():
    found = recommend([GPU["g5.xlarge"]], [CPU["c5.xlarge"]], published_limits(0.5), 5)
    assert described(found) == [("1 spot g5.xlarge + 1 on-demand c5.xlarge", 0.4718)]


def test_a_budget_below_everything_names_the_cheapest():
    with pytest.raises(NoFeasiblePlan) as caught:
        recommend(GPU_TYPES, CPU_TYPES, published_limits(0.1))
    cheapest = "1 spot g4dn.xlarge + 1 on-demand t3.xlarge for $0.3242 an hour"
    assert str(caught.value) == f"no cluster for $0.1 an hour: the cheapest is {cheapest}"


def test_the_cheapest_is_the_cheapest_of_all_that_could_be_rented():
    told = 0
    for seed in range(200):
        gpus, cpus, limits = random_instance(seed)
        poor, rich = replace(limits, hourly_budget_usd=0.05), replace(limits, hourly_budget_usd=100.0)
        with pytest.raises(NoFeasiblePlan) as caught:
            recommend(gpus, cpus, poor)
        clusters = enumerate_clusters(gpus, cpus, rich)
        if len(clusters):
            told += 1
            least = clusters.hourly_usd.min()
            assert str(caught.value).endswith(f" for ${least:g} an hour"), seed
        else:
            assert "or any other price" in str(caught.value), seed
    assert 100 < told < 200


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


@pytest.mark.parametrize(
    ("gbps", "nodes"),
    [(0.2, 0), (0.3, 2), (1.6, 2), (1.7, 12), (4.9, 12), (7.0, 16), (10.0, 20), (12.5, 24), (15.0, 24), (25.0, 28)],
)
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
