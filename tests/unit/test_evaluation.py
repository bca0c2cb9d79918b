"""Leaving probes out is what it says, repeats itself, and a further probe is weighed against what it can change."""

from __future__ import annotations

import itertools
import math
import sys
import tracemalloc
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.columns import Quantiles
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.parse import JobFile
from planner.inputs.measurements import Measurement
from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.models.configurations import Configurations
from planner.models.step_time.model import StepTimeModel
from planner.outside.store import load_catalog, load_job
from planner.plan import wording
from planner.plan.build import make_plan
from planner.probing.further_probe import expected_improvement, further_probe
from planner.probing.leave_out import HeldOut, cross_validated_error, error_table, hold_out, left_out_sets
from planner.probing.limits import accuracy_limits
from planner.search.decision import choose_candidate
from planner.search.pricing import Candidate
from planner.search.survey import Survey, take_survey

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
TYPES = ["g5.12xlarge", "g6.12xlarge", "g5.xlarge"]
JOB_FILE: JobFile = load_job(EXAMPLE, {"instance_types": TYPES, "nodes": "1..8", "budget": "$4000", "deadline": "90h"})
JOB = JOB_FILE.job


def probe(nodes: int, batch: int, seconds: float, kind: str = "g5.12xlarge") -> Measurement:
    return Measurement(
        instance_type=kind,
        nodes=nodes,
        gpus_per_node=CATALOG.instance_type_by_name[kind].gpu_count,
        gpu_batch=batch,
        precision="fp16",
        step_seconds=seconds,
    )


PROBES = (
    probe(1, 16, 0.05),
    probe(1, 64, 0.13),
    probe(1, 128, 0.24),
    probe(2, 64, 0.22),
    probe(4, 64, 0.25),
    probe(1, 64, 0.15, kind="g6.12xlarge"),
    probe(2, 64, 0.25, kind="g6.12xlarge"),
)


def lines_of(rows: Sequence[Measurement]) -> tuple[str, ...]:
    return tuple(row.model_dump_json() for row in rows)


@cache
def fitted_once(lines: Sequence[str]) -> StepTimeModel:
    return StepTimeModel(JOB.workload, CATALOG).fit([Measurement.model_validate_json(line) for line in lines])


def fitted(rows: Sequence[Measurement] = PROBES) -> StepTimeModel:
    return fitted_once(lines_of(rows))


@cache
def surveyed_once(lines: Sequence[str]) -> tuple[PlanInputs, Survey]:
    return survey_of([Measurement.model_validate_json(line) for line in lines], JOB_FILE)


def survey_of_the_job(rows: Sequence[Measurement]) -> tuple[PlanInputs, Survey]:
    return surveyed_once(lines_of(rows))


def survey_of(rows: Sequence[Measurement], job_file: JobFile) -> tuple[PlanInputs, Survey]:
    digest = "0" * 64
    provenance = Provenance(
        job_sha256=digest,
        measurements_sha256=None,
        catalog_sha256=digest,
        catalog="test",
        catalog_date=CATALOG.date,
    )
    inputs = PlanInputs(job_file=job_file, catalog=CATALOG, measurements=tuple(rows), provenance=provenance)
    return inputs, take_survey(inputs)


