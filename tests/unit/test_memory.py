"""Which batches fit: laws that hold whatever was measured, the plain formula otherwise, and a plan that obeys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.inputs.catalog.tables import Catalog, InstanceType
from planner.inputs.job.schema import Job
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.models.configurations import Configurations
from planner.models.memory import GIB, MemoryModel, model_bytes
from planner.outside.store import load_catalog, load_job
from planner.plan.build import make_plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
JOB: Job = load_job(EXAMPLE, {}).job
WORKLOAD = JOB.workload
TYPES = {
    name: CATALOG.instance_type_by_name[name] for name in ("g4dn.xlarge", "g5.xlarge", "g5.12xlarge", "p4d.24xlarge")
}
BATCHES = np.arange(1, 3001)


def probe(name: str = "g5.12xlarge", nodes: int = 1, gpu_batch: int = 64, **more: Any) -> Measurement:
    gpus = CATALOG.instance_type_by_name[name].gpu_count
    fixed = {"instance_type": name, "nodes": nodes, "gpus_per_node": gpus, "precision": "fp16", "step_seconds": 0.2}
    return Measurement(gpu_batch=gpu_batch, **fixed, **more)


def fitted(*rows: Measurement) -> MemoryModel:
    return MemoryModel(WORKLOAD, CATALOG).fit(rows)


def fitting(model: MemoryModel, instance_type: InstanceType, nodes: int, batches: Any = BATCHES) -> list[bool]:
    sizes = np.atleast_1d(batches)
    ones = np.ones_like(sizes)
    columns = {"nodes": nodes * ones, "gpu_batch": sizes, "accumulation_steps": ones}
    rows = Configurations(instance_type=instance_type, gpu=CATALOG.gpu_of(instance_type), **columns)
    return list(model.fits(rows).tolist())


def doubts(mark: Measurement, row: Measurement) -> bool:
    """Whether as much was too large on no more GPUs with no less memory."""
    gpus = [each.nodes * each.gpus_per_node for each in (mark, row)]
    memory = [CATALOG.gpu_of(TYPES[each.instance_type]).memory_gib for each in (mark, row)]
    too_large = mark.out_of_memory_at is not None and mark.out_of_memory_at <= row.gpu_batch
    return too_large and gpus[0] <= gpus[1] and memory[0] >= memory[1]


types = st.sampled_from(sorted(TYPES))
counts = st.integers(1, 16)
sizes = st.integers(1, 2000)
probes = st.lists(
    st.builds(
        probe,
        name=types,
        nodes=st.sampled_from([1, 2, 4]),
        gpu_batch=sizes,
        peak_memory_bytes=st.none() | st.floats(1e8, 2e11),
        out_of_memory_at=st.none() | sizes,
    ),
    max_size=5,
)


class TestLaws:
    @given(probes, types, counts)
    def test_what_fits_are_the_batches_up_to_the_largest(self, rows: list[Measurement], name: str, nodes: int) -> None:
        model = fitted(*rows)
        largest = model.largest_batch(TYPES[name], nodes)
        assert fitting(model, TYPES[name], nodes) == (largest >= BATCHES).tolist()

    @given(probes, counts, st.floats(1.0, 4.0))
    def test_more_memory_never_holds_less(self, rows: list[Measurement], nodes: int, factor: float) -> None:
        by_memory = sorted(CATALOG.gpus, key=lambda gpu: gpu.memory_gib)
        model = fitted(*rows)
        largest = [float(model._largest(gpu, np.array([nodes]))[0]) for gpu in by_memory]
        assert largest == sorted(largest)
        larger = by_memory[0].model_copy(update={"memory_gib": factor * by_memory[0].memory_gib})
        assert model._largest(larger, np.array([nodes]))[0] >= largest[0]

    @given(probes, types, counts)
    def test_more_nodes_never_hold_more(self, rows: list[Measurement], name: str, nodes: int) -> None:
        model = fitted(*rows)
        assert model.largest_batch(TYPES[name], nodes + 1) <= model.largest_batch(TYPES[name], nodes)

    @given(probes, st.integers(0, 12))
    def test_what_was_too_large_never_fits_there_nor_on_more_nodes(self, rows: list[Measurement], more: int) -> None:
        model = fitted(*rows)
        for row in rows:
            if row.out_of_memory_at is not None:
                assert model.largest_batch(TYPES[row.instance_type], row.nodes + more) < row.out_of_memory_at

    @given(probes)
    def test_what_ran_fits_unless_as_much_was_too_large(self, rows: list[Measurement]) -> None:
        model = fitted(*rows)
        for row in rows:
            doubted = any(doubts(mark, row) for mark in rows)
            assert doubted or fitting(model, TYPES[row.instance_type], row.nodes, row.gpu_batch) == [True]

    @given(probes, st.randoms(use_true_random=False))
    def test_the_order_of_measurements_does_not_matter(self, rows: list[Measurement], chance: Any) -> None:
        shuffled = chance.sample(rows, len(rows))
        one, other = fitted(*rows), fitted(*shuffled)
        assert vars(one) == vars(other)

    @given(st.sampled_from(CATALOG.instance_types), counts)
    def test_without_measurements_it_is_the_plain_formula(self, kind: InstanceType, nodes: int) -> None:
        room = CATALOG.gpu_of(kind).memory_gib * GIB * 0.92 - 1.5 * GIB
        needed = model_bytes(WORKLOAD) + BATCHES * WORKLOAD.activation_bytes_per_sample
        assert fitting(fitted(), kind, nodes) == (needed <= room).tolist()


class TestFacts:
    def test_the_formula_agrees_with_what_others_fitted(self) -> None:
        # Lambda's GPU benchmark, fp16: 256 images in 16 GB, 1,280 in 80 GB.
        for name, batch in (("p3.2xlarge", 192), ("p4de.24xlarge", 1152)):
            assert fitting(fitted(), CATALOG.instance_type_by_name[name], 1, [batch, 2 * batch]) == [True, False]

    def test_too_large_on_several_gpus_leaves_one_gpu_alone_what_ran_there(self) -> None:
        model = fitted(probe("g5.xlarge", 1, 64), probe("g5.xlarge", 2, 48, out_of_memory_at=64))
        assert [model.largest_batch(TYPES["g5.xlarge"], nodes) for nodes in (1, 2, 8)] == [64, 63, 63]

    def test_what_ran_on_several_gpus_fits_on_more_and_on_one(self) -> None:
        model = fitted(probe("g5.12xlarge", 1, 400))
        assert [model.largest_batch(TYPES[name], 8) for name in ("g5.12xlarge", "g5.xlarge", "g4dn.xlarge")] == [
            400,
            400,
            230,
        ]
        alone = fitted(probe("g5.xlarge", 1, 400))
        assert [alone.largest_batch(TYPES["g5.xlarge"], nodes) for nodes in (1, 2)] == [400, 335]

    def test_smaller_gpus_obey_a_mark_and_larger_ones_learn_from_it(self) -> None:
        model = fitted(probe(gpu_batch=48, out_of_memory_at=64))
        assert model.largest_batch(TYPES["g4dn.xlarge"]) < 48
        assert 64 < model.largest_batch(TYPES["p4d.24xlarge"]) < fitted().largest_batch(TYPES["p4d.24xlarge"]) / 3


class TestPeaks:
    @staticmethod
    def true_peak(batch: int, fixed: float, per_sample: float) -> float:
        return fixed * model_bytes(WORKLOAD) + per_sample * batch * WORKLOAD.activation_bytes_per_sample

    def line(self, batches: Sequence[int], fixed: float, per_sample: float) -> MemoryModel:
        rows = [probe(gpu_batch=size, peak_memory_bytes=self.true_peak(size, fixed, per_sample)) for size in batches]
        return fitted(*rows)

    @given(st.floats(0.5, 2.0), st.integers(1, 256))
    def test_one_peak_scales_the_formula(self, factor: float, batch: int) -> None:
        model = self.line([batch], factor, factor)
        for size in (batch, 2 * batch):
            assert model.needed_bytes(size) == pytest.approx(self.true_peak(size, factor, factor), rel=0.1)

    @given(st.floats(0.5, 2.0), st.floats(0.5, 2.0))
    def test_two_peaks_tell_the_fixed_part_from_the_samples(self, fixed: float, per_sample: float) -> None:
        model = self.line([1, 200], fixed, per_sample)
        assert model.bytes_per_sample_ == pytest.approx(per_sample * WORKLOAD.activation_bytes_per_sample, rel=0.05)
        assert model.fixed_bytes_ == pytest.approx(fixed * model_bytes(WORKLOAD), rel=0.15)

    def test_one_wild_peak_does_not_move_the_others(self) -> None:
        good = [probe(gpu_batch=size, peak_memory_bytes=self.true_peak(size, 1.2, 1.2)) for size in (16, 32, 64, 128)]
        model = fitted(*good, probe(gpu_batch=48, peak_memory_bytes=1e11))
        assert model.needed_bytes(256) == pytest.approx(self.true_peak(256, 1.2, 1.2), rel=0.05)

    @pytest.mark.parametrize("peak", [1e-300, 1e3, 1e15, 1e18])
    def test_a_peak_that_cannot_be_is_named_and_left_out(self, peak: float) -> None:
        model, clean = fitted(probe(gpu_batch=64, peak_memory_bytes=peak)), fitted(probe(gpu_batch=64))
        assert model.needed_bytes(64) == clean.needed_bytes(64)
        (warning,) = model.warnings_
        assert warning.endswith("GiB at 64 samples per GPU: the job file says about 3.91 GiB")

    @pytest.mark.parametrize(("factor", "said"), [(2.5, "150MB"), (0.4, "24MB")])
    def test_peaks_that_contradict_the_job_file_are_named_with_both_numbers(self, factor: float, said: str) -> None:
        (warning,) = self.line([1, 100, 400], factor, factor).warnings_
        assert warning.startswith("the job file says 60MB of activations per sample, measured peaks say ")
        found = float(warning.rpartition(" ")[2].removesuffix("MB"))
        assert found == pytest.approx(float(said.removesuffix("MB")), rel=0.05)
        assert self.line([400], factor, factor).warnings_ == ()  # one alone may be all of the fixed part
        assert self.line([1, 100, 400], factor**0.5, factor**0.5).warnings_ == ()

    def test_twice_the_peak_halves_the_largest_batch_everywhere(self) -> None:
        before, after = fitted(), self.line([32, 64], 2.0, 2.0)
        for kind in TYPES.values():
            assert after.largest_batch(kind) == pytest.approx(before.largest_batch(kind) / 2, rel=0.05)

    def test_micro_steps_and_nodes_do_not_change_the_peak(self) -> None:
        peak = self.true_peak(64, 1.5, 1.5)
        one = fitted(probe(gpu_batch=64, peak_memory_bytes=peak))
        other = fitted(probe(nodes=4, gpu_batch=64, peak_memory_bytes=peak, accumulation_steps=8))
        assert one.needed_bytes(128) == other.needed_bytes(128)


class TestPlan:
    @staticmethod
    def plan_batch(*rows: Measurement) -> int:
        """The local batch that one g5.12xlarge is planned with."""
        limits = {"instance_types": ["g5.12xlarge"], "nodes": "1", "deadline": "1000h", "budget": "$100000"}
        digest = "0" * 64
        hashes = {"job_sha256": digest, "measurements_sha256": None, "catalog_sha256": digest}
        provenance = Provenance(**hashes, catalog="test", catalog_date=CATALOG.date)
        job_file = load_job(EXAMPLE, limits)
        inputs = PlanInputs(job_file=job_file, catalog=CATALOG, measurements=rows, provenance=provenance)
        return make_plan(inputs).choice.gpu_batch

    def test_a_batch_that_was_too_large_is_not_planned(self) -> None:
        planned = self.plan_batch(probe(gpu_batch=32))
        assert planned > 32
        assert self.plan_batch(probe(gpu_batch=32, out_of_memory_at=planned)) < planned

    def test_a_measured_peak_bounds_the_planned_batch(self) -> None:
        peak = 12 * (model_bytes(WORKLOAD) + 32 * WORKLOAD.activation_bytes_per_sample)
        assert self.plan_batch(probe(gpu_batch=32, peak_memory_bytes=peak)) < self.plan_batch(probe(gpu_batch=32))
