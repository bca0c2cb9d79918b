"""Laws that fitted step times keep whatever was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.columns import Prediction
from planner.inputs.catalog.tables import Catalog
from planner.inputs.earlier_jobs import EarlierJob
from planner.inputs.job.schema import Job
from planner.inputs.measurements import Measurement
from planner.models.configurations import Configurations
from planner.models.step_time.formula import NAMES, log_step
from planner.models.step_time.history import fit_history
from planner.models.step_time.model import StepTimeModel
from planner.models.step_time.node_type import NodeTypeModel, fit_node_type
from planner.models.step_time.pooling import SHAPES, pooled_prior
from planner.models.step_time.posterior import fit_posterior
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.models.step_time.table import rising
from planner.outside.store import load_catalog, load_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50-imagenet"
CATALOG: Catalog = load_catalog(None, beside=Path("nowhere"))[0]
JOB: Job = load_job(EXAMPLE, {}).job
KIND = "g5.12xlarge"


def probe(nodes: int, batch: int, seconds: float, kind: str = KIND, sync: float | None = None) -> Measurement:
    return Measurement(
        instance_type=kind,
        nodes=nodes,
        gpus_per_node=CATALOG.instance_type_by_name[kind].gpu_count,
        gpu_batch=batch,
        precision="fp16",
        step_seconds=seconds,
        exposed_sync_seconds=sync,
    )


PROBES = (
    probe(1, 16, 0.14),
    probe(1, 64, 0.41),
    probe(2, 16, 0.33, sync=0.20),
    probe(2, 64, 0.55, sync=0.15),
    probe(4, 64, 0.60, sync=0.20),
    probe(1, 64, 0.09, kind="p4d.24xlarge"),
    probe(2, 64, 0.11, kind="p4d.24xlarge"),
)


def fitted(rows: Sequence[Measurement] = PROBES) -> StepTimeModel:
    return StepTimeModel(JOB.workload, CATALOG).fit(rows)


FITTED = fitted()


def predict(
    model: StepTimeModel, nodes: Sequence[int], batch: Sequence[int], kind: str = KIND, steps: int = 1
) -> Prediction:
    instance_type = CATALOG.instance_type_by_name[kind]
    return model.predict(
        Configurations(
            instance_type=instance_type,
            gpu=CATALOG.gpu_of(instance_type),
            nodes=np.array(nodes),
            gpu_batch=np.array(batch),
            accumulation_steps=np.full(len(nodes), steps),
        )
    )


def width(row: Prediction) -> float:
    return float(row.p95[0] / row.p05[0])


def campaign(nodes: Sequence[int] = (1, 2, 4), seed: int = 0, noise: float = 0.03) -> MeasuredRows:
    """Placements of up to four GPUs per node, with seconds from a known form."""
    table = [(n, n * g, g, m) for n in nodes for g in (1, 2, 4) for m in (8, 16, 32, 64, 128)]
    placements = placements_of(table)
    truth = USUAL.mean.copy()
    truth[NAMES.index("network")] = -0.5
    step, work = log_step(truth, placements, 32.0)
    step = step + noise * np.random.default_rng(seed).standard_normal(len(step))
    return measured_rows(placements, np.exp(step), np.maximum(np.exp(step) - np.exp(work), 0.0))


def placements_of(table: Sequence[tuple[int, int, int, int]]) -> Placements:
    """Rows of nodes, GPUs, GPUs on the fullest node and batch; without accumulation."""
    nodes, workers, most_per_node, gpu_batch = (np.array(column) for column in zip(*table, strict=True))
    return Placements(
        nodes=nodes,
        workers=workers,
        most_per_node=most_per_node,
        gpu_batch=gpu_batch,
        accumulation_steps=np.ones_like(gpu_batch),
    )


class TestLaws:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from([KIND, "p4d.24xlarge", "g6.12xlarge"]),
        st.integers(1, 64),
        st.integers(1, 4096),
        st.integers(1, 8),
    )
    def test_positive_finite_and_ordered(self, kind: str, nodes: int, batch: int, steps: int) -> None:
        low, middle, high = predict(FITTED, [nodes], [batch], kind, steps).rows()[0]
        assert 0 < low < middle < high < math.inf

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 16), st.integers(1, 4), st.lists(st.integers(1, 5000), min_size=2, max_size=30))
    def test_more_samples_per_step_never_take_less_time(self, nodes: int, steps: int, batches: list[int]) -> None:
        batches = sorted(batches)
        seconds = predict(FITTED, [nodes] * len(batches), batches, steps=steps).p50
        assert (np.diff(seconds) >= -1e-12 * seconds[:-1]).all()
        assert (predict(FITTED, [nodes] * len(batches), batches, steps=steps + 1).p50 >= seconds).all()

    @settings(max_examples=20, deadline=None)
    @given(st.integers(1, 32), st.integers(1, 512), st.floats(1.0, 10.0))
    def test_more_bandwidth_is_never_slower_on_a_type_that_learns_from_others(
        self, nodes: int, batch: int, factor: float
    ) -> None:
        kind = CATALOG.instance_type_by_name["g6.12xlarge"]
        faster = kind.model_copy(
            update={
                "network_baseline_gbps": kind.network_baseline_gbps * factor,
                "gpu_link_gb_per_second": kind.gpu_link_gb_per_second * factor,
            }
        )
        columns = {
            "gpu": CATALOG.gpu_of(kind),
            "nodes": np.array([nodes]),
            "gpu_batch": np.array([batch]),
            "accumulation_steps": np.array([1]),
        }
        slow, fast = (FITTED.predict(Configurations(instance_type=each, **columns)) for each in (kind, faster))
        assert fast.p50[0] <= slow.p50[0]

    def test_a_row_is_predicted_alike_alone_and_in_a_table(self) -> None:
        nodes, batch = np.repeat([1, 2, 3, 8], 50), np.tile(np.arange(1, 51), 4)
        together = predict(FITTED, list(nodes), list(batch))
        for index in (0, 57, 133, 199):
            alone = predict(FITTED, [int(nodes[index])], [int(batch[index])])
            assert alone.p50[0] == pytest.approx(together.p50[index], rel=1e-9)
            assert alone.p95[0] == pytest.approx(together.p95[index], rel=1e-9)

    def test_the_order_of_measurements_does_not_matter(self) -> None:
        shuffled = [PROBES[index] for index in np.random.default_rng(3).permutation(len(PROBES))]
        again = predict(fitted(shuffled), [1, 2, 16], [64, 100, 7])
        assert again.rows() == predict(FITTED, [1, 2, 16], [64, 100, 7]).rows()

    def test_many_rows_in_any_order_fit_the_same(self) -> None:
        rows = campaign((1, 2, 3, 4, 6, 8))
        order = np.random.default_rng(1).permutation(len(rows))
        back = measured_rows(rows.placements.at(order), np.exp(rows.log_step[order]), None)
        forth = measured_rows(rows.placements, np.exp(rows.log_step), None)
        one, other = (fit_node_type(each).log_step(rows.placements) for each in (back, forth))
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])

    def test_a_duplicate_only_adds_weight(self) -> None:
        once, twice = (
            predict(FITTED, [1, 2, 8], [64, 32, 64]),
            predict(fitted([*PROBES, *PROBES]), [1, 2, 8], [64, 32, 64]),
        )
        assert twice.p50 == pytest.approx(once.p50, rel=0.05)
        rows = MeasuredRows.__slots__
        single, double = FITTED.rows_[KIND], fitted([*PROBES, *PROBES]).rows_[KIND]
        for name in set(rows) - {"count", "weight", "placements"}:
            assert np.array_equal(getattr(single, name), getattr(double, name), equal_nan=True), name
        assert np.array_equal(double.weight, 2 * single.weight)

    @given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
    def test_rising_never_falls_and_keeps_the_mean(self, values: list[float]) -> None:
        found = rising(np.array(values))
        assert (np.diff(found) >= -1e-12).all()
        assert found.mean() == pytest.approx(np.mean(values), abs=1e-9)


class TestWhatIsKnown:
    def test_nothing_one_probe_and_more_become_surer(self) -> None:
        widths = [width(predict(fitted(PROBES[:count]), [1], [64])) for count in (0, 1, 5)]
        assert widths[0] > widths[1] > widths[2] > 1

    def test_one_probe_is_believed_where_it_was_taken(self) -> None:
        row = predict(fitted([probe(1, 64, 1.3)]), [1], [64]).rows()[0]
        assert row.p50 == pytest.approx(1.3, rel=0.1)
        assert row.p05 < 1.3 < row.p95

    def test_contradictory_probes_widen_the_interval_and_are_named(self) -> None:
        agreeing = fitted([probe(1, 64, 0.6), probe(1, 64, 0.62)])
        model = fitted([probe(1, 64, 0.2), probe(1, 64, 1.8)])
        row = predict(model, [1], [64])
        assert width(row) > 3 * width(predict(agreeing, [1], [64]))
        assert row.p05[0] < 0.2 < 1.8 < row.p95[0]
        assert "0.2 to 1.8 s" in model.warnings_[0]

    def test_extrapolation_has_a_reason(self) -> None:
        assert FITTED.why_extrapolated(KIND, 16, 64) == "16 nodes, probed up to 4"
        assert FITTED.why_extrapolated(KIND, 4, 65) == "65 samples per GPU, probed up to 64"
        assert FITTED.why_extrapolated("g6.12xlarge", 1, 1) == "g6.12xlarge was never probed"
        assert FITTED.why_extrapolated(KIND, 4, 64) is None
        assert list(predict(FITTED, [4, 16, 4], [64, 64, 65]).extrapolated) == [False, True, True]

    def test_fewer_than_were_probed_are_extrapolated_too(self) -> None:
        model = fitted([probe(4, 32, 0.4), probe(4, 64, 0.6)])
        assert model.why_extrapolated(KIND, 1, 16) == "1 nodes, probed from 4 on; 16 samples per GPU, probed from 32 on"
        assert list(predict(model, [4, 1, 4], [48, 48, 16]).extrapolated) == [False, True, True]

    def test_no_configurations_are_no_error(self) -> None:
        assert len(predict(FITTED, [], []).p50) == 0

    def test_further_from_the_probes_is_less_sure(self) -> None:
        widths = [width(predict(FITTED, [nodes], [64])) for nodes in (2, 8, 64)]
        assert widths == sorted(widths)

    def test_an_unprobed_type_is_less_sure_than_a_probed_one_and_surer_than_a_cold_start(self) -> None:
        cold, other, probed = (
            width(predict(model, [1], [64], kind))
            for model, kind in ((fitted(()), "g6.12xlarge"), (FITTED, "g6.12xlarge"), (FITTED, KIND))
        )
        assert cold > other > probed


class TestCorrection:
    """Kernels change with the batch: step times may alternate between neighbouring batches."""

    @settings(max_examples=15, deadline=None)
    @given(st.floats(0.05, 0.4), st.integers(0, 3), st.sampled_from([(1,), (1, 2), (1, 2, 4)]))
    def test_residuals_that_alternate_are_not_carried_beyond_the_probes(
        self, size: float, seed: int, nodes: tuple[int, ...]
    ) -> None:
        where = placements_of([(n, 4 * n, 4, m) for n in nodes for m in (8, 12, 16, 24, 32, 48, 64)])
        turn = size * (-1.0) ** np.arange(len(where)) + 0.02 * np.random.default_rng(seed).standard_normal(len(where))
        smooth = log_step(USUAL.mean, where, 32.0)[0]
        model = fit_node_type(measured_rows(where, np.exp(smooth + turn), None))
        beyond = placements_of([(n, 4 * n, 4, m) for n in nodes for m in (2, 256)])
        correction = model.correction.predict(model.posterior, beyond)[0]
        moved = model.log_step(beyond)[0] - model.posterior.log_step(beyond)  # also to the middle of both forms
        residual = smooth + turn - model.posterior.log_step(where)
        assert np.abs(moved).max() < np.abs(residual).max()
        # Two doublings are a reach: most of what the last probe said is forgotten.
        assert np.abs(correction).max() < 0.5 * np.abs(residual).max()

    def test_doubt_grows_along_each_axis_on_its_own(self) -> None:
        model = fit_node_type(campaign((1, 2, 4)))
        table = [(4, 16, 4, 128), (8, 32, 4, 128), (8, 32, 4, 256), (16, 64, 4, 512)]
        assert model.doubt(placements_of(table)) == pytest.approx(0.12**2 * np.array([0, 1, 2, 8]))
        sd = model.log_step(placements_of(table))[1]
        assert (np.diff(sd) > 0).all()
        assert model.stretch >= 1


class TestBoundByTheHost:
    """All batches that were measured take the same time: what larger ones take is anybody's guess."""

    def flat(self, batches: Sequence[int]) -> NodeTypeModel:
        where = placements_of([(1, g, g, m) for g in (1, 2, 4) for m in batches])
        return fit_node_type(measured_rows(where, np.full(len(where), 0.1), None))

    def test_the_middle_of_what_is_possible_is_expected_and_not_the_most_growth(self) -> None:
        far = placements_of([(1, 1, 1, 256 * 2**doublings) for doublings in range(1, 6)])
        model = self.flat((8, 16, 32, 64, 128, 256))
        middle, sd = model.log_step(far)
        assert (np.diff(middle) >= 0).all()
        assert math.log(0.1) - 0.05 < middle[0] <= middle[-1] < math.log(2 * 0.1)
        assert (np.diff(sd) > 0).all()  # and the interval grows with each doubling

    def test_growth_that_was_measured_stays(self) -> None:
        rows = campaign((1, 2, 4))
        far = placements_of([(1, 4, 4, 512)])
        truth = USUAL.mean.copy()
        truth[NAMES.index("network")] = -0.5
        expected = log_step(truth, far, 32.0)[0]
        assert fit_node_type(rows).log_step(far)[0] == pytest.approx(expected, abs=0.1)


