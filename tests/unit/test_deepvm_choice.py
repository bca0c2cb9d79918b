"""DeepVM on a job and a catalogue: the published plan through the whole path, and what its plans promise."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deepvm_clusters import enumerate_clusters, ranked
from deepvm_published import GPU_TYPES, published_limits

from planner.errors import InputError, NoFeasiblePlan
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.parse import JobFile
from planner.inputs.job.schema import Job
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.models.configurations import Configurations
from planner.outside.store import load_catalog
from planner.plan.deepvm import make_deepvm_plan
from planner.plan.review.markdown import cost_markdown
from planner.plan.review.page import page_text, plan_page
from planner.plan.schema import Plan, format_plan, parse_plan
from planner.plan.variables import workspace_variables
from planner.search.deepvm.policies import recommend
from planner.search.deepvm.program import solve
from planner.search.deepvm.published import CPU_TYPES
from planner.search.deepvm.rental import MEMORY_TYPES, DeepVm, Rental
from planner.search.every_candidate import evaluate
from planner.search.pricing import MAX_WAIT_HOURS, STOP_SLACK_HOURS
from planner.search.survey import take_survey

REAL, _, DIGEST = load_catalog(None, beside=Path("nowhere"))
PUBLISHED = {gpu.name: gpu for gpu in GPU_TYPES}
MEMORY_GIB = {cpu.name: cpu.memory_gib for cpu in CPU_TYPES}
QUOTAS = {"on_demand": {"g": 32}, "spot": {"g": 128}}
WORKLOAD = {
    "flops_per_sample": 6 * 37e6,
    "parameters": 11_700_000,
    "activation_bytes_per_sample": 2e6,
    "checkpoint_bytes": "2GiB",
    "dataset_samples": 50_000,
    "global_batch": "64..8192",
    "precision": "fp32",
    "target": {"epochs": 90, "reference_batch": 128},
}


def paper_catalog() -> Catalog:
    """The paper's three GPU types in us-east-1, with its prices; operations in its own unit."""
    types = {gpu.name: gpu for gpu in GPU_TYPES}
    return Catalog.model_validate(
        {
            "date": "2023-08-01",
            "sources": {"paper": {"title": "DeepVM, arXiv 2403.05861", "date": "2024-03-09"}},
            "gpus": [
                {
                    "name": f"GPU of {name}",
                    "model": name,
                    "memory_gib": 15.0,
                    "nominal_memory_gb": 16,
                    "memory_bandwidth_gb_per_second": 300.0,
                    "dense_tflops": {"fp32": gpu.flops},
                    "source": "paper",
                }
                for name, gpu in types.items()
            ],
            "instance_types": [
                {
                    "name": name,
                    "gpu": f"GPU of {name}",
                    "gpu_count": 1,
                    "vcpu": gpu.vcpu,
                    "ram_gib": 16.0,
                    "network_baseline_gbps": 2.5,
                    "network_peak_gbps": gpu.bandwidth_gbps,
                    "network_cards": 1,
                    "efa_interfaces": 0,
                    "gpu_link": "none",
                    "gpu_link_gb_per_second": 16.0,
                    "local_ssd_gb": 0,
                    "source": "paper",
                }
                for name, gpu in types.items()
            ],
            "regions": [
                {
                    "name": "us-east-1",
                    "volume_usd_per_gib_month": 0.08,
                    "object_storage_usd_per_gib_month": 0.023,
                    "source": "paper",
                }
            ],
            "offers": [
                {
                    "instance_type": name,
                    "region": "us-east-1",
                    "on_demand_usd": gpu.on_demand_usd,
                    "spot_usd": {"use1-az1": 2 * gpu.spot_usd, "use1-az2": gpu.spot_usd, "use1-az3": None},
                    "source": "paper",
                }
                for name, gpu in types.items()
            ],
        }
    )


def inputs_for(catalog: Catalog = REAL, workload: dict[str, Any] | None = None, **constraints: Any) -> PlanInputs:
    limits = {"nodes": "1..32", "quotas": QUOTAS, "instance_types": ["g*.xlarge"], **constraints}
    job = Job.model_validate({"name": "job", "workload": WORKLOAD | (workload or {}), "constraints": limits})
    provenance = Provenance(
        job_sha256=DIGEST,
        measurements_sha256=None,
        catalog_sha256=DIGEST,
        catalog="test",
        catalog_date=catalog.date,
    )
    job_file = JobFile(job=job, file="scav.yaml", lines={})
    return PlanInputs(job_file=job_file, catalog=catalog, measurements=(), provenance=provenance)


