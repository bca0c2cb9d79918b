"""Data sheets, what one type says of another, and left-out scores: by hand, or straight from their definition."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from small_world import CATALOG, ONE, TWO, catalog, floats, instance_type, job, offer

from planner.columns import Ints
from planner.models.configurations import Configurations
from planner.models.step_time.catalogue_prior import catalogue_prior
from planner.models.step_time.correction import fit_correction, likeness
from planner.models.step_time.data_sheet import StepTerms, allreduce_bytes_per_second, step_terms
from planner.models.step_time.formula import NAMES
from planner.models.step_time.node_type import NodeTypeModel, Span, conformal_stretch, fit_node_type
from planner.models.step_time.pooling import SHAPES, estimates, pooled_prior
from planner.models.step_time.posterior import Posterior, fit_posterior
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.models.step_time.unprobed_types import COLD_START, Believed, Multipliers, TypedRows
from planner.probing.baselines import hardware_features


class TestTerms:
    def test_work_and_communication_hide_behind_each_other_like_the_sides_of_a_triangle(self) -> None:
        terms = StepTerms(np.array([[3.0, 1.0, 2.0, 1.0]]))
        step, slope = terms.step(np.zeros(4))
        assert step == pytest.approx([5.0])  # 4 of work, 3 of communication
        # By 16/25 the work, of which three quarters are compute; by 9/25 communication, two thirds of it the link.
        assert slope[0] == pytest.approx([0.48, 0.16, 0.24, 0.12])
        work, work_slope = terms.work(np.zeros(4))
        assert work == pytest.approx([4.0])
        assert work_slope[0] == pytest.approx([0.75, 0.25, 0.0, 0.0])

    def test_multipliers_are_logarithms(self) -> None:
        terms = StepTerms(np.array([[3.0, 1.0, 2.0, 1.0]]))
        doubled = np.full(4, math.log(2))
        assert terms.step(doubled)[0] == pytest.approx([10.0])
        assert terms.work(doubled)[0] == pytest.approx([8.0])

    def test_one_gpu_does_not_wait(self) -> None:
        step, slope = StepTerms(np.array([[3.0, 1.0, 0.0, 0.0]])).step(np.zeros(4))
        assert (step.tolist(), slope[0].tolist()) == ([4.0], [0.75, 0.25, 0.0, 0.0])

    def test_a_step_on_the_data_sheet(self) -> None:
        # A GFLOP at 45 % of 100 TFLOP/s is 1/45 ms. Two micro-steps of 9 samples: 0.4 ms.
        # Two launches of 4 ms; a thousand parameters take nanoseconds at 500 GB/s.
        one = Configurations.of(CATALOG, ONE, nodes=1, gpu_batch=9, accumulation_steps=2)
        compute, launch, link, network = step_terms(one, job().workload).seconds[0]
        assert compute == pytest.approx(18 / 45 * 1e-3)
        # Each weight pass reads 4 bytes three times; Adam's update moves (8 + 8) bytes twice.
        assert launch == pytest.approx(2 * (0.004 + 12_000 / 500e9) + 2 * 16_000 / 500e9, rel=1e-12)
        assert (link, network) == (0.0, 0.0)

    def test_memory_traffic_where_that_takes_longer(self) -> None:
        # 17.5 passes over a MB at 500 GB/s: 35 us, more than 22 us of arithmetic.
        one = Configurations.of(CATALOG, ONE, nodes=1, gpu_batch=1)
        assert step_terms(one, job(activation_bytes_per_sample="1MB").workload).seconds[0, 0] == pytest.approx(35e-6)

    def test_links_and_networks(self) -> None:
        # 100 MB of gradients. Two GPUs exchange them once: at 30 % of 32 GB/s, and 0.2 ms.
        workload = job(gradient_bytes="100MB").workload
        two = Configurations.of(CATALOG, TWO, nodes=4, gpu_batch=1)
        _, _, link, network = step_terms(two, workload).seconds[0]
        assert link == pytest.approx(0.0002 + 0.1 / 9.6)
        # Four nodes move 1.5 of them; sockets do 5 Gbit/s at most, though 70 % of 10 would be more. A hop per doubling.
        assert network == pytest.approx(1.5 * 0.1e9 / (5e9 / 8) + 0.001 + 2 * 0.0005)

    @pytest.mark.parametrize(
        ("changes", "gbps"),
        [
            ({"network_baseline_gbps": 4.0}, 2.8),
            ({"network_baseline_gbps": 10.0}, 5.0),
            ({"efa_interfaces": 1}, 3.0),
            ({"efa_interfaces": 1, "gpu_link": "NVLink 4"}, 7.0),
            ({"efa_interfaces": 1, "measured_allreduce_gbps": 6.5}, 6.5),
        ],
    )
    def test_bandwidth_between_nodes(self, changes: dict[str, object], gbps: float) -> None:
        assert allreduce_bytes_per_second(instance_type("g1.x", 1, 4, **changes)) == pytest.approx(gbps * 1e9 / 8)

    def test_nvlink_is_used_to_seventy_percent(self) -> None:
        fast = instance_type("g1.fast", 4, 4, gpu_link="NVLink 4")
        sold = catalog(offer("g1.fast", "near", 1.0, {"near-az1": 0.5}), types=(fast,))
        rows = Configurations.of(sold, fast, nodes=1, gpu_batch=1)
        seconds = step_terms(rows, job(gradient_bytes="100MB").workload).seconds[0, 2]
        assert seconds == pytest.approx(0.0002 + 1.5 * 0.1 / (32 * 0.7))


def typed(log_errors: list[float], types: list[int], weight: float = 1.0) -> TypedRows:
    """Rows of nothing but compute, which take a second on the data sheet."""
    count = len(log_errors)
    return TypedRows(
        terms=StepTerms(np.tile([1.0, 1e-12, 0.0, 0.0], (count, 1))),
        type_index=np.array(types),
        log_step=np.array(log_errors),
        log_work=np.full(count, np.nan),
        weight=np.full(count, weight),
    )


def unprobed(rows: TypedRows, type_count: int) -> Multipliers:
    return Believed().given(rows, [f"type {index}" for index in range(type_count)]).on("another")


class TestUnprobed:
    """Compute misses the data sheet by 0.26 for the whole job, 0.19 for each type and 0.1 for each row."""

    def test_without_any_row_it_is_the_cold_start(self) -> None:
        found = unprobed(typed([], []), 2)
        assert found.covariance.tolist() == COLD_START.covariance.tolist()
        assert found.mean.tolist() == [0.0] * 4
        assert np.sqrt(np.diag(found.covariance))[0] == pytest.approx(math.hypot(0.26, 0.19))

    def test_a_cold_start_is_sure_within_these_factors(self) -> None:
        """Of 90 %: computing, launching, the link inside a node and the network between them."""
        sd = np.sqrt([0.26**2 + 0.19**2, 0.5**2 + 0.3**2, 2 * 0.35**2, 0.4**2 + 0.45**2])
        assert np.sqrt(np.diag(COLD_START.covariance)) == pytest.approx(sd)
        assert np.exp(1.645 * sd) == pytest.approx([1.70, 2.61, 2.26, 2.69], abs=0.01)

    def test_one_row_of_another_type_speaks_for_what_is_common(self) -> None:
        # Its miss is shared out by variance: 0.26^2 of all.
        total = 0.26**2 + 0.19**2 + 0.1**2
        found = unprobed(typed([0.02], [0]), 1)
        assert found.mean[0] == pytest.approx(0.02 * 0.26**2 / total, rel=0.01)
        left = 0.26**2 * (1 - 0.26**2 / total) + 0.19**2
        assert found.covariance[0, 0] == pytest.approx(left, rel=0.01)

    def test_a_row_that_counts_four_times_has_half_the_noise(self) -> None:
        total = 0.26**2 + 0.19**2 + 0.05**2
        found = unprobed(typed([0.02], [0], weight=4.0), 1)
        assert found.mean[0] == pytest.approx(0.02 * 0.26**2 / total, rel=0.01)

    def test_two_types_say_more_than_two_rows_of_one(self) -> None:
        same, other = unprobed(typed([0.02, 0.02], [0, 0]), 2), unprobed(typed([0.02, 0.02], [0, 1]), 2)
        # Of each type a mean with variance 0.19^2 + 0.1^2; of two rows of one type 0.19^2 + 0.1^2 / 2.
        assert same.mean[0] == pytest.approx(0.02 * 0.26**2 / (0.26**2 + 0.19**2 + 0.005), rel=0.01)
        assert other.mean[0] == pytest.approx(0.02 * 0.26**2 / (0.26**2 + (0.19**2 + 0.01) / 2), rel=0.01)

    def test_rows_without_one_type(self) -> None:
        rows = typed([0.1, 0.2, 0.3], [0, 1, 0])
        assert rows.without(0).log_step.tolist() == [0.2]
        assert rows.without(1).log_step.tolist() == [0.1, 0.3]
        assert rows.without(1).type_index.tolist() == [0, 0]

    def test_work_that_was_measured_apart_counts_too(self) -> None:
        rows = typed([0.02], [0])
        both = TypedRows(rows.terms, rows.type_index, rows.log_step, floats(0.02), rows.weight)
        assert unprobed(both, 1).mean[0] > unprobed(rows, 1).mean[0]


def placements(*table: tuple[int, int, int]) -> Placements:
    """Nodes, GPUs on each, batch."""
    nodes, gpus, batch = (np.array(column) for column in zip(*table, strict=True))
    ones = np.ones_like(nodes)
    return Placements(nodes=nodes, workers=nodes * gpus, most_per_node=gpus, gpu_batch=batch, accumulation_steps=ones)


def some_rows() -> MeasuredRows:
    where = placements((1, 4, 8), (1, 4, 32), (2, 4, 8), (2, 4, 32), (4, 4, 32), (1, 1, 32))
    return measured_rows(where, floats(0.11, 0.33, 0.2, 0.41, 0.44, 0.25), None)


def by_placement(rows: MeasuredRows) -> Ints:
    return np.unique(rows.placements.table()[:, :3], axis=0, return_inverse=True)[1].ravel()


class TestLeftOut:
    def test_errors_are_those_of_predicting_each_placement_from_the_others(self) -> None:
        # Straight from the definition: condition the joint normal of all rows on those of other placements.
        rows = some_rows()
        known = fit_posterior(rows, USUAL)
        correction = fit_correction(rows, known)
        prior, slope = known.prior, known.slope(rows.placements)
        covariance = likeness(rows.placements, rows.placements) + slope @ np.diag(prior.sd**2) @ slope.T
        covariance += np.diag((0.05**2 + rows.spread) / rows.weight)
        error = rows.log_step - known.log_step(rows.placements) + slope @ (known.theta - prior.mean)
        names = [tuple(row) for row in rows.placements.table()[:, :3].tolist()]
        found, spread = correction.left_out(by_placement(rows))
        for index, name in enumerate(names):
            others = [other for other, known_name in enumerate(names) if known_name != name]
            gain = covariance[index, others] @ np.linalg.inv(covariance[np.ix_(others, others)])
            assert found[index] == pytest.approx(error[index] - gain @ error[others], rel=1e-5, abs=1e-9)
            assert spread[index] == pytest.approx(covariance[index, index] - gain @ covariance[others, index], rel=1e-5)

    def test_few_scores_are_joined_by_twenty_usual_ones_and_never_make_it_narrower(self) -> None:
        rows = some_rows()
        correction = fit_correction(rows, fit_posterior(rows, USUAL))
        error, variance = correction.left_out(by_placement(rows))
        # The 0.9 x 7/6 quantile is beyond all six: their largest. It counts 6 of 26.
        found = float((np.abs(error) / np.sqrt(variance)).max()) / 1.6448536
        assert conformal_stretch(correction) == pytest.approx(min(max(found ** (6 / 26), 1.0), 3.0), rel=1e-6)

    def test_doubt_grows_with_each_doubling_outside(self) -> None:
        span = Span(2, 8)
        assert span.variance(np.array([2, 8, 5])).tolist() == [0.0, 0.0, 0.0]
        assert span.variance(np.array([16, 32, 1])) == pytest.approx([0.12**2, 0.24**2, 0.12**2])


class TestTwoForms:
    """One batch alone is not bound by the host: larger ones may take its pace, or be on the line through all."""

    BATCHES = (20, 28, 40, 57, 81)

    def model(self) -> NodeTypeModel:
        where = placements(*((1, 1, batch) for batch in self.BATCHES))
        return fit_node_type(measured_rows(where, floats(0.174, 0.174, 0.174, 0.174, 0.275), None))

    def test_far_from_probes_the_middle_of_both_is_expected_and_both_are_inside(self) -> None:
        model, far = self.model(), placements((1, 1, 81 * 64))
        steep, plain = float(model.posterior.log_step(far)[0]), float(model.plain.log_step(far)[0])
        median, sd = (float(column[0]) for column in model.log_step(far))
        assert steep - plain > 0.2
        assert median == pytest.approx((steep + plain) / 2, abs=0.01)
        assert median - sd < plain < steep < median + sd

    def test_near_probes_the_plainer_one_has_no_say(self) -> None:
        model, near = self.model(), placements((1, 1, 20), (1, 1, 40))
        assert np.exp(model.log_step(near)[0]) == pytest.approx([0.174, 0.174], rel=0.05)

    def test_without_a_host_nothing_is(self) -> None:
        rows = some_rows()
        plain = fit_node_type(rows).plain
        host = plain.theta[NAMES.index("floor")]
        assert math.exp(host) < 1e-9


def job_history(value: float, variance: float) -> Posterior:
    """A job that found this of every shape, with so much doubt."""
    theta, covariance = USUAL.mean.copy(), np.diag(USUAL.sd**2)
    theta[SHAPES] = value
    covariance[SHAPES, SHAPES] = variance
    return Posterior(theta, covariance, USUAL, 8.0, 0.0)


class TestOtherJobs:
    def test_a_job_counts_as_far_as_its_measurements_said_more_than_the_prior(self) -> None:
        index = NAMES.index("pair")
        jobs = [job_history(1.0, 0.0), job_history(1.0, USUAL.sd[index] ** 2)]
        value, variance, told = estimates(jobs, USUAL, index)
        assert (value.tolist(), variance[0]) == ([1.0, 1.0], 0.0)
        assert told.tolist() == [1.0, 0.0]

    def test_agreeing_jobs_pull_the_prior_to_them(self) -> None:
        index = NAMES.index("pair")
        after = pooled_prior([job_history(-2.1, 0.0)] * 3, USUAL)
        # Three jobs without doubt, but for the spread of 0.15 between jobs; the prior is as sure as its deviation says.
        weight, own = 3 / 0.15**2, 1 / USUAL.sd[index] ** 2
        assert after.mean[index] == pytest.approx((weight * -2.1 + own * USUAL.mean[index]) / (weight + own))
        assert after.sd[index] == pytest.approx(math.sqrt(0.15**2 + 1 / (weight + own)))

    def test_jobs_that_disagree_leave_it_wide(self) -> None:
        index = NAMES.index("pair")
        middle = float(USUAL.mean[index])
        agreed, quarrel = (
            pooled_prior([job_history(middle - by, 0.0), job_history(middle + by, 0.0)], USUAL) for by in (0.0, 0.4)
        )
        assert quarrel.sd[index] > 1.5 * agreed.sd[index]
        assert quarrel.mean[index] == pytest.approx(middle, abs=0.01)
        assert quarrel.sd[index] <= USUAL.sd[index]


class TestCatalogue:
    def test_a_prior_starts_from_the_data_sheet(self) -> None:
        # One row of a second at batch 9 on one g1.one: seconds are relative to it.
        rows = measured_rows(placements((1, 1, 9)), floats(1.0), None)
        workload = job(gradient_bytes="100MB").workload
        prior = catalogue_prior(USUAL, rows, CATALOG, ONE, workload, COLD_START)
        pair = Configurations.of(CATALOG, ONE, nodes=2, gpu_batch=9)
        compute, launch, _, network = step_terms(pair, workload).seconds[0]
        named = dict(zip(NAMES, prior.mean, strict=True))
        assert named["scale"] == pytest.approx(math.log(compute + launch))
        assert named["fixed"] == pytest.approx(math.log(launch / compute))
        assert named["network"] == pytest.approx(math.log(network))
        assert named["pair"] == 0.0
        sd = dict(zip(NAMES, prior.sd, strict=True))
        assert sd["scale"] == 1.0  # the data sheet must not argue with what was measured
        assert sd["network"] == pytest.approx(math.hypot(0.40, 0.45))
        assert named["link"] == USUAL.mean[NAMES.index("link")]  # nothing to link

    def test_a_link_is_divided_among_the_gpus(self) -> None:
        rows = measured_rows(placements((1, 2, 9)), floats(1.0), None)
        workload = job(gradient_bytes="100MB").workload
        prior = catalogue_prior(USUAL, rows, CATALOG, TWO, workload, COLD_START)
        pair = Configurations.of(CATALOG, TWO, nodes=2, gpu_batch=9)
        link = step_terms(pair, workload).seconds[0, 2]
        # Two GPUs send 2 x 1 / 2 of the gradient: the same whatever its power.
        assert prior.mean[NAMES.index("link")] == pytest.approx(math.log(link))

    def test_features_are_doublings(self) -> None:
        found = hardware_features(TWO, CATALOG.gpu_of(TWO), job().workload)
        expected = [1e14, 500, 16, 8 / 2, 10, 10, 32, 1e9, 4000, 1000]
        assert found == pytest.approx([math.log2(value) for value in expected])


def test_a_stretch_by_hand() -> None:
    """Of nineteen errors the quantile at 0.9 x 20/19 lies between the two largest; twenty usual ones join them."""
    rows = Placements(**{name: np.ones(19, dtype=np.int64) for name in Placements.__dataclass_fields__})
    errors = SimpleNamespace(
        rows=SimpleNamespace(placements=rows), left_out=lambda _: (0.3 * np.arange(1.0, 20.0), np.ones(19))
    )
    at = 0.9 * 20 / 19 * 18  # of the ranks from 0
    assert conformal_stretch(errors) == pytest.approx((0.3 * (1 + at) / 1.6449) ** (19 / 39), rel=1e-4)
