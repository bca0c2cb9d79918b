"""Laws that samples to the target keep, whatever runs it is told of."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.columns import Quantiles
from planner.models.convergence.laws import BELIEFS, laws
from planner.models.convergence.model import ConvergenceModel

batches = st.integers(1, 1 << 24)
points = st.lists(st.tuples(batches.map(float), st.floats(1e3, 1e12)), min_size=1, max_size=8)
HYPERBOLA = tuple((float(batch), 1e8 * (1 + batch / 4000)) for batch in (128, 512, 2048, 8192, 32768))
# Scavenger's ResNet18 on CIFAR-10 with 8 and with 16 nodes: epochs fall as the batch grows.
FALLING = tuple(zip((384.0, 512.0, 768.0, 1024.0), (230.4, 197.3, 187.7, 178.2), strict=True))


def predicted(model: ConvergenceModel, batch: int) -> Quantiles:
    return model.predict(np.array([batch])).rows()[0]


def width(model: ConvergenceModel, batch: int) -> float:
    row = predicted(model, batch)
    return row.p95 / row.p05


class TestLaws:
    @given(batches, batches, st.none() | st.floats(1.0, 1e9))
    def test_curves_are_finite_at_every_batch(self, one: int, other: int, noise_scale: float | None) -> None:
        smallest, largest = sorted((float(one), float(other)))
        asked = np.log(np.array([1.0, smallest, largest, 2.0**24]) / smallest)
        for law in laws(smallest, largest, noise_scale):
            assert np.isfinite(law.curves(asked)).all()
            assert np.exp(law.log_prior).sum() == pytest.approx(1.0)

    def test_the_hyperbola_never_falls_and_the_power_law_may(self) -> None:
        falls = {
            law.name: bool((np.diff(law.curves(np.linspace(0.0, 5.0, 20)), axis=0) < 0).any())
            for law in laws(256.0, 4096.0, None)
        }
        assert falls == {"hyperbola": False, "power": True}

    def test_the_beliefs_add_up(self) -> None:
        assert sum(law.belief for law in laws(256.0, 4096.0, None)) == pytest.approx(1.0)


class TestAnswers:
    @given(points, batches, st.none() | st.floats(1.0, 1e9))
    def test_are_positive_finite_and_ordered_whatever_the_runs_say(
        self, known: list[tuple[float, float]], batch: int, noise_scale: float | None
    ) -> None:
        low, middle, high = predicted(ConvergenceModel().fit(known, noise_scale), batch)
        assert 0 < low < middle < high < math.inf

    @given(st.permutations([*HYPERBOLA, (512.0, 1.2e8), (2048.0, 1.4e8)]))
    def test_do_not_depend_on_the_order_of_runs(self, known: list[tuple[float, float]]) -> None:
        expected = predicted(ConvergenceModel().fit(sorted(known)), 4096)
        assert predicted(ConvergenceModel().fit(known), 4096) == expected

    def test_do_not_depend_on_the_unit_of_samples(self) -> None:
        one = predicted(ConvergenceModel().fit(FALLING), 600)
        thousand = predicted(ConvergenceModel().fit([(batch, 1000 * samples) for batch, samples in FALLING]), 600)
        assert thousand == pytest.approx([1000 * value for value in one])

    def test_one_column_is_as_good_as_single_questions(self) -> None:
        model = ConvergenceModel().fit(HYPERBOLA)
        asked = np.array([1, 100, 5000, 1 << 24])
        assert model.predict(asked).rows() == [predicted(model, int(batch)) for batch in asked]


class TestWeight:
    def test_a_repeated_run_pulls_harder_and_changes_nothing_else(self) -> None:
        off = (2048.0, 1.3 * HYPERBOLA[2][1])
        known = (*HYPERBOLA[:2], off, *HYPERBOLA[3:])
        once, often = (predicted(ConvergenceModel().fit((*known, *again)), 2048) for again in ((), (off,) * 9))
        assert HYPERBOLA[2][1] < once.p50 < often.p50 < off[1]

    def test_repeating_every_run_moves_no_answer_much(self) -> None:
        once, twice = (predicted(ConvergenceModel().fit(HYPERBOLA * times), 4096) for times in (1, 2))
        assert twice.p50 == pytest.approx(once.p50, rel=0.01)
        assert twice.p95 / twice.p05 < once.p95 / once.p05

    def test_repeats_that_disagree_widen_the_interval(self) -> None:
        agreeing = ConvergenceModel().fit([(256, 1e8), (256, 1e8), (1024, 1.1e8)])
        quarrelling = ConvergenceModel().fit([(256, 0.7e8), (256, 1.43e8), (1024, 1.1e8)])
        assert width(quarrelling, 512) > 2 * width(agreeing, 512)

    def test_a_typing_error_moves_no_answer_much(self) -> None:
        # One of twenty runs has a digit too many.
        runs = [(512.0, 1e8 * (1 + i / 200)) for i in range(-10, 10)]
        known = [*runs, (2048.0, 1.2e8), (8192.0, 1.6e8)]
        wrong = [(512.0, 1e9), *known[1:]]
        right, moved = (predicted(ConvergenceModel().fit(points), 512) for points in (known, wrong))
        assert moved.p50 == pytest.approx(right.p50, rel=0.04)

    def test_runs_that_scatter_are_believed_to_go_on_scattering(self) -> None:
        # Twelve runs of exp(-0.3) and exp(0.3): their own 0.3 counts, not the usual 0.045.
        known = [(batch, 1e8 * math.exp(side * 0.3)) for batch in (256.0, 1024.0) for side in (-1, 1) for _ in range(6)]
        row = predicted(ConvergenceModel().fit(known), 512)
        assert 2 * 1.6449 * 0.28 < math.log(row.p95 / row.p05) < 2 * 1.6449 * 0.4


class TestKnowledge:
    def test_intervals_widen_away_from_the_runs(self) -> None:
        model = ConvergenceModel().fit(HYPERBOLA[1:4])
        widths = [width(model, batch) for batch in (8192, 32768, 131072, 524288)]
        assert widths == sorted(widths)
        assert math.log(widths[-1]) > 1.5 * math.log(widths[0])

    def test_a_noise_scale_says_something_and_a_pair_of_runs_calibrates_it(self) -> None:
        truth = 1e8 * (1 + 8192 / 4000)
        wrong_noise = 40_000.0
        alone = ConvergenceModel().fit(HYPERBOLA[:1], wrong_noise)
        calibrated = ConvergenceModel().fit(HYPERBOLA[1:3], wrong_noise)
        nothing = ConvergenceModel().fit(HYPERBOLA[:1])
        assert width(calibrated, 8192) < width(alone, 8192) < width(nothing, 8192)
        assert abs(predicted(calibrated, 8192).p50 - truth) < abs(predicted(alone, 8192).p50 - truth)

    def test_two_equal_runs_do_not_prove_that_samples_are_constant(self) -> None:
        row = predicted(ConvergenceModel().fit([(256, 1e8), (448, 1e8)]), 16384)
        assert row.p50 > 1.1e8
        assert row.p05 < 1e8

    def test_one_run_leaves_the_belief_in_laws_as_it_was(self) -> None:
        assert ConvergenceModel().fit([(256, 1e8)]).law_weights_["hyperbola"] == pytest.approx(BELIEFS.hyperbola)


class TestChoiceOfLaw:
    @pytest.mark.parametrize("law", ["hyperbola", "power"])
    def test_each_law_is_found_in_its_own_data(self, law: str) -> None:
        curve = {
            "hyperbola": lambda batch: 1 + batch / 2000,
            "power": lambda batch: batch**0.25,
        }[law]
        known = [(float(batch), 1e6 * curve(batch)) for batch in (64, 256, 1024, 4096, 16384)]
        weights = ConvergenceModel().fit(known).law_weights_
        assert max(weights, key=lambda name: weights[name]) == law

    def test_falling_epochs_are_predicted_to_fall(self) -> None:
        for left_out in FALLING[1:3]:
            known = [point for point in FALLING if point != left_out]
            model = ConvergenceModel().fit(known)
            assert model.law_weights_["power"] > 0.5
            assert predicted(model, int(left_out[0])).p50 == pytest.approx(left_out[1], rel=0.08)
        assert predicted(ConvergenceModel().fit(FALLING), 1536).p50 < FALLING[-1][1]

    def test_laws_that_say_the_same_share_the_weight(self) -> None:
        weights = ConvergenceModel().fit([(batch, 1e8) for batch in (256.0, 512.0, 1024.0)]).law_weights_
        assert all(share > 0.02 for share in weights.values())


class TestEfficiency:
    def test_is_one_at_the_reference_and_falls_above_it(self) -> None:
        model = ConvergenceModel().fit(HYPERBOLA)
        found = model.efficiency(np.array([512, 2048, 8192]), reference_batch=512)
        assert found[0] == 1.0
        assert all(left > right for left, right in itertools.pairwise(found))
        assert found[2] == pytest.approx((4000 + 512) / (4000 + 8192), rel=0.03)
