"""Laws that predictions keep whatever the numbers are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.columns import Prediction, Quantiles
from planner.inputs.catalog.tables import Catalog, InstanceType
from planner.inputs.job.schema import Job
from planner.inputs.measurements import Measurement
from planner.models.checkpoints import checkpoint_interval_seconds
from planner.models.configurations import Configurations
from planner.models.convergence.model import ConvergenceModel
from planner.models.overheads import run_overheads
from planner.models.step_time.model import StepTimeModel
from planner.outside.store import load_catalog, load_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
JOB: Job = load_job(EXAMPLE, {}).job

kinds = st.sampled_from([kind for kind in CATALOG.instance_types if "fp16" in CATALOG.gpu_of(kind).dense_tflops])
counts = st.integers(1, 64)


def configurations(
    kind: InstanceType, nodes: Sequence[int], gpu_batch: Sequence[int], steps: Sequence[int]
) -> Configurations:
    return Configurations(
        instance_type=kind,
        gpu=CATALOG.gpu_of(kind),
        nodes=np.array(nodes),
        gpu_batch=np.array(gpu_batch),
        accumulation_steps=np.array(steps),
    )


def step_seconds(kind: InstanceType, nodes: int, batch: int, steps: int = 1, job: Job = JOB) -> Quantiles:
    model = StepTimeModel(job.workload, CATALOG)
    return model.predict(configurations(kind, [nodes], [batch], [steps])).rows()[0]


def measured(kind: str, nodes: int, batch: int, seconds: float, sync: float | None = None) -> Measurement:
    return Measurement(
        instance_type=kind,
        nodes=nodes,
        gpus_per_node=CATALOG.instance_type_by_name[kind].gpu_count,
        gpu_batch=batch,
        precision="fp16",
        step_seconds=seconds,
        exposed_sync_seconds=sync,
    )


class TestPrediction:
    widths = st.floats(0.0, 2.0)

    @given(st.floats(1e-6, 1e6), widths, widths, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
    def test_quantiles_rise_and_answer_the_probability_back(
        self, middle: float, down: float, up: float, one: float, other: float
    ) -> None:
        row = _prediction(middle * math.exp(-down), middle, middle * math.exp(up))
        low, high = sorted((one, other))
        assert row.quantile(low)[0] <= row.quantile(high)[0] * (1 + 1e-12)
        if min(down, up) > 1e-3:
            assert row.probability_at_most(row.quantile(one)[0])[0] == pytest.approx(one, abs=1e-6)

    def test_its_own_quantiles_are_its_quantiles(self) -> None:
        row = _prediction(1.0, 2.0, 8.0)
        assert [row.quantile(q)[0] for q in (0.05, 0.5, 0.95)] == pytest.approx([1.0, 2.0, 8.0])

    def test_a_certain_value_keeps_a_limit_or_does_not(self) -> None:
        row = _prediction(2.0, 2.0, 2.0)
        assert [row.probability_at_most(limit)[0] for limit in (1.9, 2.0, 2.1)] == [0.0, 1.0, 1.0]

    def test_a_product_matches_simulation(self) -> None:
        draws = np.random.default_rng(1).standard_normal((2, 400_000))
        simulated = np.quantile(3 * np.exp(0.4 * draws[0]) * 5 * np.exp(0.3 * draws[1]), [0.05, 0.5, 0.95])
        none = np.array([False])
        product = Prediction.log_normal(np.array([3.0]), 0.4, none).times(
            Prediction.log_normal(np.array([5.0]), 0.3, none)
        )
        assert list(product.rows()[0]) == pytest.approx(simulated, rel=0.01)


def _prediction(p05: float, p50: float, p95: float) -> Prediction:
    return Prediction(p05=np.array([p05]), p50=np.array([p50]), p95=np.array([p95]), extrapolated=np.array([False]))


class TestStepTime:
    @given(kinds, counts, st.integers(1, 512), st.integers(1, 16))
    def test_is_positive_and_ordered(self, kind: InstanceType, nodes: int, batch: int, steps: int) -> None:
        low, middle, high = step_seconds(kind, nodes, batch, steps)
        assert 0 < low < middle < high < math.inf

    @given(kinds, counts, st.integers(1, 512), st.integers(1, 16))
    def test_more_work_or_more_nodes_never_make_a_step_shorter(
        self, kind: InstanceType, nodes: int, batch: int, steps: int
    ) -> None:
        base = step_seconds(kind, nodes, batch, steps).p50
        assert step_seconds(kind, nodes, batch + 1, steps).p50 > base
        assert step_seconds(kind, nodes, batch, steps + 1).p50 > base
        assert step_seconds(kind, nodes + 1, batch, steps).p50 >= base

    @given(kinds, counts, st.integers(1, 512), st.floats(1.0, 10.0))
    def test_a_faster_network_never_makes_it_longer(
        self, kind: InstanceType, nodes: int, batch: int, factor: float
    ) -> None:
        faster = kind.model_copy(
            update={
                "network_baseline_gbps": kind.network_baseline_gbps * factor,
                "gpu_link_gb_per_second": kind.gpu_link_gb_per_second * factor,
            }
        )
        assert step_seconds(faster, nodes, batch).p50 <= step_seconds(kind, nodes, batch).p50

    def test_the_ring_saturates_instead_of_growing_with_the_cluster(self) -> None:
        kind = CATALOG.instance_type_by_name["g5.12xlarge"]
        assert step_seconds(kind, 64, 1).p50 < 1.5 * step_seconds(kind, 8, 1).p50

    def test_without_probes_the_interval_is_at_least_a_factor_of_one_and_a_half(self) -> None:
        for kind in CATALOG.instance_types:
            if "fp16" in CATALOG.gpu_of(kind).dense_tflops:
                row = step_seconds(kind, 4, 64)
                assert row.p95 / row.p50 > 1.5

    def test_many_nodes_are_less_certain_than_one_where_the_network_matters(self) -> None:
        kind = CATALOG.instance_type_by_name["g5.12xlarge"]
        one, many = step_seconds(kind, 1, 16), step_seconds(kind, 16, 16)
        assert many.p95 / many.p50 > one.p95 / one.p50


class TestStepTimeWithMeasurements:
    rows = (
        measured("g5.12xlarge", 1, 32, 0.30),
        measured("g5.12xlarge", 1, 64, 0.50),
        measured("g5.12xlarge", 2, 64, 0.80, sync=0.28),
        measured("p4d.24xlarge", 1, 128, 0.11),
    )

    def predict(self, rows: Sequence[Measurement], kind: str, nodes: int, batch: int) -> tuple[Quantiles, bool]:
        model = StepTimeModel(JOB.workload, CATALOG).fit(rows)
        found = model.predict(configurations(CATALOG.instance_type_by_name[kind], [nodes], [batch], [1]))
        return found.rows()[0], bool(found.extrapolated[0])

    def test_goes_near_what_was_measured_and_becomes_surer(self) -> None:
        before, _ = self.predict((), "g5.12xlarge", 1, 64)
        after, extrapolated = self.predict(self.rows, "g5.12xlarge", 1, 64)
        assert after.p50 == pytest.approx(0.50, rel=0.15)
        assert after.p95 / after.p50 < before.p95 / before.p50
        assert not extrapolated

    def test_says_when_it_leaves_the_probed_region(self) -> None:
        assert self.predict(self.rows, "g5.12xlarge", 3, 64)[1]
        assert self.predict(self.rows, "g5.12xlarge", 2, 65)[1]
        assert self.predict(self.rows, "g6.12xlarge", 1, 1)[1]

    def test_an_unprobed_type_learns_from_the_probed_ones_but_stays_less_sure(self) -> None:
        slow = tuple(row.model_copy(update={"step_seconds": 3 * row.step_seconds}) for row in self.rows)
        before, _ = self.predict((), "g6.12xlarge", 1, 64)
        after, _ = self.predict(slow, "g6.12xlarge", 1, 64)
        probed, _ = self.predict(slow, "g5.12xlarge", 1, 64)
        assert after.p50 > before.p50
        assert after.p95 / after.p50 > probed.p95 / probed.p50

    def test_does_not_depend_on_the_order_of_measurements(self) -> None:
        expected = self.predict(self.rows, "g5.12xlarge", 4, 64)
        for rows in itertools.permutations(self.rows):
            assert self.predict(rows, "g5.12xlarge", 4, 64) == expected

    def test_one_probe_is_enough_to_answer(self) -> None:
        row, _ = self.predict(self.rows[:1], "g5.12xlarge", 8, 64)
        assert 0 < row.p05 < row.p95 < math.inf

    def test_contradictory_probes_still_answer_between_them(self) -> None:
        pair = (measured("g5.12xlarge", 1, 64, 0.2), measured("g5.12xlarge", 1, 64, 1.8))
        row, _ = self.predict(pair, "g5.12xlarge", 1, 64)
        assert 0.2 < row.p50 < 1.8


class TestConvergence:
    batches = st.integers(1, 1 << 20)

    @given(batches, st.floats(1e3, 1e12), batches, st.integers(1, 64))
    def test_larger_batches_never_need_fewer_samples(
        self, reference: int, samples: float, batch: int, factor: int
    ) -> None:
        model = ConvergenceModel().fit([(reference, samples)])
        row, larger = (model.predict(np.array([b])).rows()[0] for b in (batch, batch * factor))
        assert larger.p50 >= row.p50 * (1 - 1e-9)
        assert 0 < row.p05 <= row.p50 <= row.p95

    def test_the_reference_batch_needs_the_target_s_samples(self) -> None:
        row = ConvergenceModel().fit([(256, 1e8)]).predict(np.array([256])).rows()[0]
        assert row.p50 == pytest.approx(1e8, rel=0.01)

    def test_knowing_more_narrows_the_interval(self) -> None:
        def width(model: ConvergenceModel) -> float:
            row = model.predict(np.array([8192])).rows()[0]
            return row.p95 / row.p05

        curve = [(batch, 1e8 * (1 + batch / 4000)) for batch in (256, 1024, 16384)]
        prior = width(ConvergenceModel().fit(curve[:1]))
        noise = width(ConvergenceModel().fit(curve[:1], noise_scale=4000))
        runs = width(ConvergenceModel().fit(curve))
        assert runs < noise < prior

    def test_recovers_the_curve_that_made_the_points(self) -> None:
        curve = [(batch, 1e8 * (1 + batch / 4000)) for batch in (128, 512, 2048, 8192, 32768)]
        model = ConvergenceModel().fit(curve)
        assert model.predict(np.array([4096])).p50[0] == pytest.approx(1e8 * (1 + 4096 / 4000), rel=0.03)

    def test_runs_that_contradict_every_law_widen_the_interval(self) -> None:
        valley = ConvergenceModel().fit([(256, 2e8), (1024, 0.5e8), (4096, 2e8)]).predict(np.array([1024]))
        flat = ConvergenceModel().fit([(256, 1e8), (1024, 1e8), (4096, 1e8)]).predict(np.array([1024]))
        assert valley.p95[0] / valley.p05[0] > 2 * flat.p95[0] / flat.p05[0]

    def test_says_when_it_leaves_the_tried_batches(self) -> None:
        model = ConvergenceModel().fit([(256, 1e8), (1024, 1.1e8)])
        assert list(model.predict(np.array([255, 256, 1024, 1025])).extrapolated) == [True, False, False, True]


class TestOverheads:
    @given(st.floats(0.0, 1e5))
    def test_the_checkpoint_interval_stays_between_a_minute_or_five_saves_and_an_hour_or_sixty(
        self, save_seconds: float
    ) -> None:
        assert 60 <= checkpoint_interval_seconds(save_seconds) <= max(3600, 60 * save_seconds)
        assert checkpoint_interval_seconds(save_seconds) >= 5 * save_seconds

    def test_measured_overheads_replace_the_assumed_ones(self) -> None:
        row = measured("g5.12xlarge", 1, 32, 0.3).model_copy(
            update={"startup_seconds": 42.0, "checkpoint_save_seconds": 7.0}
        )
        found = run_overheads(JOB.workload, [row])
        assert found.startup_seconds == 42.0
        assert found.checkpoint_share == pytest.approx(7.0 / checkpoint_interval_seconds(7.0))
        assert found.restart_seconds == 42.0 + 7.0  # reading is taken to last as long as writing

    def test_a_restart_reads_the_checkpoint_as_slowly_as_was_measured(self) -> None:
        rows = [
            measured("g5.12xlarge", 1, batch, 0.3).model_copy(update={"checkpoint_restore_seconds": seconds})
            for batch, seconds in ((16, 800.0), (32, 900.0), (64, 5000.0))
        ]
        found, assumed = run_overheads(JOB.workload, rows), run_overheads(JOB.workload, [])
        assert found.restart_seconds == found.startup_seconds + 900.0
        assert (found.save_seconds, found.startup_seconds) == (assumed.save_seconds, assumed.startup_seconds)

    @pytest.mark.parametrize(("factor", "seconds"), [(0.5, 8.0), (1.0, 4.0), (2.0, 2.0), (1e-9, 400.0)])
    def test_seconds_of_a_checkpoint_grow_with_its_size(self, factor: float, seconds: float) -> None:
        size = JOB.workload.checkpoint_bytes_or_default
        row = measured("g5.12xlarge", 1, 32, 0.3).model_copy(
            update={
                "checkpoint_save_seconds": 4.0,
                "checkpoint_restore_seconds": 4.0,
                "checkpoint_bytes": factor * size,
            }
        )
        found = run_overheads(JOB.workload, [row])
        assert (found.save_seconds, found.restore_seconds) == pytest.approx((seconds, seconds))