def deepvm_on(inputs: PlanInputs, **options: Any) -> DeepVm:
    survey = take_survey(inputs)
    return DeepVm(
        job=inputs.job_file.job,
        catalog=inputs.catalog,
        instance_types=survey.instance_types,
        regions=survey.regions,
        predictors=survey.predictors,
        **options,
    )


def planned(inputs: PlanInputs, hourly_usd: float = 3.0, **options: Any) -> Plan:
    return make_deepvm_plan(inputs, take_survey(inputs), hourly_usd, **options)


def described(rentals: list[Rental]) -> list[tuple[str, float]]:
    return [(str(rental.cluster), rental.cluster.hourly_usd) for rental in rentals]


# The published case


def published_scaling(kind: Any) -> Any:
    return PUBLISHED[kind.name].scaling


PAPER = inputs_for(paper_catalog())


def test_the_published_plan_comes_out_of_a_job_and_a_catalogue():
    found = deepvm_on(PAPER, scaling_of=published_scaling).rentals(3.0, 3)
    assert described(found) == [
        ("17 spot g4dn.xlarge + 1 on-demand c5.xlarge", 2.8526),
        ("17 spot g4dn.xlarge + 1 on-demand m6i.xlarge", 2.8746),
        ("17 spot g4dn.xlarge + 1 on-demand c5n.xlarge", 2.8986),
    ]


def test_the_published_plan_as_a_plan_of_scav():
    plan = planned(PAPER, scaling_of=published_scaling)
    choice, tier = plan.choice, plan.choice.checkpoint_tier
    assert (choice.instance_type, choice.spot_count, choice.on_demand_count) == ("g4dn.xlarge", 17, 0)
    assert choice.availability_zone == "use1-az2"
    assert tier is not None
    assert (tier.instance_type, tier.node_count, tier.hourly_usd) == ("c5.xlarge", 1, 0.17)
    assert plan.reason.startswith("DeepVM at $3/h: 17 spot g4dn.xlarge + 1 on-demand c5.xlarge for $2.8526/h (")
    assert workspace_variables(plan)["checkpoint_tier"] == {"instance_type": "c5.xlarge", "node_count": 1}
    runners_up = [row.checkpoint_tier.instance_type for row in plan.alternatives if row.checkpoint_tier]
    assert runners_up[:2] == ["m6i.xlarge", "c5n.xlarge"]


def test_without_given_curves_scav_s_own_step_times_decide():
    ours = deepvm_on(PAPER)
    scaling = ours.rentals(3.0, 1)[0].cluster.gpu.scaling
    assert scaling is not None
    assert scaling != PUBLISHED["g4dn.xlarge"].scaling


# What DeepVM is told


@pytest.fixture(scope="module")
def best() -> Rental:
    inputs = inputs_for(workload={"precision": "fp16"}, instance_types=["g5.12xlarge"], quotas={})
    return deepvm_on(inputs).rentals(20.0, 1)[0]


def test_flops_prices_and_network_are_the_catalogue_s(best):
    gpu, kind = best.cluster.gpu, REAL.instance_type_by_name["g5.12xlarge"]
    offer = next(row for row in REAL.offers_by_type[kind.name] if row.region == "us-east-1")
    assert gpu.flops == kind.gpu_count * REAL.gpu_of(kind).dense_tflops["fp16"] * 1e12
    assert gpu.on_demand_usd == offer.on_demand_usd
    assert gpu.spot_usd == min(usd for usd in offer.spot_usd.values() if usd is not None)
    assert (gpu.vcpu, gpu.bandwidth_gbps) == (kind.vcpu, kind.network_peak_gbps)


def test_the_local_batch_of_the_curve_is_the_largest_that_fits_and_is_said():
    inputs = inputs_for(workload={"activation_bytes_per_sample": "100MB"}, instance_types=["g4dn.xlarge"])
    batch = deepvm_on(inputs).scaled_batch(REAL.instance_type_by_name["g4dn.xlarge"])
    assert 100 < batch < 150
    assert f"at the largest local batch ({batch} on the T4)" in planned(inputs).evidence.statement


