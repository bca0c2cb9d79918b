"""The same samples in more micro-steps never take less time, whatever a model is unsure of."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_world import CATALOG, ONE, column

from planner.columns import Prediction
from planner.inputs.job.fields import CountRange
from planner.inputs.measurements import Measurement
from planner.models.configurations import Configurations
from planner.models.fitted import FittedModels, fit_models
from planner.outside.store import load_catalog, load_job
from planner.search.candidates import every_split
from planner.search.micro_steps import bounded, step_seconds

EXAMPLES = Path(__file__).parents[2] / "examples"
REAL = load_catalog(None, beside=EXAMPLES)[0]


@functools.cache
def models(name: str, probed: bool) -> FittedModels:
    job = load_job(EXAMPLES / name, {}).job
    rows = [
        Measurement(
            instance_type="g5.12xlarge",
            nodes=nodes,
            gpus_per_node=4,
            gpu_batch=batch,
            precision=job.workload.precision,
            step_seconds=0.01 + 0.006 * batch * (1 + 0.05 * nodes),
        )
        for nodes in (1, 2)
        for batch in (2, 4)
    ]
    return fit_models(job, REAL, rows if probed else ())


@pytest.mark.parametrize("probed", [False, True])
@pytest.mark.parametrize("name", ["resnet50-imagenet", "gpt2-openwebtext", "digits-cnn"])
@given(
    kind=st.sampled_from(["g5.12xlarge", "g6e.48xlarge", "p5.48xlarge"]),
    nodes=st.integers(1, 16),
    batch=st.integers(1, 64),
    steps=st.integers(1, 8),
    times=st.integers(2, 8),
)
def test_more_micro_steps_never_lower_a_quantile(
    name: str, probed: bool, kind: str, nodes: int, batch: int, steps: int, times: int
) -> None:
    fitted, instance_type = models(name, probed), REAL.instance_type_by_name[kind]
    rows = Configurations.of(
        REAL, instance_type, nodes=nodes, gpu_batch=[batch * times, batch], accumulation_steps=[steps, steps * times]
    )
    few, many = step_seconds(rows, fitted.step_seconds).rows()
    assert few.p50 <= many.p50
    assert few.p95 <= many.p95
    assert few.p05 <= few.p50 <= few.p95


def test_sixteen_times_four_no_longer_beats_sixty_four_once() -> None:
    """Where batches of 2 to 4 were probed, the model alone is so unsure of 64 that sixteen times 4 looks better."""
    fitted, instance_type = models("resnet50-imagenet", True), REAL.instance_type_by_name["g5.12xlarge"]
    rows = Configurations.of(REAL, instance_type, nodes=1, gpu_batch=[64, 4], accumulation_steps=[1, 16])
    alone = fitted.step_seconds(rows)
    assert alone.p95[0] > alone.p95[1]
    once, many_times = step_seconds(rows, fitted.step_seconds).p95
    assert once <= many_times == pytest.approx(alone.p95[1])


def given_seconds(values: dict[tuple[int, int], tuple[float, float, float]]) -> Any:
    def predict(rows: Configurations) -> Prediction:
        splits = zip(rows.gpu_batch.tolist(), rows.accumulation_steps.tolist(), strict=True)
        return column(*zip(*(values[split] for split in splits), strict=True))

    return predict


def test_what_finer_splits_take_bounds_the_upper_end_and_then_the_rest() -> None:
    predict = given_seconds({(4, 1): (2.0, 5.0, 9.0), (2, 2): (3.0, 4.0, 6.0), (1, 4): (1.0, 2.0, 7.0)})
    rows = every_split(CATALOG, ONE, CountRange(1, 1), CountRange(4, 4))
    assert rows.accumulation_steps.tolist() == [1, 2, 4]
    found = bounded(predict(rows), rows)
    assert found.p95.tolist() == [6.0, 6.0, 7.0]
    assert found.p50.tolist() == [2.0, 2.0, 2.0]
    assert found.p05.tolist() == [2.0, 2.0, 1.0]
    one = Configurations.of(CATALOG, ONE, nodes=1, gpu_batch=2, accumulation_steps=2)
    assert step_seconds(one, predict).rows() == [(2.0, 2.0, 6.0)]


def test_another_batch_or_node_count_bounds_nothing() -> None:
    rows = Configurations.of(CATALOG, ONE, nodes=[1, 2, 2], gpu_batch=[4, 2, 2], accumulation_steps=[1, 2, 4])
    found = bounded(column([9.0, 8.0, 7.0], [9.0, 8.0, 7.0], [9.0, 8.0, 7.0]), rows)
    assert np.array_equal(found.p95, [9.0, 8.0, 7.0])
