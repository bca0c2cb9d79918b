"""The step time of a transformer under a strategy: laws of its form, and what measurements change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import CATALOG, TWO, job

from planner.inputs import Measurement
from planner.models import Configurations
from planner.models.sharded_step_time.distinct import distinct_rows
from planner.models.sharded_step_time.fitted_steps import fit_steps
from planner.models.sharded_step_time.formula import NAMES, seconds, slope_table, to_theta, to_values
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.model import ShardedStepTimeModel
from planner.models.sharded_step_time.posterior import StepRows, fit_posterior, log_step_of, without_rows
from planner.models.sharded_step_time.prior import POOLED
from planner.models.strategies import SHARDINGS, Strategies

SHAPE = {
    "layers": 8,
    "width": 1024,
    "heads": 16,
    "feed_forward_width": 4096,
    "vocabulary": 32000,
    "sequence_length": 1024,
}
WORKLOAD = job(parameters=150_000_000, transformer=SHAPE, global_batch="2..4096").workload
A100 = Hardware(
    half_flops=312e12,
    matmul_flops=312e12,
    memory_bytes_per_second=2e12,
    link_bytes_per_second=300e9,
    network_bytes_per_second=25e9,
    domain=8.0,
)
ONE_GPU: dict[str, float] = {
    "layers": 24.0,
    "width": 2048.0,
    "heads": 16.0,
    "sequence_length": 1024.0,
    "vocabulary": 50_000.0,
    "block_parameters": 5e7,
    "embedding_copies": 1.0,
    "tensor": 1.0,
    "pipeline": 1.0,
    "virtual_stages": 1.0,
    "context": 1.0,
    "data": 1.0,
    "shards": 1.0,
    "gathered_bytes": 0.0,
    "synchronised_bytes": 0.0,
    "replica_bytes": 0.0,
    "update_shards": 1.0,
    "micro_batch": 4.0,
    "accumulation": 1.0,
    "recomputed": 0.0,
    "passes": 3.0,
    "trained_share": 1.0,
    "dequantised": 0.0,
    "flash": 1.0,
    "attention_power": 0.5,
    "split_sequence": 1.0,
    "fused": 0.0,
    "exposed_tensor": 1.0,
}


def layout(**changes: float) -> Layout:
    return Layout(**{name: np.array([value]) for name, value in {**ONE_GPU, **changes}.items()})


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any strategy that 1 to 512 GPUs allow."""
    tensor, data = 2.0 ** draw(st.integers(0, 3)), 2.0 ** draw(st.integers(0, 5))
    kind = draw(st.sampled_from(SHARDINGS))
    shards = max(min(8.0 / tensor, data), 1.0) if kind == "hsdp" else data
    gathered = {"fsdp": 8.0, "hsdp": 8.0, "zero2": 6.0}.get(kind, 0.0)
    return layout(
        tensor=tensor,
        data=data,
        pipeline=2.0 ** draw(st.integers(0, 3)),
        shards=shards,
        gathered_bytes=gathered,
        synchronised_bytes={"ddp": 8.0, "zero1": 6.0}.get(kind, 0.0),
        replica_bytes=8.0 if kind == "hsdp" else 0.0,
        update_shards=1.0 if kind == "ddp" else shards,
        micro_batch=2.0 ** draw(st.integers(0, 4)),
        accumulation=float(draw(st.integers(1, 64))),
        recomputed=draw(st.sampled_from((0.0, 0.4))),
        flash=draw(st.sampled_from((0.0, 1.0))),
        passes=draw(st.sampled_from((2.0, 3.0))),
    )


thetas = st.lists(st.floats(-1.5, 1.5), min_size=len(NAMES), max_size=len(NAMES)).map(
    lambda steps: POOLED.mean + np.array(steps) * POOLED.sd
)


@given(
    layouts(),
    thetas,
    st.sampled_from(("half_flops", "memory_bytes_per_second", "link_bytes_per_second", "network_bytes_per_second")),
)
def test_twice_the_bandwidth_is_never_slower(where: Layout, theta: Any, name: str) -> None:
    faster = replace(A100, **{name: 2 * getattr(A100, name)})
    if name == "half_flops":
        faster = replace(faster, matmul_flops=2 * A100.matmul_flops)
    assert log_step_of(theta, where, faster) <= log_step_of(theta, where, A100) + 1e-12


@given(layouts(), thetas)
def test_full_recompute_never_takes_less_time_than_none(where: Layout, theta: Any) -> None:
    again = replace(where, recomputed=np.array([1.0]))
    assert log_step_of(theta, again, A100) >= log_step_of(theta, replace(where, recomputed=np.array([0.0])), A100)


@given(layouts(), thetas)
def test_frozen_weights_never_take_longer(where: Layout, theta: Any) -> None:
    full = replace(where, passes=np.array([3.0]))
    adapters = replace(where, passes=np.array([2.0]), trained_share=np.array([0.01]))
    assert log_step_of(theta, adapters, A100) <= log_step_of(theta, full, A100)


