"""All-reduce times of a known network give that network back, and predictions follow it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.schema import Job
from planner.inputs.measurements import AllReduce, Measurement
from planner.models.bandwidth import EffectiveNetwork, effective_network, moved_bytes
from planner.models.configurations import Configurations
from planner.models.step_time.data_sheet import UNMEASURED, Links, link_seconds, network_seconds, step_terms
from planner.models.step_time.measured_links import measured_links
from planner.models.step_time.model import StepTimeModel
from planner.outside.store import load_catalog, load_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
JOB: Job = load_job(EXAMPLE, {}).job
KIND = CATALOG.instance_type_by_name["g5.12xlarge"]
GRADIENT = JOB.workload.gradient_bytes_or_default
SIZES = (65_536, 1_048_576, 26_214_400, GRADIENT)


def configurations(nodes: Sequence[int], gpu_batch: Sequence[int]) -> Configurations:
    columns = {
        "nodes": np.array(nodes),
        "gpu_batch": np.array(gpu_batch),
        "accumulation_steps": np.ones(len(nodes), int),
    }
    return Configurations(instance_type=KIND, gpu=CATALOG.gpu_of(KIND), **columns)


def probe(nodes: int, gpu_batch: int, seconds: float, **more: Any) -> Measurement:
    where = {"instance_type": KIND.name, "nodes": nodes, "gpus_per_node": KIND.gpu_count}
    return Measurement(**where, gpu_batch=gpu_batch, precision="fp16", step_seconds=seconds, **more)


def timed(links: Links, nodes: int) -> tuple[AllReduce, ...]:
    """All-reduces over as many nodes: inside each, then between them."""
    count = np.array([float(nodes)])
    return tuple(
        AllReduce(
            bytes=size,
            seconds=link_seconds(KIND, size, links.inside) + network_seconds(KIND, count, size, links.between)[0],
        )
        for size in SIZES
    )


@given(
    latency=st.floats(0, 0.01),
    bandwidth=st.floats(1e6, 1e9),
    workers=st.integers(2, 64),
    noise=st.tuples(*[st.floats(-0.02, 0.02)] * len(SIZES)),
)
def test_recovers_bandwidth_and_latency(
    latency: float, bandwidth: float, workers: int, noise: tuple[float, ...]
) -> None:
    true = EffectiveNetwork(latency_seconds=latency, bytes_per_second=bandwidth)
    moved = np.array([moved_bytes(size, workers) for size in SIZES])
    exact = np.array([true.allreduce_seconds(size, workers) for size in SIZES])
    found = effective_network(moved, exact)
    assert found is not None
    assert found.bytes_per_second == pytest.approx(bandwidth, rel=1e-6)
    assert found.latency_seconds == pytest.approx(latency, abs=1e-6 + 1e-6 * exact[-1])
    found = effective_network(moved, exact * (1 + np.array(noise)))
    assert found is not None
    assert found.latency_seconds >= 0
    assert found.allreduce_seconds(SIZES[-1], workers) == pytest.approx(exact[-1], rel=0.05)


def test_a_busy_minute_of_one_size_is_outvoted_by_its_repeats() -> None:
    moved = np.array([1e5, 1e7, 1e5, 1e7, 1e5, 1e7])
    found = effective_network(moved, np.array([0.001, 0.1, 0.001, 5.0, 0.001, 0.1]))
    assert found is not None
    assert found.bytes_per_second == pytest.approx(1e8, rel=0.01)


def test_two_workers_move_the_gradient_once_and_many_almost_twice() -> None:
    assert moved_bytes(100, 2) == 100
    assert moved_bytes(100, 50) == pytest.approx(196)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(1000, 0.1)],
        [(1000, 0.1), (1000, 0.2)],
        [(0, 0.1), (0, 0.2)],
        [(1000, 0.2), (2_000_000, 0.1)],
        [(1e-300, 0.1), (1000, 1e-300)],
    ],
    ids=["nothing", "one size", "one size twice", "one worker", "faster with size", "not real"],
)
def test_says_nothing_where_nothing_follows(rows: list[tuple[float, float]]) -> None:
    columns = np.array(rows, dtype=float).reshape(-1, 2)
    assert effective_network(columns[:, 0], columns[:, 1]) is None


def test_what_took_no_time_is_left_out() -> None:
    rows = np.array([(1e6, 0.011), (2e6, 0.021), (4e6, 0.0), (8e6, -1.0), (4e6, 0.041)])
    found = effective_network(rows[:, 0], rows[:, 1])
    assert found is not None
    assert (found.latency_seconds, found.bytes_per_second) == pytest.approx((0.001, 1e8))


class TestLinks:
    fast = EffectiveNetwork(latency_seconds=0.0001, bytes_per_second=20e9)
    slow = EffectiveNetwork(latency_seconds=0.002, bytes_per_second=5e8)

    def test_the_link_inside_is_told_from_the_network_between(self) -> None:
        true = Links(inside=self.fast, between=self.slow)
        rows = [probe(nodes, 64, 0.3, allreduce=timed(true, nodes)) for nodes in (1, 2, 4)]
        found, warnings = measured_links(rows, KIND, GRADIENT)
        assert warnings == []
        for measured, known in ((found.inside, self.fast), (found.between, self.slow)):
            assert measured is not None
            assert measured.bytes_per_second == pytest.approx(known.bytes_per_second, rel=1e-3)
            assert measured.latency_seconds == pytest.approx(known.latency_seconds, rel=1e-3)

    def test_measured_links_are_the_terms_of_every_node_count_and_leave_the_others(self) -> None:
        asked = configurations([1, 2, 16], [64, 64, 64])
        before = step_terms(asked, JOB.workload).seconds
        after = step_terms(asked, JOB.workload, Links(inside=self.fast, between=self.slow)).seconds
        assert (after[:, :2] == before[:, :2]).all()
        assert after[:, 2] == pytest.approx([self.fast.allreduce_seconds(GRADIENT, 4)] * 3)
        expected = [0.0, *(self.slow.allreduce_seconds(GRADIENT, nodes) for nodes in (2, 16))]
        assert after[:, 3] == pytest.approx(expected)

    def test_other_types_learn_from_steps_held_against_the_measured_links(self) -> None:
        """What an all-reduce explains is not blamed on the job, whose multipliers all types share."""
        true = Links(inside=self.fast, between=self.slow)
        rows = [probe(nodes, 64, 0.3, allreduce=timed(true, nodes)) for nodes in (1, 2)]
        model = StepTimeModel(JOB.workload, CATALOG).fit(rows)
        asked = configurations([1, 2, 16], [64, 64, 64])
        assert model.terms(asked).seconds == pytest.approx(step_terms(asked, JOB.workload, true).seconds, rel=1e-3)
        nobody = model.with_rows(KIND.name, model.rows_[KIND.name].at(np.array([], dtype=int)))
        assert (nobody.terms(asked).seconds == step_terms(asked, JOB.workload).seconds).all()

    def test_rows_without_an_all_reduce_change_nothing(self) -> None:
        assert measured_links([probe(2, 64, 0.3)], KIND, GRADIENT) == (UNMEASURED, [])

    def test_a_slow_data_sheet_link_never_leaves_the_network_nothing(self) -> None:
        quick = tuple(AllReduce(bytes=size, seconds=1e-5 + size / 3e9) for size in SIZES)
        found, _ = measured_links([probe(2, 64, 0.3, allreduce=quick)], KIND, GRADIENT)
        assert found.between is not None
        assert found.between.bytes_per_second > 0

    @pytest.mark.parametrize(("nodes", "where"), [(1, "inside a g5.12xlarge"), (2, "between nodes of g5.12xlarge")])
    def test_what_cannot_be_is_named_and_left_out(self, nodes: int, where: str) -> None:
        wild = tuple(AllReduce(bytes=size, seconds=size) for size in SIZES)
        model = StepTimeModel(JOB.workload, CATALOG).fit([probe(nodes, 64, 0.3, allreduce=wild)])
        assert model.links_[KIND.name] == UNMEASURED
        assert [warning for warning in model.warnings_ if where in warning and "all-reduce" in warning]


class TestPredictions:
    """A network ten times slower than its data sheet: told by an all-reduce, where steps themselves hide it."""

    sheet = network_seconds(KIND, np.array([2.0]), GRADIENT)[0]
    slow = Links(between=EffectiveNetwork(latency_seconds=0.001, bytes_per_second=GRADIENT / (10 * sheet)))

    def truth(self, nodes: Sequence[int], gpu_batch: Sequence[int]) -> list[float]:
        terms = step_terms(configurations(nodes, gpu_batch), JOB.workload, self.slow)
        return list(terms.step(np.zeros(4))[0].tolist())

    def predicted(self, *, told: bool, nodes: int, gpu_batch: int) -> float:
        seconds = self.truth([1, 1], [64, 192])
        rows = [probe(1, 64, seconds[0]), probe(1, 192, seconds[1])]
        (pair,) = self.truth([2], [192])
        rows.append(probe(2, 192, pair, allreduce=timed(self.slow, 2) if told else ()))
        model = StepTimeModel(JOB.workload, CATALOG).fit(rows)
        return float(model.predict(configurations([nodes], [gpu_batch])).p50[0])

    @pytest.mark.parametrize(("nodes", "gpu_batch"), [(4, 192), (16, 64), (16, 16)])
    def test_a_slow_all_reduce_makes_more_nodes_as_slow_as_they_are(self, nodes: int, gpu_batch: int) -> None:
        (true,) = self.truth([nodes], [gpu_batch])
        told, untold = (self.predicted(told=told, nodes=nodes, gpu_batch=gpu_batch) for told in (True, False))
        assert told > untold
        assert abs(np.log(told / true)) < abs(np.log(untold / true))
        assert told == pytest.approx(true, rel=0.35)

    def test_a_told_network_is_exact(self) -> None:
        (pair,), (many,) = self.truth([2], [192]), self.truth([16], [192])
        rows = [probe(*where, seconds) for where in ((1, 64), (1, 192)) for seconds in self.truth([1], [where[1]])]
        rows.append(probe(2, 192, pair, allreduce=timed(self.slow, 2)))
        found = StepTimeModel(JOB.workload, CATALOG).fit(rows).predict(configurations([2, 16], [192, 192]))
        assert found.p50 == pytest.approx([pair, many], rel=0.05)
        assert found.p05[1] < many < found.p95[1]