def test_the_job_s_node_range_quotas_and_batches_are_kept():
    for rental in deepvm_on(inputs_for(nodes="2..5")).rentals(3.0, 10):
        assert 2 <= rental.cluster.nodes <= 5
    small = {"on_demand": {"g": 4}, "spot": {"g": 16}}
    for rental in deepvm_on(inputs_for(quotas=small)).rentals(3.0, 10):
        assert rental.cluster.nodes < 4
    for rental in deepvm_on(inputs_for(workload={"global_batch": "100"})).rentals(3.0, 10):
        assert 100 % rental.cluster.nodes == 0


@pytest.mark.parametrize("checkpoint_gib", [0.5, 2.5, 7.0])
def test_memory_nodes_hold_two_checkpoints_in_half_of_their_memory(checkpoint_gib):
    inputs = inputs_for(workload={"checkpoint_bytes": f"{checkpoint_gib}GiB"})
    tiers = [rental.cluster for rental in deepvm_on(inputs).rentals(3.0, 12) if rental.cluster.cpu]
    assert tiers
    for cluster in tiers:
        assert MEMORY_GIB[cluster.cpu.name] * cluster.cpu_nodes / 2 >= 2 * checkpoint_gib


def test_a_checkpoint_too_large_for_every_memory_node_leaves_an_on_demand_gpu_node():
    plan = planned(inputs_for(workload={"checkpoint_bytes": "20GiB"}))
    assert (plan.choice.on_demand_count, plan.choice.checkpoint_tier) == (1, None)
    assert "no priced memory node has room for two checkpoints" in plan.evidence.statement


def test_without_prices_of_memory_nodes_there_are_none():
    plan = planned(inputs_for(regions=["us-west-2"]))
    assert "us-west-2" not in MEMORY_TYPES
    assert (plan.choice.region, plan.choice.on_demand_count, plan.choice.checkpoint_tier) == ("us-west-2", 1, None)
    assert workspace_variables(plan)["checkpoint_tier"] is None
    assert "no prices of memory nodes in us-west-2" in plan.evidence.statement


def test_regions_are_ranked_together():
    regions = ["us-east-1", "us-east-2", "us-west-2"]
    together = deepvm_on(inputs_for(regions=regions)).rentals(3.0, 4)
    alone = [row for region in regions for row in deepvm_on(inputs_for(regions=[region])).rentals(3.0, 4)]
    assert max(row.cluster.value for row in alone) == together[0].cluster.value
    assert [row.cluster.value for row in together] == sorted((row.cluster.value for row in together), reverse=True)


def test_highs_equals_enumeration_where_only_some_node_counts_do():
    chance = random.Random(6)  # noqa: S311
    for _ in range(30):
        counts = [tuple(chance.sample(range(1, 40), chance.randint(1, 8))) for _ in GPU_TYPES]
        gpus = [replace(gpu, node_counts=allowed) for gpu, allowed in zip(GPU_TYPES, counts, strict=True)]
        limits = published_limits(chance.uniform(0.5, 6))
        clusters = enumerate_clusters(gpus, CPU_TYPES, limits)
        assert solve(gpus, CPU_TYPES, limits, 5) == ranked(clusters, 5)
        assert {row.nodes for row in ranked(clusters, 5)} <= {count for allowed in counts for count in allowed}


def test_the_cheapest_cluster_is_named_where_only_large_ones_do():
    gpus = [replace(PUBLISHED["g4dn.xlarge"], node_counts=(8, 9))]
    with pytest.raises(NoFeasiblePlan, match=r"the cheapest is 8 spot g4dn.xlarge \+ 1 on-demand t3.xlarge for \$1.42"):
        recommend(gpus, CPU_TYPES, published_limits(1.0))


# The plan


REAL_INPUTS = inputs_for()
PLAN = planned(REAL_INPUTS)