class TestLeavingOut:
    @pytest.mark.parametrize("left_out", range(len(PROBES)))
    def test_a_refit_is_the_model_without_that_probe(self, left_out: int) -> None:
        gone = PROBES[left_out]
        kind = CATALOG.instance_type_by_name[gone.instance_type]
        one = Configurations.of(CATALOG, kind, nodes=gone.nodes, gpu_batch=gone.gpu_batch)
        expected = fitted([row for row in PROBES if row is not gone]).predict(one)
        model = fitted()
        rows = model.rows_[kind.name]
        kept = (rows.placements.nodes != gone.nodes) | (rows.placements.gpu_batch != gone.gpu_batch)
        found = model.with_rows(kind.name, rows.at(kept)).predict(one)
        assert found.p50 == pytest.approx(expected.p50, rel=1e-3)
        assert found.p95 == pytest.approx(expected.p95, rel=1e-3)

    def test_the_only_probe_of_a_type_is_predicted_from_the_other_types(self) -> None:
        rows = [*PROBES[:5], PROBES[5]]
        found = [row for row in hold_out(fitted(rows)) if row.instance_type == "g6.12xlarge"]
        assert [row.beyond for row in found] == ["extrapolation"]
        assert found[0].predicted.p95 / found[0].predicted.p50 > 1.2

    def test_every_probe_is_left_out_and_repeats_go_with_it(self) -> None:
        found = hold_out(fitted([*PROBES, PROBES[0], PROBES[0]]))
        alone = {(row.instance_type, row.nodes, row.gpu_batch) for row in found}
        assert alone == {(row.instance_type, row.nodes, row.gpu_batch) for row in PROBES}
        assert len(found) == len(PROBES)  # no end is shared by several but not all

    def test_outside_the_range_of_the_others_is_extrapolation(self) -> None:
        found = {(row.nodes, row.gpu_batch): row.beyond for row in hold_out(fitted(PROBES[:5]))}
        assert found == {
            (1, 16): "extrapolation",
            (1, 64): "interpolation",
            (1, 128): "extrapolation",
            (2, 64): "interpolation",
            (4, 64): "extrapolation",
        }

    def test_at_the_edge_of_the_others_is_interpolation(self) -> None:
        # Without (2, 16), the others end at 2 nodes and at a local batch of 16 all the same.
        rows = [probe(1, 16, 0.1), probe(1, 32, 0.15), probe(2, 16, 0.12), probe(2, 32, 0.18), probe(1, 24, 0.13)]
        found = [row.beyond for row in hold_out(fitted(rows)) if (row.nodes, row.gpu_batch) == (2, 16)]
        assert sorted(found) == ["extrapolation", "interpolation"]  # with all of 2 nodes, and alone

    def test_an_end_that_several_share_is_left_out_as_a_whole(self) -> None:
        rows = fitted([*PROBES[:5], probe(4, 16, 0.17)]).rows_["g5.12xlarge"]
        sets = [set(rows.placements.nodes[each].tolist()) for each in left_out_sets(rows, 24) if len(each) > 1]
        assert sets == [{4}]

    def test_many_probes_are_left_out_in_groups_that_cover_them(self) -> None:
        rows = fitted(many(50)).rows_["g5.12xlarge"]
        sets = left_out_sets(rows, 8)
        assert len(sets) <= 8 + 2
        assert sorted(np.concatenate(sets[:8]).tolist()) == list(range(len(rows)))

    def test_neither_order_nor_repetition_changes_the_result(self) -> None:
        first = hold_out(fitted(), baselines=True)
        assert hold_out(fitted(PROBES[::-1]), baselines=True) == first

    def test_baselines_see_the_same_probes(self) -> None:
        table = error_table(hold_out(fitted(), baselines=True))
        for beyond in ("interpolation", "extrapolation"):
            assert len({row.probes for row in table if row.beyond == beyond}) == 1
        assert [row.model for row in table[:3]] == ["scav", "plain forest", "physical form"]

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_with_few_probes_there_is_no_error(self, count: int) -> None:
        assert cross_validated_error(fitted(PROBES[:count])) is None
        hold_out(fitted(PROBES[:count]), baselines=True)  # still answers

    def test_the_table_adds_up(self) -> None:
        def row(predicted: float, measured: float) -> HeldOut:
            middle = Quantiles(predicted / 1.1, predicted, predicted * 1.1)
            return HeldOut("scav", "g5.12xlarge", 1, 64, "interpolation", measured, middle)

        (only,) = error_table([row(1.0, 1.0), row(1.2, 1.0)])
        assert (only.probes, only.inside) == (2, 1)
        assert only.error == pytest.approx(0.1)


def many(count: int) -> list[Measurement]:
    random = np.random.default_rng(0)
    nodes, batches = random.choice([1, 2, 3, 4, 6, 8], count), random.integers(8, 256, count)
    noise = np.exp(0.03 * random.normal(size=count))
    seconds = (0.01 + 0.002 * batches + 0.05 * (nodes - 1) / nodes) * noise
    rows = zip(nodes.tolist(), batches.tolist(), seconds.tolist(), strict=True)
    return [probe(*row, kind=TYPES[index % 2]) for index, row in enumerate(rows)]