@given(thetas, st.integers(0, 6), st.integers(1, 64))
def test_more_accumulation_for_the_same_batch_never_hides_more_communication(
    theta: Any, doublings: int, copies: int
) -> None:
    """What it adds to the step, beside the same step that sends nothing."""

    def exposed(micro_steps: int) -> float:
        spread = {"data": float(copies), "micro_batch": 64.0 / micro_steps, "accumulation": float(micro_steps)}
        sending, alone = (layout(**spread, synchronised_bytes=moved) for moved in (8.0, 0.0))
        difference = [np.exp(log_step_of(theta, each, A100)) for each in (sending, alone)]
        return float((difference[0] - difference[1])[0])

    fewer = 2**doublings
    assert exposed(fewer) <= exposed(min(2 * fewer, 64)) * (1 + 1e-9) + 1e-9


@given(thetas, st.integers(2, 64))
def test_plain_data_parallelism_is_work_and_sync_joined(theta: Any, copies: int) -> None:
    values = dict(zip(NAMES, to_values(theta), strict=True))
    alone = layout()
    parameters = 24 * 5e7 + 50_000 * 2048
    rest = values["optimizer"] * 30 * parameters / 2e12 + values["fixed"]
    work = float(np.exp(log_step_of(theta, alone, A100))[0]) - rest
    network = 300e9 * values["link"] if copies <= 8 else min(8 * 25e9 * values["network"], 300e9 * values["link"])
    moved = (copies - 1) / copies * 8 * parameters
    sync = moved / network + 2 * values["latency"] * np.log2(copies)
    power = 1 + values["overlap"]
    step = np.exp(log_step_of(theta, layout(data=float(copies), synchronised_bytes=8.0), A100))[0]
    assert step == pytest.approx((work**power + sync**power) ** (1 / power) + rest, rel=1e-9)


def test_one_gpu_by_hand() -> None:
    """Every efficiency 0.5, every factor 1: the terms of the module's head, added up."""
    values = {
        "gemm": 0.5,
        "link": 0.5,
        "network": 0.5,
        "low_precision": 0.5,
        "host": 1e-9,
        "latency": 1e-6,
        "fixed": 0.25,
    }
    theta = to_theta(np.array([values.get(name, 1.0) for name in NAMES]))
    tokens = 4 * 1024
    linear = 3 * 2 * 5e7 * tokens / 156e12
    attend = 3 * 2 * 1024 * 2048 * tokens / (312e12 * 0.45)
    elementwise = 3 * tokens * 2048 * 34 / 2e12
    weights = 6 * 5e7 / 2e12
    head = 6 * 2048 * 50_000 * tokens / 156e12 + 16 * 50_000 * tokens / 2e12
    update = 30 * (24 * 5e7 + 50_000 * 2048) / 2e12
    expected = 24 * (linear + attend + elementwise + weights) + head + update + 0.25
    assert np.exp(log_step_of(theta, layout(), A100))[0] == pytest.approx(expected, rel=1e-9)


@given(layouts(), thetas)
@settings(max_examples=50)
def test_slopes_are_those_of_the_form(where: Layout, theta: Any) -> None:
    at = seconds(theta, where, A100, slopes=True)
    slope = slope_table(at.once, 1)[0]
    for index in range(len(NAMES)):
        nudge = np.zeros(len(NAMES))
        nudge[index] = 1e-5
        up, down = (seconds(theta + sign * nudge, where, A100).once.value for sign in (1, -1))
        assert slope[index] == pytest.approx(float((up - down)[0]) / 2e-5, rel=1e-4, abs=1e-8)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 10**9), st.integers(1, 4)), min_size=1, max_size=50))
