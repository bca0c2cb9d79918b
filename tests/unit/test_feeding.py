"""Feeding by hand, and its laws: never shorter than computing, never longer with more vCPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_world import CATALOG, ONE, TWO, column, instance_type, job, sure

from planner.columns import Z95, Prediction
from planner.inputs.catalog.tables import InstanceType
from planner.inputs.measurements import Measurement
from planner.models.configurations import Configurations
from planner.models.feeding import (
    HANDOVER_SECONDS,
    HYPERTHREAD_YIELD,
    NETWORK_SHARE,
    PROCESSOR_LOG_SD,
    WAITING,
    WORKER_YIELD,
    FeedingModel,
    computing,
)
from planner.models.fitted import FittedModels, fit_models

YIELD = WORKER_YIELD.median * HYPERTHREAD_YIELD.median


def fed(said: Any, *rows: Measurement) -> FeedingModel:
    return FeedingModel(job(input=said).workload, CATALOG).fit(rows)


def measured(**changes: Any) -> Measurement:
    """8 samples in 0.8 s on each of two nodes with one GPU and 4 vCPUs."""
    usual = {"instance_type": "g1.one", "nodes": 2, "gpus_per_node": 1, "gpu_batch": 4, "accumulation_steps": 2}
    return Measurement.model_validate({**usual, "precision": "bf16", "step_seconds": 0.8, **changes})


def models_of(said: Any, *rows: Measurement) -> FittedModels:
    """1 TFLOP a sample is 22 ms on this GPU."""
    return fit_models(job(flops_per_sample="1 TFLOP", input=said), CATALOG, rows)


def cluster(of: InstanceType = ONE, nodes: int = 1, gpu_batch: int = 4, accumulation_steps: int = 1) -> Configurations:
    return Configurations.of(CATALOG, of, nodes=nodes, gpu_batch=gpu_batch, accumulation_steps=accumulation_steps)


class TestByHand:
    def test_without_input_nothing_limits(self) -> None:
        model = FeedingModel(job().workload, CATALOG).fit([measured(data_wait_seconds=0.5)])
        assert model.predict(cluster()) is None
        assert model.seen_ == {}
        assert not model.from_table

    @pytest.mark.parametrize("kind", ["tokens", "tensors", "other"])
    def test_what_is_only_read_is_not_limited_until_something_is_known(self, kind: str) -> None:
        assert fed(kind).predict(cluster()) is None
        assert fed({"kind": kind, "bytes_per_sample": "1MB"}).predict(cluster()) is None
        assert fed({"kind": kind, "source": "s3"}).predict(cluster()) is None

    def test_the_table_is_per_vcpu_and_grows_with_the_samples(self) -> None:
        each = fed("jpeg").seconds_per_sample(TWO)  # 8 vCPUs for two GPUs
        assert each is not None
        assert each.p50 == pytest.approx(1 / 97.3 / 4)
        assert each.p95 == pytest.approx(each.p50 * np.exp(0.65 * Z95))
        assert each.p05 == pytest.approx(each.p50 / np.exp(0.65 * Z95))
        step = fed("jpeg").predict(cluster(TWO, nodes=3, gpu_batch=5, accumulation_steps=7))
        assert step is not None
        assert step.p50[0] == pytest.approx(35 * each.p50)
        assert not step.extrapolated.any()

    def test_beyond_16_vcpus_the_table_knows_no_faster_loader(self) -> None:
        seconds = [fed("jpeg").resources(instance_type("g", 2, vcpu))["processors"].median for vcpu in (30, 32, 64)]
        assert seconds == pytest.approx([1 / 97.3 / 15, 1 / 97.3 / 16, 1 / 97.3 / 16])

    def test_cpu_seconds_of_one_processor_become_those_of_busy_hyperthreads(self) -> None:
        found = fed({"kind": "other", "cpu_seconds_per_sample": "6ms"}).resources(ONE)
        assert set(found) == {"processors"}
        assert found["processors"].median == pytest.approx(0.006 / YIELD / 4)
        spread = np.sqrt(WORKER_YIELD.log_sd**2 + HYPERTHREAD_YIELD.log_sd**2 + PROCESSOR_LOG_SD**2)
        assert found["processors"].log_sd == pytest.approx(spread)

    def test_decoded_images_are_handed_over_by_one_process(self) -> None:
        model = fed({"kind": "jpeg", "cpu_seconds_per_sample": 1e-6})
        assert model.longest(ONE) == "loader"
        each = model.seconds_per_sample(ONE)
        assert each is not None
        assert each.p50 == pytest.approx(HANDOVER_SECONDS.median)
        assert not model.from_table

    @pytest.mark.parametrize("source", ["s3", "fsx"])
    def test_the_network_of_a_node_is_shared_by_its_gpus(self, source: str) -> None:
        model = fed({"kind": "tensors", "bytes_per_sample": "1MB", "source": source})
        rate = NETWORK_SHARE.median * 10e9 / 8
        assert model.resources(TWO) == {"storage": (pytest.approx(2e6 / rate), NETWORK_SHARE.log_sd)}
        assert model.longest(TWO) == "storage"

    def test_jpeg_files_have_a_usual_size(self) -> None:
        storage = fed({"kind": "jpeg", "source": "s3"}).resources(ONE)["storage"]
        assert storage.median == pytest.approx(115e3 / (NETWORK_SHARE.median * 10e9 / 8))

    def test_a_volume_that_the_memory_holds_is_read_once(self) -> None:
        """64 GiB of memory, half of it for 1,000 samples."""
        largest = 32 * 2**30 / 1000
        said = {"kind": "tensors", "source": "volume"}
        assert fed({**said, "bytes_per_sample": largest}).predict(cluster()) is None
        storage = fed({**said, "bytes_per_sample": largest + 1}).resources(ONE)["storage"]
        assert storage.median == pytest.approx((largest + 1) / (125 * 2**20))

    def test_the_longest_of_several_is_never_shorter_than_one(self) -> None:
        model = fed({"kind": "jpeg", "source": "s3", "bytes_per_sample": "3MB"})
        each, parts = model.seconds_per_sample(ONE), model.resources(ONE)
        assert each is not None
        assert model.longest(ONE) == "storage"
        assert each.p50 > max(part.median for part in parts.values())
        assert each.p95 >= max(part.median * np.exp(Z95 * part.log_sd) for part in parts.values())


class TestMeasured:
    def test_waiting_says_how_fast_the_type_feeds(self) -> None:
        model = fed("jpeg", measured(data_wait_seconds=0.081))
        assert model.longest(ONE) == WAITING
        each = model.seconds_per_sample(ONE)
        assert each is not None
        assert each.p50 == pytest.approx(0.1)
        assert fed("jpeg", measured(data_wait_seconds=0.079)).longest(ONE) == "processors"

    def test_waiting_is_taken_off_before_other_types_learn_from_it(self) -> None:
        row = measured(data_wait_seconds=0.3, exposed_sync_seconds=0.6)
        alone = computing(row)
        assert alone.step_seconds == pytest.approx(0.5)
        assert alone.exposed_sync_seconds == pytest.approx(0.5)
        fast = measured(data_wait_seconds=0.079)
        assert computing(fast) is fast

    def test_it_does_not_count_twice(self) -> None:
        """Where a probe waited, the step is predicted as long as it was, not longer."""
        row = measured(data_wait_seconds=0.6)
        models = models_of("jpeg", row)
        there = cluster(nodes=2, accumulation_steps=2)
        assert models.step_seconds(there).p50[0] == pytest.approx(0.8, rel=0.02)
        assert models.limited_by_feeding(there)[0]
        assert models.step_time.predict(there).p50[0] == pytest.approx(0.2, rel=0.1)
        assert models_of(None, row).step_seconds(there).p50[0] == pytest.approx(0.8, rel=0.1)

    def test_a_step_that_did_not_wait_was_fed(self) -> None:
        """By the table a sample takes 2.6 ms here; one was taken every 0.1 ms, so it took less."""
        row = measured(step_seconds=0.0008, data_wait_seconds=0.0, input_cpu_seconds_per_sample=1e-3)
        each = fed("jpeg", row).seconds_per_sample(ONE)
        assert each is not None
        assert each.p05 <= each.p50 <= each.p95 <= 0.0001
        assert fed("jpeg", measured(step_seconds=0.0008)).seconds_per_sample(ONE) != fed("jpeg").seconds_per_sample(ONE)
        without_loader = measured(step_seconds=0.0008, data_wait_seconds=0.0)
        unseen = fed("jpeg", without_loader)
        assert unseen.seen_ == {}
        assert unseen.seconds_per_sample(ONE) == fed("jpeg").seconds_per_sample(ONE)

    def test_cpu_seconds_measured_on_the_type_are_sharper(self) -> None:
        row = measured(input_cpu_seconds_per_sample=0.006)
        model = fed("other", row)
        here = model.resources(ONE)["processors"]
        assert here.median == pytest.approx(0.006 / YIELD / 4)
        assert here.log_sd == pytest.approx(np.hypot(WORKER_YIELD.log_sd, HYPERTHREAD_YIELD.log_sd))
        assert model.resources(TWO) == {}  # the workload of a plan has the median of all rows

    def test_too_few_workers_go_with_the_job(self) -> None:
        """A sample every 0.1 s, though four vCPUs could prepare one in 0.09 of that: so it is on other types."""
        few = measured(data_wait_seconds=0.6, input_cpu_seconds_per_sample=0.02)
        assert fed("other", few).resources(TWO)["loader"].median == pytest.approx(0.1)
        busy = measured(data_wait_seconds=0.6, input_cpu_seconds_per_sample=0.2)
        assert fed("other", busy).few_workers_ is None

    def test_the_fastest_of_such_loaders_counts_also_beside_the_table(self) -> None:
        few = measured(data_wait_seconds=0.6, input_cpu_seconds_per_sample=0.02)
        faster = few.model_copy(update={"instance_type": TWO.name, "gpus_per_node": 2, "step_seconds": 0.72})
        elsewhere = fed("other", few, faster).resources(instance_type("g1.new", 1, 4))
        assert elsewhere["loader"].median == pytest.approx(0.09)
        assert "loader" not in fed("jpeg").resources(TWO)  # the table's figures have it
        assert fed("jpeg", few).resources(TWO)["loader"].median == pytest.approx(0.1)


class TestTypesThatFeed:
    def test_by_the_table_four_vcpus_feed_389_images_a_second(self) -> None:
        """100 TFLOPS at 45 % are 45 images of 1 TFLOP a second, and 4,500 of 10 GFLOP."""
        assert fit_models(job(flops_per_sample="1 TFLOP", input="jpeg"), CATALOG, ()).feeds(ONE)
        assert not fit_models(job(flops_per_sample="10 GFLOP", input="jpeg"), CATALOG, ()).feeds(ONE)

    def test_what_is_said_or_seen_is_left_to_the_price(self) -> None:
        said = {"kind": "jpeg", "cpu_seconds_per_sample": 1.0}
        assert fit_models(job(flops_per_sample="10 GFLOP", input=said), CATALOG, ()).feeds(ONE)
        seen = measured(step_seconds=0.8, data_wait_seconds=0.7)
        assert fit_models(job(flops_per_sample="10 GFLOP", input="jpeg"), CATALOG, (seen,)).feeds(ONE)


class TestLaws:
    said = st.fixed_dictionaries(
        {"kind": st.sampled_from(["jpeg", "other"])},
        optional={
            "cpu_seconds_per_sample": st.floats(1e-6, 10.0),
            "bytes_per_sample": st.floats(1.0, 1e9),
            "source": st.sampled_from(["s3", "fsx", "volume"]),
        },
    )

    @given(said, st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096))
    def test_more_vcpus_are_never_slower(self, said: dict[str, Any], gpus: int, vcpu: int, more: int) -> None:
        few, many = instance_type("g1.few", gpus, vcpu), instance_type("g1.many", gpus, vcpu + more)
        model = FeedingModel(job(input=said).workload, CATALOG)
        slow, fast = model.seconds_per_sample(few), model.seconds_per_sample(many)
        if slow is None or fast is None:
            assert slow is fast
            return
        assert all(one <= other * (1 + 1e-9) for one, other in zip(fast, slow, strict=True))

    @given(said, st.integers(1, 4), st.integers(1, 512), st.integers(1, 8))
    def test_feeding_never_makes_a_step_shorter(self, said: dict[str, Any], nodes: int, batch: int, steps: int) -> None:
        models = models_of(said)
        rows = cluster(TWO, nodes=nodes, gpu_batch=batch, accumulation_steps=steps)
        alone, longer = models.doubted_steps.predict(rows), models.step_seconds(rows)
        feeding = models.feeding.predict(rows)
        for name in ("p05", "p50", "p95"):
            assert getattr(longer, name)[0] >= getattr(alone, name)[0]
            assert feeding is None or getattr(longer, name)[0] >= getattr(feeding, name)[0]

    @given(st.integers(1, 4), st.integers(1, 512))
    def test_without_input_a_step_is_what_it_was(self, nodes: int, batch: int) -> None:
        models, rows = models_of(None), cluster(TWO, nodes=nodes, gpu_batch=batch)
        alone, step = models.doubted_steps.predict(rows), models.step_seconds(rows)
        assert all(np.array_equal(getattr(alone, name), getattr(step, name)) for name in ("p05", "p50", "p95"))
        assert not models.limited_by_feeding(rows).any()
        assert models.feeds(TWO)


positive = st.floats(1e-6, 1e6)
widths = st.floats(0.0, 2.0)


class TestTheLarger:
    def test_two_alike(self) -> None:
        """Half of the time both are below the 0.7071-quantile of one."""
        one = Prediction.log_normal(np.array([2.0]), 0.5, np.array([False]))
        assert one.longer_of(one).p50[0] == pytest.approx(2 * np.exp(0.5 * 0.5450), rel=1e-3)
        assert one.longer_of(one).p95[0] == pytest.approx(2 * np.exp(0.5 * 1.9545), rel=1e-3)
        assert one.longer_of(one).p05[0] == pytest.approx(2 * np.exp(0.5 * -0.7601), rel=1e-3)

    def test_what_is_known_is_the_larger_of_two_numbers(self) -> None:
        larger = sure(1.0, 5.0).longer_of(sure(3.0, 2.0))
        assert larger.p50 == pytest.approx([3.0, 5.0], rel=1e-4)
        assert larger.p95 == pytest.approx([3.0, 5.0], rel=1e-4)

    def test_a_far_smaller_one_changes_nothing(self) -> None:
        one = column([0.5, 5.0], [1.0, 10.0], [3.0, 20.0])
        far = one.longer_of(sure(1e-9, 1e-9))
        assert (far.p05.tolist(), far.p50.tolist(), far.p95.tolist()) == ([0.5, 5.0], [1.0, 10.0], [3.0, 20.0])

    @given(positive, widths, positive, widths)
    def test_it_agrees_with_drawing_both(self, middle: float, width: float, other: float, spread: float) -> None:
        none = np.array([False])
        one = Prediction.log_normal(np.array([middle]), width, none)
        two = Prediction.log_normal(np.array([other]), spread, none)
        found = one.longer_of(two)
        if min(width, spread) < 1e-3:
            return  # a step, where the probability is whatever the last digit makes it
        for name, share in (("p05", 0.05), ("p50", 0.5), ("p95", 0.95)):
            x = float(getattr(found, name)[0])
            assert one.probability_at_most(x)[0] * two.probability_at_most(x)[0] == pytest.approx(share, abs=1e-3)
            assert x >= max(getattr(one, name)[0], getattr(two, name)[0])

    @given(positive, widths, positive, st.floats(1.0, 3.0), widths)
    def test_it_grows_with_either(self, middle: float, width: float, other: float, more: float, spread: float) -> None:
        none = np.array([False])
        one = Prediction.log_normal(np.array([middle]), width, none)
        less, greater = (Prediction.log_normal(np.array([m]), spread, none) for m in (other, other * more))
        small, large = one.longer_of(less), one.longer_of(greater)
        for name in ("p05", "p50", "p95"):
            assert getattr(small, name)[0] <= getattr(large, name)[0] * (1 + 1e-6)
