"""Samples to the target by hand: the laws' curves, repeated runs, one run alone, and quantiles of a few curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm
from small_world import floats

from planner.models.convergence import model as convergence
from planner.models.convergence.laws import BELIEFS, Beliefs, hyperbola, laws, power
from planner.models.convergence.model import ConvergenceModel
from planner.models.convergence.runs import RunsToTarget

DOUBLED = floats(0.0, math.log(2), math.log(4))  # log batch over the smallest


class TestCurves:
    def test_hyperbola(self) -> None:
        # 1 + B / B_crit with a critical batch of twice the smallest: 1.5, 2, 3.
        assert np.exp(hyperbola(DOUBLED, floats(math.log(2)))) == pytest.approx([1.5, 2.0, 3.0])

    def test_power(self) -> None:
        assert np.exp(power(DOUBLED, floats(0.5))) == pytest.approx([1.0, math.sqrt(2), 2.0])


class TestPriors:
    BELIEFS = Beliefs(critical_ratio=8.0, critical_log_sd=1.2, hyperbola=0.7)

    def test_the_critical_batch_is_a_multiple_of_the_smallest(self) -> None:
        law = laws(100.0, 1000.0, None, beliefs=self.BELIEFS)[0]
        assert (law.name, law.belief) == ("hyperbola", 0.7)
        assert math.exp(law.parameter[int(np.argmax(law.log_prior))]) == pytest.approx(8.0, rel=0.05)
        # A normal distribution: at one standard deviation exp(-1/2) of the middle's weight.
        at = np.interp(math.log(8.0) + np.array([0.0, 1.2]), law.parameter, law.log_prior)
        assert at[1] - at[0] == pytest.approx(-0.5, abs=0.01)

    def test_a_noise_scale_counts_by_how_sure_it_is(self) -> None:
        # 3,200 samples are 32 times the smallest. Variances of 1.44 and 0.36: it counts four times as much as the
        # usual 8, so that the middle is 8^(1/5) * 32^(4/5) = 2^(3/5 + 4) = 24.3, the variance 1.44 * 0.36 / 1.8.
        law = laws(100.0, 1000.0, 3200.0, 0.6, self.BELIEFS)[0]
        centre = 4.6 * math.log(2)
        at = np.interp(centre + np.array([-0.5367, 0.0, 0.5367]), law.parameter, law.log_prior)
        assert at - at[1] == pytest.approx([-0.5, 0.0, -0.5], abs=0.01)

    def test_a_noise_scale_that_is_hardly_known_leaves_no_more_doubt_than_none(self) -> None:
        vague, none = (laws(100.0, 1000.0, noise, 1e6, self.BELIEFS)[0] for noise in (3200.0, None))
        assert vague.parameter == pytest.approx(none.parameter)
        assert vague.log_prior == pytest.approx(none.log_prior)

    def test_the_grids_reach_far_enough(self) -> None:
        found = {law.name: (law.parameter.min(), law.parameter.max()) for law in laws(100.0, 1000.0, None)}
        assert found["power"] == pytest.approx((-1.0, 1.2))
        assert found["hyperbola"][0] <= -7.0
        assert found["hyperbola"][1] >= math.log(10) + 7.0


class TestRepeats:
    def test_repeats_count_as_their_mean(self) -> None:
        # Logs 0 and 2 at batch 8: mean 1, their squares about it add up to 2. With the usual 0.5^2, worth two runs,
        # that is (2 * 0.25 + 2) / (2 + 1).
        runs = RunsToTarget.pooled([(16.0, math.exp(3)), (8.0, 1.0), (8.0, math.exp(2))], floats(0.5, 1.0))
        assert (runs.batch.tolist(), runs.repeats.tolist()) == ([8.0, 16.0], [2.0, 1.0])
        assert runs.log_samples == pytest.approx([1.0, 3.0])
        assert runs.variance == pytest.approx([2.5 / 3, 4 / 3])

    def test_a_run_alone_differs_as_usual(self) -> None:
        assert RunsToTarget.pooled([(8.0, 100.0)], floats(0.05)).variance == pytest.approx(0.05**2)

    def test_runs_that_agree_differ_less(self) -> None:
        assert RunsToTarget.pooled([(8.0, 100.0), (8.0, 100.0)], floats(0.05)).variance == pytest.approx(
            0.05**2 * 2 / 3
        )

    def test_a_run_far_from_its_batch_s_median_is_pulled_in(self) -> None:
        # Twenty-nine runs at 1 and one at e: deviations add up to 1 over 29 repeats, so that none counts as further
        # than 3 * 1.2533 / 29 = 0.1297; the mean moves by a thirtieth of that.
        runs = RunsToTarget.pooled([(8.0, 1.0)] * 29 + [(8.0, math.e)], floats(0.05))
        assert runs.log_samples[0] == pytest.approx(0.12965 / 30, rel=1e-3)
        scatter = 0.12965**2 * (1 - 1 / 30)
        assert runs.variance == pytest.approx((2 * 0.05**2 + scatter) / 31, rel=1e-3)


class TestOneRun:
    """1,000 samples at batch 64: there nothing but the noise of runs is unknown."""

    BELIEFS = Beliefs(critical_ratio=8.0, critical_log_sd=1.1, hyperbola=0.8, run_log_sd=0.05)
    MODEL = ConvergenceModel(BELIEFS).fit([(64.0, 1000.0)])

    def test_at_its_batch_the_interval_is_that_of_another_run(self) -> None:
        # One run is off by its noise, and so is the next: twice 0.05^2. What the law misses is the same for both. How
        # much runs differ is known as if from two of them: 2.92 standard deviations in Student's distribution, and
        # nearly that in steps of a factor of two.
        row = self.MODEL.predict(np.array([64])).rows()[0]
        width = math.log(row.p95 / row.p50)
        assert width == pytest.approx(2.92 * math.sqrt(2 * 0.05**2), rel=0.05)
        assert row.p50 == pytest.approx(1000, rel=1e-6)
        assert math.log(row.p50 / row.p05) == pytest.approx(width, rel=1e-3)

    def test_beliefs_are_as_before(self) -> None:
        assert self.MODEL.law_weights_ == pytest.approx({"hyperbola": 0.8, "power": 0.2})

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

    def test_spreads_of_several_scales_are_mixed(self) -> None:
        # Of two normal distributions alike in weight, 95 % lies where their chances of being below add up to 1.9.
        half = float(convergence._half_width(np.array([[1.0], [3.0]]), floats(0.5, 0.5))[0])
        assert norm.cdf(half) + norm.cdf(half / 3) == pytest.approx(1.9)
        assert 1.6449 < half < 3 * 1.6449

    def test_of_one_scale_it_is_the_normal_s(self) -> None:
        assert convergence._half_width(np.array([[2.0]]), floats(1.0)) == pytest.approx([2 * 1.6449], rel=1e-4)


class TestTwoRuns:
    """Batches so far apart that what laws miss there has nothing in common; both laws' curves are straight."""

    BELIEFS = Beliefs(miss_log_range=0.01)

    def test_what_laws_miss_fades_with_the_distance(self) -> None:
        model = ConvergenceModel(Beliefs(miss_log_sd=0.05, miss_log_range=0.5))
        found = model._miss(floats(0.0, 0.5), floats(0.0))
        usual = int(np.argmin(np.abs(convergence._SCALES - 1)))
        assert found[usual, :, 0] == pytest.approx([0.05**2, 0.05**2 * math.exp(-1)])
        assert found[usual + 1] == pytest.approx(4 * found[usual])

    def test_the_likelier_law_gains_what_the_runs_say(self) -> None:
        # Samples fall to a quarter over eight doublings: p = -1/4. A hyperbola cannot fall; it misses by log 4.
        weights = ConvergenceModel(self.BELIEFS).fit([(64.0, 4e6), (16384.0, 1e6)]).law_weights_
        assert weights["power"] > 0.9
        # A tenth more for a batch of 256 times: a power law does that easily, a hyperbola of an unusual job only.
        weights = ConvergenceModel(self.BELIEFS).fit([(64.0, 1e6), (16384.0, 1.1e6)]).law_weights_
        assert 0.01 < weights["hyperbola"] < BELIEFS.hyperbola


