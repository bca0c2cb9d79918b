"""Samples to the target by hand: the laws' curves, repeated runs, one run alone, and quantiles of a few curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student
from small_world import floats

from planner.models.convergence import model as convergence
from planner.models.convergence.laws import BELIEF, constant, hyperbola, laws, power, scavenger
from planner.models.convergence.model import ConvergenceModel, RunsToTarget

DOUBLED = floats(0.0, math.log(2), math.log(4))  # log batch over the smallest


class TestCurves:
    def test_hyperbola(self) -> None:
        # 1 + B / B_crit with a critical batch of twice the smallest: 1.5, 2, 3.
        assert np.exp(hyperbola(DOUBLED, floats(math.log(2)))) == pytest.approx([1.5, 2.0, 3.0])

    def test_power(self) -> None:
        assert np.exp(power(DOUBLED, floats(0.5))) == pytest.approx([1.0, math.sqrt(2), 2.0])

    def test_scavenger(self) -> None:
        # 1 + slope / sqrt(B), never below a tenth.
        assert np.exp(scavenger(DOUBLED, floats(2.0))) == pytest.approx([3.0, 1 + math.sqrt(2), 2.0])
        assert np.exp(scavenger(DOUBLED, floats(-0.95))) == pytest.approx([0.1, 1 - 0.95 / math.sqrt(2), 0.525])

    def test_constant(self) -> None:
        assert constant(DOUBLED, floats(0.0)).tolist() == [0.0, 0.0, 0.0]


class TestPriors:
    def test_the_critical_batch_is_about_eight_times_the_smallest_or_the_noise_scale(self) -> None:
        for noise_scale, expected in ((None, 8.0), (500.0, 5.0)):
            law = laws(100.0, 1000.0, noise_scale)[0]
            assert law.name == "hyperbola"
            assert math.exp(law.parameter[int(np.argmax(law.log_prior))]) == pytest.approx(expected, rel=0.05)

    def test_a_noise_scale_is_surer_than_the_usual(self) -> None:
        # Student's t with four degrees of freedom: at one scale from the centre (1 + 1/4)^-2.5 of the middle's weight.
        for noise_scale, scale in ((None, 1.1), (800.0, 0.8)):
            law = laws(100.0, 1000.0, noise_scale)[0]
            centre = math.log(8.0)
            at = np.interp([centre, centre + scale], law.parameter, law.log_prior)
            assert at[1] - at[0] == pytest.approx(-2.5 * math.log(1.25), abs=0.01)

    def test_each_law_s_weights_add_up(self) -> None:
        found = {law.name: (law.parameter.min(), law.parameter.max()) for law in laws(100.0, 1000.0, None)}
        assert found["power"] == pytest.approx((-1.0, 1.2))
        assert found["scavenger"] == pytest.approx((-0.5, 5.0))
        assert found["constant"] == (0.0, 0.0)
        assert found["hyperbola"][0] <= -7.0
        assert found["hyperbola"][1] >= math.log(10) + 7.0


class TestRepeats:
    def test_repeats_count_as_their_mean(self) -> None:
        # Logs 0 and 2 at batch 8: mean 1; their scatter of 2 is spread over one repeat.
        runs = RunsToTarget.pooled([(16.0, math.exp(3)), (8.0, 1.0), (8.0, math.exp(2))])
        assert (runs.batch.tolist(), runs.repeats.tolist()) == ([8.0, 16.0], [2.0, 1.0])
        assert runs.log_samples == pytest.approx([1.0, 3.0])
        assert runs.variance == pytest.approx(2.0)

    def test_runs_that_agree_still_differ_by_five_percent(self) -> None:
        assert RunsToTarget.pooled([(8.0, 100.0), (8.0, 100.0)]).variance == pytest.approx(0.05**2)
        assert RunsToTarget.pooled([(8.0, 100.0)]).variance == pytest.approx(0.05**2)


class TestOneRun:
    """1,000 samples at batch 64: there nothing but the noise of runs is unknown."""

    MODEL = ConvergenceModel().fit([(64.0, 1000.0)])

    def test_at_its_batch_the_interval_is_that_of_another_run(self) -> None:
        # One run is off by its noise, and so is the next: twice 0.05^2. What the law misses is the same for both.
        # The scale of it all is known with eight degrees of freedom.
        row = self.MODEL.predict(np.array([64])).rows()[0]
        width = float(student(8).ppf(0.95)) * math.sqrt(2 * 0.05**2)
        assert row.p50 == pytest.approx(1000, rel=1e-6)
        assert math.log(row.p95 / row.p50) == pytest.approx(width, rel=1e-3)
        assert math.log(row.p50 / row.p05) == pytest.approx(width, rel=1e-3)

    def test_beliefs_are_as_before(self) -> None:
        assert self.MODEL.law_weights_ == pytest.approx(BELIEF)

    def test_at_eight_times_the_batch_the_median_is_near_the_usual_hyperbola(self) -> None:
        # Four fifths believe the hyperbola, whose critical batch is usually there: (1 + 1) / (1 + 1/8) = 1.78.
        row = self.MODEL.predict(np.array([512])).rows()[0]
        assert 1.4 < row.p50 / 1000 < 1.78
        assert row.p95 / 1000 > 3

    def test_efficiency_is_the_ratio_of_the_medians(self) -> None:
        one, eight = self.MODEL.predict(np.array([64, 512])).p50
        assert self.MODEL.efficiency(np.array([512, 64]), 64) == pytest.approx([one / eight, 1.0])


class TestQuantiles:
    def test_between_curves_and_around_them_in_quadrature(self) -> None:
        # Curves at 0, 3 and 6 with weights of a quarter, a half, a quarter: the middles of these are at 1/8, 1/2, 7/8.
        curves, weight = np.array([[6.0, 0.0, 3.0]]), floats(0.25, 0.25, 0.5)
        low, middle, high = convergence._quantiles(curves, weight, floats(4.0))[:, 0]
        # At 5 % and 95 % the outermost curves, 3 away; with 4 around them 5.
        assert (low, middle, high) == pytest.approx((-2.0, 3.0, 8.0))

    def test_between_two_middles_it_is_interpolated(self) -> None:
        curves, weight = np.array([[0.0, 1.0]]), floats(0.2, 0.8)
        # Middles at 0.1 and 0.6: half of the weight lies at 0.8 of the way.
        assert convergence._quantiles(curves, weight, floats(0.0))[1, 0] == pytest.approx(0.8)


def test_what_laws_miss_fades_over_half_a_log_batch() -> None:
    found = convergence._miss(floats(0.0, 0.5), floats(0.0))
    assert found[:, 0] == pytest.approx([0.05**2, 0.05**2 * math.exp(-1)])