class TestAccuracy:
    def error(self, model: NodeTypeModel, rows: MeasuredRows) -> float:
        return float(np.mean(np.abs(model.log_step(rows.placements)[0] - rows.log_step)))

    def test_recovers_the_form_that_made_the_rows_and_extrapolates_it(self) -> None:
        model = fit_node_type(campaign((1, 2, 4)))
        far = campaign((8, 16), seed=1)
        assert self.error(model, far) < 0.12
        median, sd = model.log_step(far.placements)
        assert np.mean(np.abs(median - far.log_step) < 1.645 * sd) > 0.8

    def test_intervals_hold_nine_in_ten_of_new_rows(self) -> None:
        inside = []
        for seed in range(4):
            rows = campaign((1, 2, 3, 4, 6, 8), seed=seed, noise=0.1)
            left_out = np.random.default_rng(seed).permutation(len(rows)) < 30
            median, sd = fit_node_type(rows.at(~left_out)).log_step(rows.placements.at(left_out))
            inside.append(np.mean(np.abs(median - rows.log_step[left_out]) < 1.645 * sd))
        assert 0.82 < np.mean(inside) < 0.98

    def test_history_of_the_node_type_teaches_shapes_and_nothing_else(self) -> None:
        history = [fit_posterior(campaign((1, 2, 4, 8), seed=seed), USUAL) for seed in (1, 2)]
        after = pooled_prior(history, USUAL)
        assert (after.sd <= USUAL.sd).all()
        kept = np.delete(np.arange(len(NAMES)), SHAPES)
        assert np.array_equal(after.mean[kept], USUAL.mean[kept])
        assert (after.sd[SHAPES] < USUAL.sd[SHAPES]).any()

    def test_history_in_a_store_of_measurements_is_used_on_its_own_type_only(self) -> None:
        other_job = [probe(nodes, batch, 0.2 * nodes**0.4 + batch / 200) for nodes in (1, 2, 3, 4) for batch in (8, 64)]
        jobs = [EarlierJob(name="long", rows=tuple(other_job)), EarlierJob(name="short", rows=tuple(other_job[:2]))]
        history = fit_history(jobs, CATALOG)
        assert {name: len(shapes) for name, shapes in history.shapes.items()} == {KIND: 1}
        model = StepTimeModel(JOB.workload, CATALOG, history).fit(PROBES[:2])
        assert predict(model, [16], [64]).p50[0] != predict(fitted(PROBES[:2]), [16], [64]).p50[0]

    def test_no_history_changes_nothing(self) -> None:
        after = pooled_prior([], USUAL)
        assert np.array_equal(after.mean, USUAL.mean)
        assert np.array_equal(after.sd, USUAL.sd)

    def test_fitting_two_thousand_rows_is_quick_and_repeatable(self) -> None:
        table = [(n, n * g, g, m) for n in range(1, 11) for g in range(1, 9) for m in range(4, 29)]
        placements = placements_of(table)
        noise = 0.05 * np.random.default_rng(0).standard_normal(len(placements))
        rows = measured_rows(placements, np.exp(log_step(USUAL.mean, placements, 16.0)[0] + noise), None)
        assert len(rows) == 2000
        one, other = fit_node_type(rows), fit_node_type(rows)
        few = placements.at(np.arange(0, 2000, 97))
        assert np.array_equal(one.log_step(few)[0], other.log_step(few)[0])
