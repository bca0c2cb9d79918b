"""What measurements say of the job: sizes it leaves open, software that differs, restarts and networks in its plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.inputs.job.workload import Workload
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs
from planner.models.configurations import Configurations
from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.trust import trust
from planner.outside.input_files import load_plan_inputs
from planner.plan.build import make_plan
from planner.plan.schema import Plan

JOB = """\
name: small
workload:
  dataset_samples: 1.28M
  flops_per_sample: 24.6 GFLOP
  parameters: 25.6M
  activation_bytes_per_sample: 60MB
  global_batch: 256..1024
  target: {epochs: 90, reference_batch: 256}
constraints:
  instance_types: ["g5.12xlarge"]
  nodes: 1..2
"""
ROW: dict[str, Any] = {
    "instance_type": "g5.12xlarge",
    "nodes": 1,
    "gpus_per_node": 4,
    "gpu_batch": 64,
    "precision": "bf16",
    "step_seconds": 0.2,
}


def inputs_of(folder: Path, *rows: dict[str, Any], job: str = JOB) -> PlanInputs:
    (folder / "scav.yaml").write_text(job)
    (folder / "measurements.jsonl").write_text("".join(json.dumps({**ROW, **row}) + "\n" for row in rows))
    return load_plan_inputs(folder, {}, None)


def probe(**changed: Any) -> Measurement:
    return Measurement.model_validate({**ROW, **changed})


class TestSizes:
    sizes = ({"gradient_bytes": 51_200_000, "checkpoint_bytes": 250_000_000},)

    def workload(self, folder: Path, *rows: dict[str, Any], job: str = JOB) -> Workload:
        return inputs_of(folder, *rows, job=job).job_file.job.workload

    def test_measured_sizes_are_used_where_the_job_file_says_none(self, tmp_path: Path) -> None:
        found = self.workload(tmp_path, *self.sizes)
        assert (found.gradient_bytes_or_default, found.checkpoint_bytes_or_default) == (51_200_000, 250_000_000)

    def test_they_belong_to_the_job_so_that_any_machine_may_tell(self, tmp_path: Path) -> None:
        here = {**self.sizes[0], "instance_type": "local", "gpus_per_node": 1}
        assert self.workload(tmp_path, here).checkpoint_bytes == 250_000_000
        assert self.workload(tmp_path, {**self.sizes[0], "precision": "fp16"}).checkpoint_bytes is None

    def test_what_the_job_file_says_goes_before(self, tmp_path: Path) -> None:
        said = JOB.replace("  global_batch", "  gradient_bytes: 40MB\n  checkpoint_bytes: 0\n  global_batch")
        found = self.workload(tmp_path, *self.sizes, job=said)
        assert (found.gradient_bytes, found.checkpoint_bytes) == (40e6, 0)

    def test_what_loading_takes_is_used_where_the_job_says_what_it_loads(self, tmp_path: Path) -> None:
        here = {"instance_type": "local", "precision": "fp32", "gpus_per_node": 1}
        rows = [{**here, "input_cpu_seconds_per_sample": seconds} for seconds in (0.004, 0.005, 0.009)]
        decoding = JOB.replace("  global_batch", "  input: jpeg\n  global_batch")
        found = self.workload(tmp_path, *rows, job=decoding).input
        assert found is not None
        assert (found.kind, found.cpu_seconds_per_sample) == ("jpeg", 0.005)
        assert self.workload(tmp_path, *rows).input is None
        said = decoding.replace("jpeg", "{kind: jpeg, cpu_seconds_per_sample: 7ms}")
        found = self.workload(tmp_path, *rows, job=said).input
        assert found is not None
        assert found.cpu_seconds_per_sample == 0.007
        others = [{**row, "parameters": 1_000_000} for row in rows]
        found = self.workload(tmp_path, *others, job=decoding).input
        assert found is not None
        assert found.cpu_seconds_per_sample is None

    def test_without_sizes_the_job_is_as_the_file_says(self, tmp_path: Path) -> None:
        found = self.workload(tmp_path, {})
        assert (found.gradient_bytes, found.checkpoint_bytes) == (None, None)

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            ({"parameters": 124_000_000}, "124,000,000 parameters, the job file says 25,600,000"),
            ({"gradient_bytes": 1}, "a gradient of 1 bytes, 25,600,000 parameters have about 1.02e+08"),
            ({"checkpoint_bytes": 1e18}, "a checkpoint of 1e+18 bytes, 25,600,000 parameters have about 3.07e+08"),
        ],
    )
    def test_another_model_is_named_and_its_sizes_are_not_taken(
        self, tmp_path: Path, other: dict[str, Any], said: str
    ) -> None:
        inputs = inputs_of(tmp_path, {}, {**self.sizes[0], **other})
        assert inputs.warnings == (f"1 of 2 measurements may be of another model: {said}",)
        assert inputs.job_file.job.workload.checkpoint_bytes is None

    def test_a_rounded_number_of_parameters_is_no_other_model(self, tmp_path: Path) -> None:
        assert inputs_of(tmp_path, {"parameters": 25_557_032}).warnings == ()


class TestSoftware:
    old, new = {"torch": "2.3.1+cu121"}, {"torch": "2.13.0"}

    def test_several_versions_are_named_in_the_warning_and_in_the_plan(self, tmp_path: Path) -> None:
        rows = ({"software": self.old}, {"software": self.new}, {"software": self.new, "gpu_batch": 32}, {})
        inputs = inputs_of(tmp_path, *rows)
        ages = "1 of torch 2.3 beside 2 of torch 2.13"
        assert inputs.warnings == (f"used measurements of several versions, {ages}: the older ones count half",)
        assert f"4 measurements ({ages}), convergence" in make_plan(inputs).evidence.statement

    @pytest.mark.parametrize("software", [{}, {"torch": "2.13.1"}, {"torch": "nightly"}, {"python": "3.9"}])
    def test_one_version_is_not_worth_a_word(self, tmp_path: Path, software: dict[str, str]) -> None:
        inputs = inputs_of(tmp_path, {"software": self.new}, {"software": software})
        assert inputs.warnings == ()

    def test_older_rows_and_busy_machines_count_half(self) -> None:
        rows = [probe(software=self.new), probe(software=self.old), probe(), probe(window_variation=0.2)]
        assert trust(rows).tolist() == [1.0, 0.5, 1.0, 0.5]
        assert trust([probe(software=self.old, window_variation=0.1)]).tolist() == [1.0]
        assert trust([*rows, probe(software=self.old, window_variation=0.5)])[-1] == 0.25

    def test_a_doubtful_row_moves_the_median_less_and_leaves_the_interval_wider(self, tmp_path: Path) -> None:
        inputs = inputs_of(tmp_path)
        catalog = inputs.catalog
        asked = Configurations.of(catalog, catalog.instance_type_by_name["g5.12xlarge"], nodes=1, gpu_batch=64)

        def predict(*rows: Measurement) -> tuple[float, float]:
            found = StepTimeModel(inputs.job_file.job.workload, catalog).fit(rows).predict(asked)
            return float(found.p50[0]), float(np.log(found.p95[0] / found.p05[0]))

        both = (probe(software=self.new), probe(software=self.new, step_seconds=0.3))
        aged = (both[0], both[1].model_copy(update={"software": self.old}))
        busy = tuple(row.model_copy(update={"window_variation": 0.5}) for row in both)
        assert 0.2 < predict(*aged)[0] < predict(*both)[0]
        assert predict(*busy)[1] > predict(*both)[1]
        elsewhere = probe(software=self.new, gpu_batch=8, step_seconds=0.05)
        assert predict(elsewhere, probe(software=self.old))[1] > predict(elsewhere, both[0])[1]


class TestPlans:
    spot = JOB + "  spot: always\n  on_demand_base: 0\n"

    def plan(self, folder: Path, *rows: dict[str, Any], job: str = spot) -> Plan:
        return make_plan(inputs_of(folder, *rows, job=job))

    def test_a_slow_restore_is_priced(self, tmp_path: Path) -> None:
        before = self.plan(tmp_path, {})
        after = self.plan(tmp_path, {"checkpoint_restore_seconds": 900.0})
        assert before.spot is not None
        assert after.spot is not None
        assert before.spot.restart_seconds == pytest.approx(300 + 12 * 25.6e6 / 250e6, rel=1e-3)
        assert after.spot.restart_seconds == 300 + 900
        assert after.estimate.hours.p95 > before.estimate.hours.p95
        assert after.estimate.usd.p50 > before.estimate.usd.p50

    def test_a_slow_all_reduce_keeps_the_plan_off_several_nodes(self, tmp_path: Path) -> None:
        """What steps on two nodes take is hidden behind their work; the all-reduce on its own is ten times slower."""
        hurried = JOB.replace("  nodes: 1..2\n", "  nodes: 1..8\n") + "  spot: never\nobjective: time\n"
        slow = [{"bytes": size, "seconds": 0.002 + size / 8e7} for size in (65_536, 1_048_576, 102_400_000)]
        rows = ({"step_seconds": 0.2}, {"nodes": 2, "gpu_batch": 128, "step_seconds": 0.45})
        before = self.plan(tmp_path, *rows, job=hurried)
        after = self.plan(tmp_path, rows[0], {**rows[1], "allreduce": slow}, job=hurried)
        assert after.choice.node_count < before.choice.node_count
        assert after.estimate.hours.p50 > before.estimate.hours.p50