def work_of_fitting(rows: Sequence[Measurement]) -> tuple[int, int]:
    """Calls made and bytes held at most: what work is, however busy the machine."""
    calls = itertools.count()
    sys.setprofile(lambda _frame, event, _argument: next(calls) if event in ("call", "c_call") else None)
    StepTimeModel(JOB.workload, CATALOG).fit(rows)
    sys.setprofile(None)
    tracemalloc.start()
    StepTimeModel(JOB.workload, CATALOG).fit(rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return next(calls), most


@pytest.mark.slow
def test_fitting_four_times_the_rows_takes_far_less_than_sixteen_times_the_work() -> None:
    fitted(many(100))  # imports
    few, many_rows = (work_of_fitting(many(count)) for count in (500, 2000))
    assert many_rows[0] < 4 * few[0]
    assert many_rows[1] < 8 * few[1]


class TestFurtherProbe:
    def test_is_small_enough_to_rent_for_measuring_and_was_not_measured(self) -> None:
        for count in (0, 1, 3, 5):
            inputs, survey = survey_of_the_job(PROBES[:count])
            choice = choose_candidate(inputs, survey).expected
            found = further_probe(JOB, CATALOG, survey.models, survey.found.finalists, choice)
            assert found is not None
            assert found.nodes <= 4
            assert found.gain_usd >= 0
            known = {(row.instance_type, row.nodes, row.gpu_batch) for row in PROBES[:count]}
            assert (found.instance_type, found.nodes, found.gpu_batch) not in known

    def test_costs_the_start_of_its_cluster_and_450_steps_and_a_minute_at_its_price(self) -> None:
        inputs, survey = survey_of_the_job(PROBES[:5])
        choice = choose_candidate(inputs, survey).expected
        found = further_probe(JOB, CATALOG, survey.models, survey.found.finalists, choice)
        assert found is not None
        offers = CATALOG.offers_by_type[found.instance_type]
        hourly = found.nodes * min(offer.on_demand_usd or 0.0 for offer in offers if offer.region == choice.region)
        instance_type = CATALOG.instance_type_by_name[found.instance_type]
        one = Configurations.of(CATALOG, instance_type, nodes=found.nodes, gpu_batch=found.gpu_batch)
        steps = 450 * float(survey.models.step_seconds(one).p50[0])
        seconds = survey.models.overheads.startup_seconds + steps + 60
        assert 1.0 < found.price_usd / (hourly * seconds / 3600) < 1.04  # the rest is for its volumes

    @pytest.mark.parametrize(("samples", "worthwhile"), [(1e5, False), (1e10, True)])
    def test_a_small_job_is_not_worth_a_probe_and_a_large_one_is(self, samples: float, worthwhile: bool) -> None:
        overrides = {"instance_types": TYPES, "budget": "$10000000", "deadline": "100000h", "objective": "cost"}
        job_file = load_job(EXAMPLE, overrides)
        target = job_file.job.workload.target.model_copy(update={"samples": samples, "epochs": None})
        workload = job_file.job.workload.model_copy(update={"target": target})
        job = job_file.job.model_copy(update={"workload": workload})
        inputs, survey = survey_of((), JobFile(job=job, file=job_file.file, lines=job_file.lines))
        choice = choose_candidate(inputs, survey).expected
        found = further_probe(job, CATALOG, survey.models, survey.found.finalists, choice)
        assert (found is not None and found.repays) is worthwhile

    def test_nothing_to_compare_with_is_nothing_to_probe(self) -> None:
        inputs, survey = survey_of_the_job(())
        choice = choose_candidate(inputs, survey).expected
        assert further_probe(JOB, CATALOG, survey.models, [choice], choice) is None


class TestPlan:
    def test_carries_the_error_of_left_out_probes_from_three_on(self) -> None:
        for count, known in ((2, False), (5, True)):
            inputs, survey = survey_of_the_job(PROBES[:count])
            error = make_plan(inputs, survey).evidence.cross_validated_error
            assert (error is not None) is known
        assert error == pytest.approx(cross_validated_error(survey.models.step_time), rel=1e-4)

    def test_says_what_a_probe_would_be_worth(self) -> None:
        inputs, survey = survey_of_the_job(())
        choice = choose_candidate(inputs, survey).expected
        found = further_probe(JOB, CATALOG, survey.models, survey.found.finalists, choice)
        assert found is not None
        last = make_plan(inputs, survey).sensitivity[-1]
        assert (" is expected to save $" in last) is found.repays

    def test_an_objective_in_hours_is_saved_in_hours(self) -> None:
        job_file = load_job(EXAMPLE, {"instance_types": ["*"], "objective": "time", "budget": "$100000"})
        inputs, survey = survey_of((), job_file)
        choice = choose_candidate(inputs, survey).expected
        found = further_probe(job_file.job, CATALOG, survey.models, survey.found.finalists, choice)
        assert found is not None
        assert found.gain_usd == pytest.approx(found.gain * choice.usd.p50)
        assert wording.worth(found, first=True).rstrip(")").endswith(" % of the hours")

    def test_prefers_what_was_measured_when_it_is_close(self) -> None:
        """Compared at the upper end of its interval, an unknown type must be clearly better, not just likely so."""
        limits = {"nodes": "1", "spot": "never", "deadline": "9000h", "budget": "$90000", "objective": "cost"}
        job_file = load_job(EXAMPLE, {"instance_types": TYPES[:2], **limits})
        preferred = set()
        for slower in np.geomspace(0.5, 4.0, 7):
            rows = [probe(1, row.gpu_batch, row.step_seconds * float(slower), TYPES[1]) for row in PROBES[:3]]
            inputs, survey = survey_of(rows, job_file)
            choice = choose_candidate(inputs, survey).expected
            likely = min(survey.found.finalists, key=lambda row: row.usd.p50)
            preferred.add((choice.instance_type, likely.instance_type))
        assert ("g6.12xlarge", "g5.12xlarge") in preferred  # close: the measured one
        assert ("g5.12xlarge", "g5.12xlarge") in preferred  # clearly better: the unknown one
        assert ("g5.12xlarge", "g6.12xlarge") not in preferred


class TestLimits:
    def limits(self, rows: Sequence[Measurement], choice: Candidate | None = None) -> str:
        _, survey = survey_of_the_job(rows)
        return "\n".join(accuracy_limits(JOB, survey.models, choice, convergence="from a wide prior", batch=1024))

    def test_without_probes_names_the_data_sheets(self) -> None:
        assert "no probe yet: step times are the data sheets'" in self.limits(())

    def test_one_node_says_nothing_about_the_network(self) -> None:
        expected = "no probe of g5.12xlarge with more than 1 node: time on 8 is from the network's data sheet"
        assert expected in self.limits(PROBES[:3])
        assert "more than 4 nodes: time on 8 follows from fewer" in self.limits(PROBES[:5])

    def test_probes_that_do_not_repeat(self) -> None:
        assert "repeat" not in self.limits([*PROBES, PROBES[0]])
        assert "probes of g5.12xlarge repeat only within" in self.limits([*PROBES, probe(1, 64, 0.17)])

    def test_samples_from_a_prior(self) -> None:
        assert "samples to the target at batch 1,024, from a wide prior: -" in self.limits(PROBES)


@given(st.floats(-3, 3), st.floats(0, 2), st.floats(0.1, 10))
def test_improvement_is_a_share_and_grows_with_doubt(log_value, sd, best):
    known, vague = (expected_improvement(np.array([log_value]), np.array([s]), best)[0] for s in (sd, sd + 0.1))
    assert 0 <= known <= 1
    assert known >= max(0.0, 1 - math.exp(log_value + sd**2 / 2) / best) - 1e-9
    if sd == 0:
        assert known == pytest.approx(max(0.0, 1 - math.exp(log_value) / best), abs=1e-9)
    if log_value > math.log(best):
        assert vague >= known - 1e-9 or sd > 1