def test_hours_are_those_that_scav_estimates_for_this_cluster_and_batch():
    survey = take_survey(REAL_INPUTS)
    deepvm = deepvm_on(REAL_INPUTS)
    rental = deepvm.rentals(3.0, 1)[0]
    row = deepvm.candidate(rental)
    kind = REAL.instance_type_by_name[row.instance_type]
    columns = [np.array([value]) for value in (row.nodes, row.gpu_batch, row.accumulation_steps)]
    same = Configurations(
        instance_type=kind,
        gpu=REAL.gpu_of(kind),
        nodes=columns[0],
        gpu_batch=columns[1],
        accumulation_steps=columns[2],
    )
    (own,) = evaluate(REAL_INPUTS.job_file.job, REAL, same, ("us-east-1",), survey.predictors, "spot", base=0)
    memory_usd = row.hourly_usd - own.hourly_usd
    assert rental.cluster.cpu is not None
    assert memory_usd > rental.cluster.cpu_nodes * rental.cluster.cpu.on_demand_usd  # its volume, too
    assert row.hours == own.hours
    assert row.usd.p50 == pytest.approx(own.usd.p50 + row.hours.p50 * memory_usd)
    volumes_usd = row.hourly_usd - rental.cluster.hourly_usd
    assert 0 < volumes_usd < 0.03 * (row.nodes + rental.cluster.cpu_nodes)


def test_the_memory_nodes_are_in_every_figure():
    choice, estimate, tier = PLAN.choice, PLAN.estimate, PLAN.choice.checkpoint_tier
    assert tier is not None
    offer = next(row for row in REAL.offers_by_type[choice.instance_type] if row.region == "us-east-1")
    machines = choice.spot_count * offer.spot_usd[choice.availability_zone] + tier.hourly_usd
    assert choice.hourly_usd > machines
    # Spot nodes are not paid while they are not there.
    assert 0.9 * estimate.hours.p50 * choice.hourly_usd < estimate.usd.p50 < estimate.hours.p50 * choice.hourly_usd
    assert sum(estimate.breakdown.model_dump().values()) == pytest.approx(estimate.usd.p50, rel=1e-4)
    longest = MAX_WAIT_HOURS + choice.max_runtime_hours + STOP_SLACK_HOURS
    assert estimate.usd.max > longest * (choice.node_count * offer.on_demand_usd + tier.hourly_usd)


def test_runners_up_and_scav_s_own_choice_stand_beside_it():
    own, *others = PLAN.alternatives
    assert own.why_not.startswith("scav's own choice: ")
    assert len(others) == 3
    assert all("$" in row.why_not and "score" in row.why_not for row in others)


def test_a_limit_that_may_be_missed_is_said_and_not_refused():
    inputs = inputs_for(deadline="6min", budget="$0.01")
    plan = planned(inputs)
    assert "may miss the deadline of 6 min (" in plan.reason
    assert "may exceed the budget of $0.01 (" in plan.reason
    assert "scav itself finds nothing that keeps the job's limits" in plan.evidence.statement
    assert plan.constraints.deadline_hours is not None
    assert plan.constraints.deadline_hours.probability < 0.05


def test_the_plan_survives_its_file_and_is_the_same_again():
    assert parse_plan(format_plan(PLAN), file="scav.plan.json") == PLAN
    assert format_plan(planned(REAL_INPUTS)) == format_plan(PLAN)


def test_text_and_markdown_name_the_memory_nodes_within_80_columns():
    tier = PLAN.choice.checkpoint_tier
    assert tier is not None
    named = f" + {tier.node_count} x {tier.instance_type} for checkpoints"
    text = page_text(plan_page(PLAN))
    assert named in " ".join(text.split())
    assert named in cost_markdown(PLAN)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (inputs_for(spot="never"), "DeepVM rents spot nodes and the job's spot policy is never; use --spot auto or "),
        (inputs_for(workload={"checkpoint_bytes": 0}), "DeepVM rents spot nodes and the job writes no checkpoints"),
    ],
    ids=["never", "no checkpoints"],
)
def test_a_job_without_spot_is_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        planned(inputs)


def test_too_little_money_names_the_cheapest_cluster():
    with pytest.raises(NoFeasiblePlan, match=r"no cluster for \$0.01 an hour: the cheapest is 1 spot g"):
        planned(REAL_INPUTS, 0.01)
    with pytest.raises(NoFeasiblePlan, match=r"DeepVM finds nothing; in us-east-1: no cluster for"):
        planned(inputs_for(regions=["us-east-1", "us-west-2"]), 0.01)
