"""Which probes are run, and that none is run twice."""

from __future__ import annotations

from pathlib import Path

from planner.inputs.measurements import Measurement
from planner.outside.store import load_job
from planner.probing.probe_plan import LOCAL, Probe, missing, spread_probes

JOB = load_job(Path(__file__).parents[2] / "examples" / "digits-cnn", {}).job


def measured(probe: Probe) -> Measurement:
    return Measurement(**probe._asdict(), step_seconds=0.1)


def test_three_batches_on_one_worker_and_the_middle_one_on_more() -> None:
    probes = spread_probes(JOB, [(1, 1), (1, 2)])
    assert [(probe.gpus_per_node, probe.gpu_batch) for probe in probes] == [(1, 64), (1, 128), (2, 64), (1, 256)]
    assert all(probe.instance_type == LOCAL for probe in probes)


def test_containers_are_nodes_of_one_worker() -> None:
    probes = spread_probes(JOB, [(1, 1), (2, 1)])
    assert [(probe.nodes, probe.gpu_batch) for probe in probes] == [(1, 64), (1, 128), (2, 64), (1, 256)]
    assert {(probe.instance_type, probe.gpus_per_node) for probe in probes} == {(LOCAL, 1)}
    assert missing(probes, [measured(probe) for probe in spread_probes(JOB, [(1, 1)])]) == [probes[2]]


def test_the_smallest_come_first() -> None:
    batches = [probe.global_batch for probe in spread_probes(JOB, [(1, 1), (1, 2), (1, 4)])]
    assert batches == sorted(batches)


def test_a_single_batch_size_is_probed_once() -> None:
    fixed = JOB.workload.model_copy(update={"global_batch": type(JOB.workload.global_batch)(32, 32)})
    assert len(spread_probes(JOB.model_copy(update={"workload": fixed}), [(1, 1)])) == 1


def test_what_was_measured_is_not_measured_again() -> None:
    probes = spread_probes(JOB, [(1, 1), (1, 2)])
    assert missing(probes, [measured(probes[0]), measured(probes[2])]) == [probes[1], probes[3]]
    assert missing(probes, [measured(probe) for probe in probes]) == []
