"""Gradient noise of several probes, pooled: by hand, and what must hold for any estimates."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cli.probe_here import several_states
from planner.columns import Z95
from planner.inputs.measured_noise import (
    MOST_LOG_SD,
    LogEstimate,
    MeasuredNoise,
    exclude_each_other,
    measured_noise,
    pooled_between,
    pooled_within,
)
from planner.inputs.measurements import GradientNoise, Measurement
from planner.models.convergence.laws import NOISE_SCALE_LOG_SD
from planner.models.fitted import _noise

STATE, LATER = "0123456789ab", "ba9876543210"


def row(scale: float, log_sd: float = 0.1, state: str | None = STATE, **more: Any) -> Measurement:
    factor = math.exp(Z95 * log_sd)
    noise = {
        "scale": scale,
        "low": scale / factor,
        "high": scale * factor,
        "groups": 8,
        "reached": True,
        "state": state,
    }
    return Measurement(
        instance_type="local",
        nodes=1,
        gpus_per_node=1,
        gpu_batch=64,
        precision="fp32",
        step_seconds=0.1,
        noise=GradientNoise(**{**noise, **more}),
    )


class TestByHand:
    def test_one_probe_is_what_it_says(self) -> None:
        found = measured_noise([row(300.0, 0.1, at_samples=11_584, at_step=181)])
        assert found is not None
        assert (found.scale, found.log_sd) == (pytest.approx(300.0), pytest.approx(0.1))
        assert (found.stage, found.warnings) == ("after 11.6 k samples of training", ())
        assert str(found) == "300 (254 to 354) samples, after 11.6 k samples of training"

    def test_within_a_state_by_inverse_variance(self) -> None:
        """Weights 100 and 25: 0.8 log 200 + 0.2 log 220, error 1 / sqrt(125)."""
        found = measured_noise([row(200.0, 0.1), row(220.0, 0.2)])
        assert found is not None
        assert found.scale == pytest.approx(200.0 * 1.1**0.2)
        assert found.log_sd == pytest.approx(1 / math.sqrt(125))
        assert found.warnings == ()

    def test_estimates_that_exclude_each_other_widen_the_interval_and_are_named(self) -> None:
        """log 4 apart, 0.1 each: chi-square 2 (log 2 / 0.1)^2; its root stretches 0.1 / sqrt 2 by 9.8 to log 2."""
        found = measured_noise([row(400.0, at_samples=900), row(100.0, at_samples=900)])
        assert found is not None
        assert found.scale == pytest.approx(200.0)
        assert found.log_sd == pytest.approx(math.log(2.0))
        (warning,) = found.warnings
        assert warning == (
            "gradient noise scales of one state exclude each other, after 900 samples of training: "
            "100 (85 to 118) and 400 (339 to 472); the interval of their mean, 200 (64 to 625), is 9.8 times as wide "
            "for it"
        )

    def test_between_states_the_spread_is_doubt(self) -> None:
        """Logarithms log 10 apart: the spread of two is log 10 / sqrt 2, their own errors add 2 x 0.01 / 4."""
        found = measured_noise([row(100.0, at_samples=20_000), row(1000.0, state=LATER, at_step=None)])
        assert found is not None
        assert found.scale == pytest.approx(math.sqrt(100.0 * 1000.0))
        assert found.log_sd == pytest.approx(math.sqrt(math.log(10.0) ** 2 / 2 + 0.005))
        assert found.stage == "from 2 stages of training"
        (warning,) = found.warnings
        assert warning == (
            "the gradient noise scale changes in training: 100 (85 to 118) after 20 k samples of training and "
            "1,000 (848 to 1,179) at a given checkpoint; used is 316 (22 to 4,615)"
        )

    def test_a_state_with_many_probes_counts_once(self) -> None:
        found = measured_noise([*[row(100.0)] * 4, row(900.0, state=LATER)])
        assert found is not None
        assert found.scale == pytest.approx(300.0)

    def test_rows_that_do_not_say_their_state_share_it_with_no_other(self) -> None:
        """What was seen of one job, each with a tight interval, silently pooled to 977."""
        scales = (468.0, 1486.0, 12021.0, 236.0)
        found = measured_noise([row(scale, state=None, at_step=200) for scale in scales])
        assert found is not None
        assert found.scale == pytest.approx(math.prod(scales) ** 0.25)
        assert found.log_sd == pytest.approx(1.7219, abs=1e-3)
        (warning,) = found.warnings
        assert "236 (200 to 278) after 200 steps of training, 468 (397 to 552)" in warning

    def test_of_many_only_the_ends_are_named(self) -> None:
        found = measured_noise([row(100.0 * 2**power, state=None) for power in range(9)])
        assert found is not None
        (warning,) = found.warnings
        assert "100 (85 to 118) at a given checkpoint to 25,600 (21,717 to 30,177) at" in warning

    def test_what_was_not_reached_or_cannot_be_does_not_count(self) -> None:
        assert measured_noise([row(300.0, reached=False), row(300.0, low=0.0), row(300.0, high=1.0)]) is None
        assert measured_noise([]) is None

    def test_a_row_without_any_error_is_believed_to_one_in_a_hundred(self) -> None:
        found = measured_noise([row(300.0, 0.0)])
        assert found is not None
        assert found.log_sd == pytest.approx(0.01)

    def test_a_sweep_that_could_not_stay_at_one_state_says_so(self) -> None:
        assert several_states([row(100.0), row(200.0)]) == []
        (warning,) = several_states([row(100.0), row(200.0, state=LATER)])
        assert warning.startswith("the model came to 2 states")

    def test_convergence_feels_how_far_the_noise_is_known(self) -> None:
        # The doubt between a noise scale and the critical batch, and that about the noise scale, in quadrature.
        vague = MeasuredNoise(scale=128.0, log_sd=math.sqrt(4.25 - NOISE_SCALE_LOG_SD**2), stage="")
        assert _noise(None, vague) == (128.0, pytest.approx(math.sqrt(4.25)))
        sharp = MeasuredNoise(scale=128.0, log_sd=0.0, stage="")
        assert _noise(None, sharp) == (128.0, NOISE_SCALE_LOG_SD)
        assert _noise(500.0, vague) == (500.0, NOISE_SCALE_LOG_SD)
        assert _noise(None, None) == (None, NOISE_SCALE_LOG_SD)


estimates = st.lists(st.builds(LogEstimate, st.floats(0.0, 20.0), st.floats(0.01, 1.0)), min_size=1, max_size=6)


class TestLaws:
    @given(estimates)
    def test_pooled_is_never_surer_than_as_many_of_the_best(self, members: list[LogEstimate]) -> None:
        best = min(one.log_sd for one in members)
        assert pooled_within(members).log_sd >= best / math.sqrt(len(members)) * (1 - 1e-9)

    @given(estimates)
    def test_pooled_lies_among_its_members(self, members: list[LogEstimate]) -> None:
        logs = [one.log_scale for one in members]
        for pool in (pooled_within, pooled_between):
            assert min(logs) - 1e-9 <= pool(members).log_scale <= max(logs) + 1e-9

    @given(estimates, st.floats(1.0, 3.0))
    def test_more_disagreement_never_narrows(self, members: list[LogEstimate], factor: float) -> None:
        for pool in (pooled_within, pooled_between):
            centre = pool(members).log_scale
            apart = [one._replace(log_scale=centre + factor * (one.log_scale - centre)) for one in members]
            assert pool(apart).log_sd >= pool(members).log_sd * (1 - 1e-9)

    @given(estimates, st.randoms())
    def test_their_order_does_not_matter(self, members: list[LogEstimate], chance: Any) -> None:
        shuffled = chance.sample(members, len(members))
        for pool in (pooled_within, pooled_between):
            assert pool(shuffled) == pytest.approx(pool(members))

    @given(st.floats(1.0, 1e9), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
    def test_less_known_noise_never_makes_convergence_surer(self, scale: float, one: float, other: float) -> None:
        known, vague = (MeasuredNoise(scale=scale, log_sd=sd, stage="") for sd in sorted((one, other)))
        assert _noise(None, known)[1] <= _noise(None, vague)[1] * (1 + 1e-9)

    @given(estimates)
    def test_those_that_agree_exclude_nothing(self, members: list[LogEstimate]) -> None:
        assert not exclude_each_other([one._replace(log_scale=5.0) for one in members])

    @given(st.lists(st.builds(row, st.floats(1e-300, 1e11), st.floats(0.0, 9.0)), max_size=4))
    def test_any_rows_have_an_answer(self, rows: list[Measurement]) -> None:
        found = measured_noise(rows)
        assert found is None or (0 < found.scale < math.inf and 0 < found.log_sd <= MOST_LOG_SD)
