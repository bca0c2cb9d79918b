"""Which clusters are rented for measuring, and what they can cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.inputs import parse_strategy
from planner.inputs.catalog.tables import Catalog
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.outside.store import load_catalog, load_job
from planner.probing.probe_clusters import (
    NODE_COUNTS,
    ProbeCluster,
    missing_answers,
    probe_clusters,
    refuse_too_small_a_cap,
    still_to_measure,
    sweep_command,
)
from planner.search.survey import take_survey

EXAMPLES = Path(__file__).parents[2] / "examples"


def example_inputs(name: str, **overrides: Any) -> PlanInputs:
    catalog, catalog_name, digest = load_catalog(None, beside=EXAMPLES)
    provenance = Provenance(
        job_sha256=digest,
        measurements_sha256=None,
        catalog_sha256=digest,
        catalog=catalog_name,
        catalog_date=catalog.date,
    )
    job_file = load_job(EXAMPLES / name, overrides)
    return PlanInputs(job_file=job_file, catalog=catalog, measurements=(), provenance=provenance)


def clusters_of(name: str, *, spot: bool = False, seconds: float | None = None, **overrides: Any) -> list[ProbeCluster]:
    inputs = example_inputs(name, **overrides)
    return probe_clusters(inputs, take_survey(inputs), node_counts=NODE_COUNTS, spot=spot, longest_seconds=seconds)


# Machines on which the job's smallest batch fits one node several times over.
RESNET = clusters_of("resnet50-imagenet", instance_types=["*.12xlarge", "*.24xlarge", "*.48xlarge"])


def on_demand_usd(catalog: Catalog, cluster: ProbeCluster) -> float:
    offers = catalog.offers_by_type[cluster.instance_type]
    return next(offer.on_demand_usd for offer in offers if offer.region == cluster.region) or 0.0


def measured(cluster: ProbeCluster, gpu_batch: int, **more: Any) -> Measurement:
    return Measurement(**cluster.probe(gpu_batch)._asdict(), step_seconds=0.1, **more)


def test_three_families_at_one_two_and_four_nodes_cheapest_first() -> None:
    assert len({cluster.instance_type.partition(".")[0] for cluster in RESNET}) == 3
    assert sorted({cluster.nodes for cluster in RESNET}) == [1, 2, 4]
    assert [cluster.max_usd for cluster in RESNET] == sorted(cluster.max_usd for cluster in RESNET)


def test_three_batches_on_one_node_and_the_ends_on_more_all_within_the_job_s_range() -> None:
    allowed = load_job(EXAMPLES / "resnet50-imagenet", {}).job.workload.global_batch
    for cluster in RESNET:
        assert len(cluster.gpu_batches) == (3 if cluster.nodes == 1 else 2)
        for batch in cluster.gpu_batches:
            assert allowed.low <= cluster.probe(batch).global_batch <= allowed.high


def test_no_more_nodes_than_the_job_allows() -> None:
    assert {cluster.nodes for cluster in clusters_of("digits-cnn")} == {1, 2}


def test_the_maximum_holds_the_price_until_aws_itself_ends_the_nodes() -> None:
    catalog = load_catalog(None, beside=EXAMPLES)[0]
    for cluster in RESNET:
        machines = cluster.nodes * on_demand_usd(catalog, cluster)
        assert cluster.max_usd > machines * (cluster.max_seconds / 3600 + 0.5)
        assert cluster.expected_usd < cluster.max_usd / 2
        assert cluster.expected_seconds < cluster.max_seconds <= 3600


def test_what_takes_long_is_not_ended_before_it_can_be_done() -> None:
    """Seven billion weights with as many samples as fit take more than the usual hour here."""
    clusters = clusters_of("llama-7b-finetune", instance_types=["g7e.*", "g6.48xlarge"])
    assert max(cluster.expected_seconds for cluster in clusters) > 7200
    assert all(cluster.expected_seconds < cluster.max_seconds <= 14_400 for cluster in clusters)
    assert all(cluster.expected_usd < cluster.max_usd for cluster in clusters)


def test_what_the_user_says_of_the_longest_time_is_kept() -> None:
    assert {cluster.max_seconds for cluster in clusters_of("digits-cnn", seconds=7200.0)} == {7200}


def test_all_are_in_one_region_where_the_network_is() -> None:
    assert len({cluster.region for cluster in clusters_of("resnet50-imagenet", regions=["all"])}) == 1


def test_what_was_begun_is_finished_before_anything_new() -> None:
    inputs = example_inputs("resnet50-imagenet")
    other = next(name for name in ("g4dn.12xlarge", "g5.12xlarge") if name not in {c.instance_type for c in RESNET})
    row = measured(RESNET[0]._replace(instance_type=other, gpus_per_node=4), 64)
    begun = replace(inputs, measurements=(row,))
    found = probe_clusters(begun, take_survey(begun), node_counts=NODE_COUNTS, spot=False)
    assert other in {cluster.instance_type for cluster in found}


def test_a_batch_that_needs_accumulation_is_measured_at_what_fits() -> None:
    smallest = load_job(EXAMPLES / "gpt2-openwebtext", {}).job.workload.global_batch.low
    single = next(cluster for cluster in clusters_of("gpt2-openwebtext", instance_types=["g5.xlarge"]))
    assert single.nodes == 1
    assert max(single.gpu_batches) < smallest


def test_spot_is_expected_to_cost_less_and_bounded_by_the_on_demand_price() -> None:
    for spot, on_demand in zip(
        sorted(clusters_of("digits-cnn", spot=True)), sorted(clusters_of("digits-cnn")), strict=True
    ):
        assert spot.expected_usd < on_demand.expected_usd
        assert spot.max_usd == on_demand.max_usd


def test_measured_batches_and_those_that_cannot_fit_are_not_repeated() -> None:
    cluster, *others = RESNET
    small, middle, large = cluster.gpu_batches
    assert still_to_measure(RESNET, []) == RESNET
    left = still_to_measure(RESNET, [measured(cluster, middle)])
    assert left[0].gpu_batches == (small, large)
    left = still_to_measure(RESNET, [measured(cluster, small, out_of_memory_at=large)])
    assert left[0].gpu_batches == (middle,)
    assert still_to_measure(RESNET, [measured(cluster, batch) for batch in cluster.gpu_batches]) == others


def llama_clusters(strategy: str | None, **overrides: Any) -> list[ProbeCluster]:
    inputs = example_inputs("llama-7b-finetune", **overrides)
    asked = None if strategy is None else parse_strategy(strategy)
    return probe_clusters(inputs, take_survey(inputs), node_counts=(1, 2), spot=False, strategy=asked)


def test_a_model_is_spread_as_would_be_planned_or_as_asked() -> None:
    assert {cluster.strategy for cluster in llama_clusters(None)} == {parse_strategy("fsdp")}
    asked = llama_clusters("fsdp,recompute=full")
    assert {cluster.strategy for cluster in asked} == {parse_strategy("fsdp,recompute=full")}
    row = measured(asked[0], asked[0].gpu_batches[0])
    assert row.strategy == asked[0].strategy
    assert asked[0].gpu_batches[0] not in still_to_measure(asked, [row])[0].gpu_batches
    other = row.model_copy(update={"strategy": parse_strategy("fsdp")})
    assert asked[0].gpu_batches[0] in still_to_measure(asked, [other])[0].gpu_batches


def test_batches_are_those_that_fit_with_the_strategy() -> None:
    """What is not computed again takes room."""
    most = {
        text: {cluster.name: max(cluster.gpu_batches) for cluster in llama_clusters(text)}
        for text in ("fsdp", "fsdp,recompute=full")
    }
    lean, full = most["fsdp,recompute=full"], most["fsdp"]
    assert full.keys() <= lean.keys()
    assert all(lean[name] >= batch for name, batch in full.items())
    assert any(lean[name] > batch for name, batch in full.items())


@pytest.mark.parametrize(
    ("name", "strategy", "words"),
    [
        ("llama-7b-finetune", "fsdp,tensor_parallel=16", "tensor_parallel 16 is beyond workload.strategies"),
        ("resnet50-imagenet", "fsdp", "needs workload.transformer"),
    ],
)
def test_a_strategy_that_the_job_cannot_do_is_refused(name: str, strategy: str, words: str) -> None:
    inputs = example_inputs(name)
    survey = take_survey(inputs)
    with pytest.raises(InputError, match=words):
        probe_clusters(inputs, survey, node_counts=(1,), spot=False, strategy=parse_strategy(strategy))


def test_a_cap_below_the_cheapest_is_refused_by_its_price() -> None:
    cheapest = RESNET[0].max_usd
    refuse_too_small_a_cap(RESNET, cheapest)
    with pytest.raises(InputError, match=f"cheapest probe .{RESNET[0].name}. can cost at most"):
        refuse_too_small_a_cap(RESNET, cheapest - 0.01)


@pytest.mark.parametrize(("nodes", "seconds", "key"), [((8,), 3600.0, "--nodes"), ((1,), 30.0, "--max-duration")])
def test_what_a_probing_cluster_cannot_be_is_refused(nodes: tuple[int, ...], seconds: float, key: str) -> None:
    inputs = example_inputs("digits-cnn")
    with pytest.raises(InputError, match=key):
        probe_clusters(inputs, take_survey(inputs), node_counts=nodes, spot=False, longest_seconds=seconds)


def test_nodes_run_the_job_s_own_command_once_per_batch() -> None:
    cluster = RESNET[0]._replace(gpu_batches=(16, 64))
    command = sweep_command(cluster, 256, ["train.py", "--name", "$(x) 'y'"])
    assert command[:6] == ["-m", "probes.sweep", "--batches", "16,64", "--reference-batch", "256"]
    assert command[6] == "--seconds-per-batch"
    assert 60 <= int(command[7]) <= cluster.max_seconds / 2
    assert command[8:] == ["--", "train.py", "--name", "$(x) 'y'"]
    assert sweep_command(cluster, 256, ["train.py"], measure_noise=False)[8:] == ["--no-noise", "--", "train.py"]


def test_what_the_job_file_leaves_open_is_named() -> None:
    job = load_job(EXAMPLES / "digits-cnn", {}).job
    assert missing_answers(job, ()) == ["network.vpc", "network.subnets", "run.ami", "run.image", "run.command"]
