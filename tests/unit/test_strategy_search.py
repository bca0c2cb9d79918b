"""Searching strategies: every row by plain loops, what is left out cannot win, and the choice is that of all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import random_jobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_world import CATALOG, ONE, TWO

from planner.columns import Flags, Prediction
from planner.inputs import RECOMPUTES, SHARDINGS, CountRange, ParallelStrategy, StrategyOptions, TransformerShape
from planner.inputs.catalog.tables import Catalog, InstanceType
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels, fit_models
from planner.models.strategies import Strategies
from planner.search.every_candidate import search
from planner.search.pricing import Predictors
from planner.search.ranking import choose, feasible
from planner.search.tables import StrategyTable, Wanted, strategy_table

Key = tuple[int, int, int, str, int, int, str]  # nodes, micro-batch, micro-steps, sharding, tensor, stages, recompute


@st.composite
def transformers(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.sampled_from([4, 8, 12, 32]))
    return {
        "layers": draw(st.integers(2, 40)),
        "width": heads * draw(st.sampled_from([32, 64, 128])),
        "heads": heads,
        "feed_forward_width": draw(st.integers(256, 16_000)),
        "vocabulary": draw(st.integers(1000, 60_000)),
        "sequence_length": draw(st.sampled_from([128, 1024, 4096])),
        "attention": draw(st.sampled_from(["flash", "eager"])),
    }


@st.composite
def options(draw: st.DrawFn, heads: int, layers: int) -> dict[str, Any]:
    some = st.lists(st.sampled_from(SHARDINGS), min_size=1, max_size=5, unique=True)
    again = st.lists(st.sampled_from(RECOMPUTES), min_size=1, max_size=3, unique=True)
    return {
        "sharding": draw(some),
        "tensor_parallel": draw(st.sampled_from([t for t in (1, 2, 4) if heads % t == 0])),
        "pipeline": draw(st.sampled_from([p for p in (1, 2, 4) if p <= layers])),
        "recompute": draw(again),
    }


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    job = draw(random_jobs.jobs())
    shape = draw(transformers())
    workload = job.workload.model_dump(
        exclude={"flops_per_sample", "parameters", "activation_bytes_per_sample", "origins", "target", "global_batch"}
    )
    low = draw(st.integers(1, 24))
    return Job.model_validate(
        {
            "name": "job",
            "workload": {
                **workload,
                "transformer": shape,
                "strategies": draw(options(shape["heads"], shape["layers"])),
                "training": draw(st.sampled_from(["full", "lora", "qlora"])),
                "global_batch": f"{low}..{draw(st.integers(low, 96))}",
                "target": {"epochs": draw(st.integers(1, 20)), "reference_batch": 32},
            },
            "constraints": job.constraints.model_copy(update={"instance_types": ("*",)}).model_dump(by_alias=True)
            | {
                "nodes": f"{job.constraints.nodes.low}..{job.constraints.nodes.high}",
                "deadline": None,
                "budget": None,
            },
            "objective": job.objective,
        }
    )


def plain_rows(job: Job, kind: InstanceType) -> Iterator[Key]:
    """Every way that the script can do, by loops that share nothing with the table."""
    shape, can, (low, high) = job.workload.transformer, job.workload.strategies_or_default, job.workload.global_batch
    assert shape is not None
    for nodes in range(job.constraints.nodes.low, job.constraints.nodes.high + 1):
        for tensor in (1, 2, 4, 8):
            for stages in (1, 2, 4, 8):
                fits = tensor <= can.tensor_parallel and stages <= can.pipeline and kind.gpu_count % tensor == 0
                if not fits or (nodes * kind.gpu_count) % (tensor * stages):
                    continue
                copies = nodes * kind.gpu_count // (tensor * stages)
                samples = [each for each in range(1, high // copies + 1) if each * copies >= low]
                for each in samples:
                    if _odd(each) in (1, 3) or each in (samples[0], samples[-1]):
                        for steps in (step for step in range(1, min(each, 64) + 1) if each % step == 0):
                            for sharding in can.sharding:
                                for recompute in can.recompute:
                                    yield nodes, each // steps, steps, sharding, tensor, stages, recompute


def _odd(number: int) -> int:
    while number % 2 == 0:
        number //= 2
    return number


def table_of(job: Job, catalog: Catalog, kind: InstanceType) -> StrategyTable:
    workload = job.workload
    assert workload.transformer is not None
    wanted = Wanted(global_batch=workload.global_batch)
    can = workload.strategies_or_default
    return strategy_table(catalog, kind, job.constraints.nodes, workload.transformer, can, wanted)


def keys(rows: Configurations) -> list[Key]:
    assert rows.strategies is not None
    columns = (rows.nodes, rows.gpu_batch, rows.accumulation_steps)
    found = []
    for row in range(len(rows)):
        one = rows.strategies.one(row)
        nodes, batch, steps = (int(column[row]) for column in columns)
        found.append((nodes, batch, steps, one.sharding, one.tensor_parallel, one.pipeline, one.recompute))
    return found


SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(jobs(), random_jobs.catalogs())
def test_the_table_has_every_way_that_the_script_can_do(job: Job, catalog: Catalog) -> None:
    kind = catalog.instance_types[0]
    found = keys(table_of(job, catalog, kind).configurations)
    assert len(found) == len(set(found))
    assert set(found) == set(plain_rows(job, kind))


@SLOW
@given(jobs(), random_jobs.catalogs(), st.randoms(use_true_random=False))
def test_what_is_impossible_is_another_row_that_is_possible(job: Job, catalog: Catalog, random: Any) -> None:
    kind = catalog.instance_types[0]
    table = table_of(job, catalog, kind)
    rows = keys(table.configurations)
    can = job.workload.strategies_or_default.sharding
    possible = {key for key, flag in zip(rows, table.differs, strict=True) if flag}
    for key in random.sample(rows, min(len(rows), 40)):
        nodes, batch, steps, sharding, tensor, stages, recompute = key
        copies, of_node = nodes * kind.gpu_count // (tensor * stages), kind.gpu_count // tensor
        if key in possible:
            continue
        uneven = sharding == "hsdp" and copies % min(of_node, copies)
        same = [(nodes, batch, steps, other, tensor, stages, recompute) for other in can]
        assert uneven or any(other in possible for other in same)
        assert uneven or (sharding == "hsdp" and copies <= of_node)


def models_of(job: Job, catalog: Catalog) -> FittedModels:
    return fit_models(job, catalog, ())


def predictors_of(models: FittedModels) -> Predictors:
    overheads = models.overheads
    return Predictors(
        fits=models.memory.fits,
        largest_batch=models.memory.largest_batch,
        step_seconds=models.step_seconds,
        samples=models.convergence.predict,
        startup_seconds=overheads.startup_seconds,
        checkpoint_interval_seconds=overheads.checkpoint_interval_seconds,
        checkpoint_share=overheads.checkpoint_share,
        spot_price=Prediction.log_normal(np.ones(1), 0.2, np.zeros(1, dtype=bool)),
        spot_markets=None,
        least_seconds=models.sharded_step_time.median_seconds if models.sharded_step_time else None,
    )


def best_by_loops(job: Job, catalog: Catalog, models: FittedModels) -> tuple[float, float] | None:
    """Dollars and hours of the best on demand, priced row by row: no pruning, no fronts, no columns.

    Of the ways to take equally many samples with one sharding and parallelism, the fastest in the middle counts.
    """
    best: tuple[float, float] | None = None
    confidence, overheads = job.constraints.confidence, models.overheads
    for kind in catalog.instance_types:
        if catalog.gpu_of(kind).peak_flops_per_second(job.workload.precision) is None:
            continue
        offers = [
            (offer.on_demand_usd, next(region for region in catalog.regions if region.name == offer.region))
            for offer in catalog.offers
            if offer.instance_type == kind.name and offer.region in job.constraints.regions and offer.on_demand_usd
        ]
        quota = job.constraints.quotas.on_demand
        limit = quota.g if kind.name.startswith("g") else quota.p
        rows = [key for key in plain_rows(job, kind) if limit is None or key[0] * kind.vcpu <= limit]
        if not offers or not rows:
            continue
        ways: dict[Any, list[tuple[float, Key, Configurations]]] = {}
        for key in rows:
            one = one_row(catalog, kind, key)
            if models.memory.fits(one)[0]:
                nodes, batch, steps, sharding, tensor, stages, _ = key
                middle = float(models.sharded_step_time.median_seconds(one)[0])  # type: ignore[union-attr]
                ways.setdefault((nodes, batch * steps, sharding, tensor, stages), []).append((middle, key, one))
        for _, key, one in (min(way, key=lambda row: row[0]) for way in ways.values()):
            batch = one.global_batch
            work = models.step_seconds(one).times(models.convergence.predict(batch)).scaled(1 / batch / 3600)
            hours = work.scaled(1 + overheads.checkpoint_share, shift=overheads.startup_seconds / 3600)
            kept_gib = 2 * job.workload.checkpoint_bytes_or_default / 2**30
            for price, region in offers:
                storage = key[0] * (200 + math.ceil(kept_gib)) * region.volume_usd_per_gib_month / 730
                storage += kept_gib * region.object_storage_usd_per_gib_month / 730
                usd = hours.scaled(key[0] * float(price) + storage)
                found = float(usd.quantile(confidence)[0]), float(hours.quantile(confidence)[0])
                found = found[::-1] if job.objective_or_default == "time" else found
                best = found if best is None else min(best, found)
    return best


def one_row(catalog: Catalog, kind: InstanceType, key: Key) -> Configurations:
    nodes, batch, steps, sharding, tensor, stages, recompute = key
    strategy = ParallelStrategy.model_validate(
        {"sharding": sharding, "tensor_parallel": tensor, "pipeline": stages, "recompute": recompute}
    )
    strategies = Strategies.repeated(strategy)
    return Configurations.of(
        catalog, kind, nodes=nodes, gpu_batch=batch, accumulation_steps=steps, strategies=strategies
    )


@pytest.mark.slow
@settings(parent=SLOW, max_examples=200)
@given(jobs(), random_jobs.catalogs())
def test_the_choice_is_that_among_all_rows(job: Job, catalog: Catalog) -> None:
    job = job.model_copy(
        update={
            "objective": "time" if job.objective == "time" else "cost",
            "constraints": job.constraints.model_copy(update={"spot": "never", "nodes": CountRange(1, 2)}),
            "workload": job.workload.model_copy(update={"global_batch": CountRange(8, 24)}),
        }
    )
    compare(job, catalog)


@settings(parent=SLOW, max_examples=settings.default.max_examples // 10)
@given(jobs(), random_jobs.catalogs())
def test_the_choice_is_that_among_all_rows_of_some_jobs(job: Job, catalog: Catalog) -> None:
    job = job.model_copy(
        update={
            "objective": "time" if job.objective == "time" else "cost",
            "constraints": job.constraints.model_copy(update={"spot": "never", "nodes": CountRange(1, 2)}),
            "workload": job.workload.model_copy(update={"global_batch": CountRange(8, 12)}),
        }
    )
    compare(job, catalog)


def compare(job: Job, catalog: Catalog) -> None:
    models = models_of(job, catalog)
    found = search(job, catalog, catalog.instance_types, job.constraints.regions, predictors_of(models))
    best = choose(feasible(found.finalists, job), job.objective_or_default)
    expected = best_by_loops(job, catalog, models)
    if expected is None or best is None:
        assert (expected, best) == (None, None)
        return
    assert (best.usd_limit if job.objective == "cost" else best.hours_limit) == pytest.approx(expected[0], rel=1e-9)


@SLOW
@given(jobs(), random_jobs.catalogs(), st.floats(0, 1))
def test_a_row_that_is_not_tried_takes_no_less_than_one_that_is(job: Job, catalog: Catalog, share: float) -> None:
    """Of the same nodes, samples, sharding and parallelism: less recomputation, or fewer micro-steps, never loses."""
    models = models_of(job, catalog)
    kind = catalog.instance_types[0]
    if catalog.gpu_of(kind).peak_flops_per_second(job.workload.precision) is None:
        return
    table = table_of(job, catalog, kind)
    rows = table.configurations
    if not len(rows):
        return
    needed = models.memory.formula_bytes(rows)  # type: ignore[union-attr]
    fits: Flags = needed <= np.quantile(needed, share)
    fits = table.possible(fits)
    tried = table.worth_trying(fits)
    assert not (tried & ~fits).any()
    strategies = rows.strategies
    assert strategies is not None
    seconds = models.step_seconds(rows).p50
    samples = rows.gpu_batch * rows.accumulation_steps
    group = list(
        zip(rows.nodes, samples, strategies.sharding, strategies.tensor_parallel, strategies.pipeline, strict=True)
    )
    best: dict[Any, float] = {}
    for row in np.flatnonzero(tried):
        best[group[row]] = min(best.get(group[row], math.inf), seconds[row])
    for row in np.flatnonzero(fits & ~tried):
        assert best[group[row]] <= seconds[row] * (1 + 1e-9)


def test_a_table_of_what_is_named_has_that_alone() -> None:
    shape = TransformerShape(layers=2, width=64, heads=4, feed_forward_width=128, vocabulary=100, sequence_length=8)
    asked = ParallelStrategy(sharding="fsdp", tensor_parallel=2, recompute="full")
    wanted = Wanted(global_batch=CountRange(12, 12), gpu_batch=2, strategy=asked)
    table = strategy_table(CATALOG, TWO, CountRange(1, 4), shape, StrategyOptions(), wanted)
    assert keys(table.configurations) == [
        (1, 2, 6, "fsdp", 2, 1, "full"),
        (2, 2, 3, "fsdp", 2, 1, "full"),
        (3, 2, 2, "fsdp", 2, 1, "full"),
    ]


def test_on_one_gpu_the_first_sharding_that_fits_is_tried() -> None:
    """They take as long there, but not as much memory: FSDP keeps no second copy of all weights in half precision."""
    shape = TransformerShape(layers=2, width=64, heads=4, feed_forward_width=128, vocabulary=100, sequence_length=8)
    can = StrategyOptions(sharding=("ddp", "fsdp"), recompute=("none",))
    table = strategy_table(CATALOG, ONE, CountRange(1, 1), shape, can, Wanted(global_batch=CountRange(2, 2)))
    assert [key[1:4] for key in keys(table.configurations)] == [
        (1, 2, "ddp"),
        (2, 1, "ddp"),
        (1, 2, "fsdp"),
        (2, 1, "fsdp"),
    ]
    assert table.possible(np.array([True, False, True, True])).tolist() == [True, False, False, True]
    assert table.possible(np.array([True, True, True, True])).tolist() == [True, True, False, False]