def test_distinct_rows_are_those_that_sorting_finds(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    first, kind = distinct_rows(columns)
    assert len(first) == len(set(rows))
    assert [rows[index] for index in first[kind]] == rows
    assert all(rows.index(rows[index]) == index for index in first)


def configurations(
    count: int = 1, sharding: str = "fsdp", nodes: int = 4, batch: int = 4, steps: int = 2
) -> Configurations:
    spread = Strategies.of([SHARDINGS.index(sharding)] * count, 1, 1, 0)
    return Configurations.of(
        CATALOG, TWO, nodes=[nodes] * count, gpu_batch=batch, accumulation_steps=steps, strategies=spread
    )


def probe(step_seconds: float, nodes: int = 1, batch: int = 4, **changes: Any) -> Measurement:
    return Measurement(
        instance_type=TWO.name,
        nodes=nodes,
        gpus_per_node=2,
        gpu_batch=batch,
        precision="bf16",
        step_seconds=step_seconds,
        **changes,
    )


def expected_seconds(nodes: int = 1, batch: int = 4) -> float:
    model = ShardedStepTimeModel(WORKLOAD, CATALOG)
    return float(model.predict(configurations(sharding="ddp", nodes=nodes, batch=batch, steps=1)).p50[0])


def test_without_measurements_the_data_sheet_speaks_and_says_so() -> None:
    model = ShardedStepTimeModel(WORKLOAD, CATALOG).fit([])
    found = model.predict(configurations(3))
    assert found.extrapolated.all()
    assert not model.is_probed(TWO)
    assert (found.p05 < found.p50).all()
    assert (found.p50 < found.p95).all()
    assert model.median_seconds(configurations(3)) == pytest.approx(found.p50)
    assert model.why_extrapolated(TWO.name, 1, 1) == "g1.two was never probed"
    assert (
        (model.parallel_efficiency(configurations(3)) > 0) & (model.parallel_efficiency(configurations()) <= 1)
    ).all()


def test_the_quick_way_over_many_rows_is_the_plain_one() -> None:
    random = np.random.default_rng(0)
    spread = Strategies.of(random.integers(0, 5, 200), random.integers(1, 3, 200), 1, random.integers(0, 3, 200))
    columns = {"nodes": random.integers(1, 5, 200), "gpu_batch": 2 ** random.integers(0, 3, 200)}
    rows = Configurations.of(CATALOG, TWO, accumulation_steps=random.integers(1, 9, 200), strategies=spread, **columns)
    model = ShardedStepTimeModel(WORKLOAD, CATALOG)
    together = model.predict(rows)
    for index in (0, 57, 199):
        alone = model.predict(rows.at(np.array([index])))
        assert (alone.p05[0], alone.p95[0]) == pytest.approx((together.p05[index], together.p95[index]), rel=1e-9)


def test_probes_move_the_prediction_and_narrow_it() -> None:
    slow = [probe(1.25 * expected_seconds(nodes, batch), nodes, batch) for nodes in (1, 2) for batch in (2, 4, 8)]
    cold, warm = ShardedStepTimeModel(WORKLOAD, CATALOG), ShardedStepTimeModel(WORKLOAD, CATALOG).fit(slow)
    asked = configurations(sharding="ddp", nodes=2, batch=4, steps=1)
    before, after = cold.predict(asked), warm.predict(asked)
    assert after.p50[0] / before.p50[0] == pytest.approx(1.25, abs=0.06)
    assert after.p95[0] / after.p50[0] < before.p95[0] / before.p50[0]
    assert not after.extrapolated[0]
    assert warm.predict(configurations(nodes=2)).extrapolated[0]
    assert "fsdp was never probed" in str(warm.why_extrapolated(TWO.name, 2, 4, Strategies.of([3], 1, 1, 0)))
    assert warm.fit(list(reversed(slow))).predict(asked).p50[0] == after.p50[0]


def test_a_probe_that_no_data_sheet_allows_is_said() -> None:
    model = ShardedStepTimeModel(WORKLOAD, CATALOG).fit([probe(3 * expected_seconds())])
    assert len(model.warnings_) == 1
    assert (
        "1 of 1 measurements on g1.two are outside what its data sheet allows: up to 3.0 times slower"
        in model.warnings_[0]
    )
    assert ShardedStepTimeModel(WORKLOAD, CATALOG).fit([probe(expected_seconds())]).warnings_ == ()


@pytest.mark.parametrize("training", ["lora", "qlora"])
def test_adapters_are_faster_than_full_training(training: Any) -> None:
    full = ShardedStepTimeModel(WORKLOAD, CATALOG).predict(configurations(steps=1)).p50
    adapters = ShardedStepTimeModel(WORKLOAD, CATALOG, training=training).predict(configurations(steps=1)).p50
    assert adapters < full


def synthetic(count: int, odd: float) -> StepRows:
    """Trainings whose tensor parallelism takes longer than the form can say."""
    random = np.random.default_rng(1)
    columns = {name: np.full(count, value) for name, value in ONE_GPU.items()}
    columns["tensor"] = 2.0 ** random.integers(0, 4, count)
    columns["micro_batch"] = 2.0 ** random.integers(0, 4, count)
    columns["accumulation"] = random.integers(1, 17, count).astype(float)
    where = Layout(**columns)
    log_step = (
        log_step_of(POOLED.mean, where, A100) + odd * (columns["tensor"] == 4) + 0.005 * random.normal(size=count)
    )
    return StepRows(where, A100, log_step, np.ones(count))


def test_the_forest_joins_only_where_the_form_misses_something() -> None:
    assert fit_steps(synthetic(20, 0.5), POOLED).forest is None  # too few rows
    with_it = fit_steps(synthetic(120, 0.4), POOLED)
    rows = synthetic(120, 0.4)
    assert with_it.forest is not None
    missed = with_it.predict(rows.layout, A100)[0] - rows.log_step
    form = log_step_of(with_it.posterior.theta, rows.layout, A100) - rows.log_step
    assert np.abs(missed).mean() < 0.5 * np.abs(form).mean()


def test_without_rows_the_posterior_is_the_prior() -> None:
    empty = synthetic(30, 0.0).at(np.zeros(30, dtype=bool))
    assert np.array_equal(fit_posterior(empty, POOLED).covariance, without_rows(POOLED).covariance)
