"""Parts of the step-time model can be switched off one at a time, and are back afterwards."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from ablation import PARTS, TERMS, Score, gain

from planner.models.step_time import correction, formula, node_type, posterior
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import Placements

ROWS = Placements(
    nodes=np.array([1, 1, 2, 2, 4]),
    workers=np.array([1, 4, 2, 7, 16]),
    most_per_node=np.array([1, 4, 1, 4, 4]),
    gpu_batch=np.array([8, 64, 16, 128, 64]),
    accumulation_steps=np.ones(5, dtype=np.int64),
)


def slopes() -> np.ndarray:
    """By parameter, the most that either logarithm answers; a host that matters, as a wait does."""
    theta = USUAL.mean.copy()
    theta[formula.NAMES.index("floor")] = 0.0
    return np.abs(np.concatenate(formula.gradients(theta, ROWS, 32.0))).max(axis=0)


@pytest.mark.parametrize("name", TERMS)
def test_a_term_that_is_off_changes_nothing_and_one_that_is_on_does(name: str) -> None:
    index = formula.NAMES.index(name)
    assert slopes()[index] > 1e-4
    with ExitStack() as stack:
        for off in PARTS[f"form: {name}"]:
            stack.enter_context(off())
        assert slopes()[index] == 0.0
    assert slopes()[index] > 1e-4


def test_every_part_is_back_when_its_turn_is_over() -> None:
    modules = (correction, formula, node_type, posterior)
    before = [dict(vars(module)) for module in modules]
    for part, patches in PARTS.items():
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each())
        assert [dict(vars(module)) for module in modules] == before, part


def test_a_gain_is_a_mean_over_groups_of_means_over_splits() -> None:
    whole = {key: Score(10.0, 90.0, 50.0) for key in (("a", "C"), ("a", "D"), ("b", "C"))}
    left = {("a", "C"): Score(11.0, 90.0, 50.0), ("a", "D"): Score(13.0, 90.0, 50.0), ("b", "C"): whole["b", "C"]}
    mean, error = gain(whole, left, "error")
    assert mean == pytest.approx((2.0 + 0.0) / 2)
    assert error == pytest.approx(np.std([2.0, 0.0], ddof=1) / np.sqrt(2))
    assert gain(whole, left, "interval") == (0.0, 0.0)