class TestTwoSizes:
    """On 1 + B / 256; at a batch of 1,024 that is 5, four times what it is at 64."""

    RUNS = ((64.0, 1.25e6), (128.0, 1.5e6))

    def median(self, noise_scale: float | None = None) -> float:
        return float(ConvergenceModel().fit(self.RUNS, noise_scale).predict(np.array([1024])).p50[0])

    def test_the_median_goes_half_the_way_to_the_hyperbola(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.median()
        monkeypatch.setattr(convergence, "_PLAIN_SHARE", 0.0)
        assert found == pytest.approx(math.sqrt(self.median() * 5e6), rel=0.01)

    def test_noise_that_was_measured_is_followed_instead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.median(noise_scale=2000.0)
        monkeypatch.setattr(convergence, "_PLAIN_SHARE", 0.0)
        assert found == self.median(noise_scale=2000.0)


def test_usual_misses_are_the_likeliest_of_the_scales() -> None:
    # An inverse gamma distribution with two degrees of freedom: exp(-1 / s^2) / s^2, in steps of log s.
    weight = np.exp(convergence._log_prior_of_scales())
    assert weight.sum() == pytest.approx(1.0)
    assert float(convergence._SCALES[int(np.argmax(weight))]) == 1.0
    at = {float(scale): float(share) for scale, share in zip(convergence._SCALES, weight, strict=True)}
    assert at[2.0] / at[1.0] == pytest.approx(math.exp(0.75) / 4)
