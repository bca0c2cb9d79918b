"""What `scav tune` may measure and what it believes of that: on rented clusters, and on this machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from test_probe_clusters import example_inputs

from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs
from planner.models import fit_convergence
from planner.probing.next_probe import Visit
from planner.probing.tuning import RentedSpace, rented_space
from planner.probing.tuning_here import SpaceHere
from planner.search import take_survey

TYPES = ["g5.12xlarge", "g4dn.12xlarge"]


@cache
def resnet(spot: str = "never") -> PlanInputs:
    return example_inputs("resnet50-imagenet", instance_types=TYPES, nodes="1..6", spot=spot)


@cache
def space() -> RentedSpace:
    return rented_space(resnet(), spot=False)


def after(*measured: Measurement) -> PlanInputs:
    return replace(resnet(), measurements=measured)


def measurement(row: int, step_seconds: float) -> Measurement:
    rented = space()
    offer = rented.offers[int(rented.space.instance_type[row])]
    return Measurement(
        instance_type=offer.instance_type,
        nodes=int(rented.space.nodes[row]),
        gpus_per_node=4,
        gpu_batch=int(rented.space.gpu_batch[row]),
        precision=resnet().job_file.job.workload.precision,
        step_seconds=step_seconds,
    )


def test_whole_nodes_of_each_family_and_no_more_than_four_are_measured() -> None:
    rented = space()
    assert {offer.instance_type for offer in rented.offers} == set(TYPES)
    assert (rented.space.gpus == 4 * rented.space.nodes).all()
    assert (rented.space.measurable == (rented.space.nodes <= 4)).all()
    assert rented.space.nodes.max() == 6
    allowed = resnet().job_file.job.workload.global_batch
    batch = rented.space.gpus * rented.space.gpu_batch
    assert batch.min() >= allowed.low
    assert batch.max() <= allowed.high


def test_measurements_change_neither_the_space_nor_the_start() -> None:
    again = rented_space(after(measurement(space().start[0], 5.0)), spot=False)
    before = {
        (row.instance_type, tuple(table.gpu_batch)) for row, table in zip(space().offers, space().tables, strict=True)
    }
    now = {(row.instance_type, tuple(table.gpu_batch)) for row, table in zip(again.offers, again.tables, strict=True)}
    assert now == before
    assert len(again.start) == len(space().start)


def test_what_was_measured_is_known_and_sure() -> None:
    row = space().start[0]
    cold = space().believe(resnet(), take_survey(resnet()))
    inputs = after(measurement(row, 0.5))
    belief = space().believe(inputs, take_survey(inputs))
    assert dict(cold.measured) == {}
    assert set(belief.measured) == {row}
    assert belief.measured[row] == pytest.approx(float(np.exp(belief.log_value[row])))
    assert belief.log_sd[row] < cold.log_sd[row] / 2


def test_a_slow_measurement_makes_its_own_type_worse_than_the_other() -> None:
    row = space().start[0]
    code = space().space.instance_type
    slow, fast = (after(measurement(row, seconds)) for seconds in (20.0, 0.05))
    worse, better = (space().believe(each, take_survey(each)) for each in (slow, fast))
    own = code == code[row]
    assert worse.log_value[own].min() > worse.log_value[~own].min()
    assert better.log_value[own].min() < better.log_value[~own].min()


def test_what_breaks_a_limit_as_likely_as_not_is_not_to_be_chosen() -> None:
    tight = example_inputs("resnet50-imagenet", instance_types=TYPES, nodes="1..6", spot="never", deadline="8h")
    rented = rented_space(tight, spot=False)
    belief = rented.believe(tight, take_survey(tight))
    one_node = rented.space.nodes == 1
    assert not np.isfinite(belief.log_value[one_node]).any()
    assert np.isfinite(belief.log_value[rented.space.nodes == 6]).any()


def test_a_visit_is_a_cluster_with_its_batches_in_order_and_a_highest_price() -> None:
    rented = space()
    rows = np.flatnonzero((rented.space.instance_type == 0) & (rented.space.nodes == 2))[:2].tolist()
    cluster = rented.cluster(resnet(), take_survey(resnet()), Visit((rows[1], rows[0])))
    assert (cluster.nodes, cluster.instance_type) == (2, rented.offers[0].instance_type)
    assert cluster.gpu_batches == tuple(sorted(int(rented.space.gpu_batch[row]) for row in rows))
    assert cluster.max_usd > cluster.expected_usd > 0


def here(workers: int, batch: int, step_seconds: float) -> Measurement:
    return Measurement(
        instance_type="local",
        nodes=1,
        gpus_per_node=workers,
        gpu_batch=batch,
        precision="fp32",
        step_seconds=step_seconds,
    )


class TestHere:
    job = example_inputs("digits-cnn").job_file.job
    samples = fit_convergence(job, None)
    machine = SpaceHere(job, [(1, 1), (1, 2)])

    def test_it_starts_with_the_ends_on_one_worker_and_on_all(self) -> None:
        probes = [self.machine.probe(row) for row in self.machine.start()]
        assert {(probe.gpus_per_node, probe.gpu_batch) for probe in probes} == {(1, 64), (1, 256), (2, 32), (2, 128)}

    def test_before_anything_is_measured_it_only_knows_that_probes_take_time(self) -> None:
        belief = self.machine.believe([], self.samples)
        assert belief.measured == {}
        assert (belief.probe_seconds > 60).all()

    def test_two_workers_that_take_as_long_for_as_many_samples_each_are_faster(self) -> None:
        rows = [here(1, 64, 0.064), here(1, 256, 0.256), here(2, 32, 0.032), here(2, 128, 0.128)]
        choice = self.machine.choose(rows, self.samples)
        assert choice.probe.gpus_per_node == 2
        belief = self.machine.believe(rows, self.samples)
        assert len(belief.measured) == 4
        hours = 9 * 1438 / 64 * 0.064 / 3600  # as the job file says of its reference batch
        one_worker = next(row for row in belief.measured if self.machine.probe(row).gpu_batch == 64)
        assert belief.measured[one_worker] == pytest.approx(hours, rel=0.1)

    def test_two_workers_that_wait_for_each_other_are_left_alone(self) -> None:
        rows = [here(1, 64, 0.064), here(1, 256, 0.256), here(2, 32, 0.3), here(2, 128, 0.5)]
        choice = self.machine.choose(rows, self.samples)
        assert (choice.probe.gpus_per_node, choice.is_measured) == (1, True)


def test_a_model_that_is_spread_is_measured_as_it_would_be_planned() -> None:
    inputs = example_inputs("tiny-llama", deadline="5000h", budget="$10000")
    rented = rented_space(inputs, spot=False)
    assert all(offer.strategy is not None for offer in rented.offers)
    assert all(table.strategies is not None for table in rented.tables)
    cold = rented.believe(inputs, take_survey(inputs))
    assert np.isfinite(cold.log_value).any()
    row = int(np.flatnonzero(rented.space.measurable)[0])
    offer = rented.offers[int(rented.space.instance_type[row])]
    known = Measurement(
        instance_type=offer.instance_type,
        nodes=int(rented.space.nodes[row]),
        gpus_per_node=1,
        gpu_batch=int(rented.space.gpu_batch[row]),
        precision="fp32",
        step_seconds=0.5,
        strategy=offer.strategy,
    )
    after_it = replace(inputs, measurements=(known,))
    assert set(rented.believe(after_it, take_survey(after_it)).measured) == {row}
    otherwise = replace(inputs, measurements=(known.model_copy(update={"strategy": None}),))
    assert not rented.believe(otherwise, take_survey(otherwise)).measured
    assert rented.cluster(inputs, take_survey(inputs), Visit((row,))).strategy == offer.strategy
