"""The random forest among the step-time models: when it joins, how much it says, and that it helps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from planner.columns import Floats
from planner.models.step_time.forest import blend_share
from planner.models.step_time.formula import log_step
from planner.models.step_time.node_type import fit_node_type
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows

BATCHES = (4, 8, 12, 16, 24, 32, 48, 64, 96)
JUMP = 0.4  # what kernels for more than 32 samples take on top, in logarithms


def placements(nodes: tuple[int, ...], batches: tuple[int, ...] = BATCHES) -> Placements:
    table = [(count, 4 * count, 4, batch) for count in nodes for batch in batches]
    nodes_, workers, most, batch = (np.array(column) for column in zip(*table, strict=True))
    ones = np.ones_like(batch)
    return Placements(nodes=nodes_, workers=workers, most_per_node=most, gpu_batch=batch, accumulation_steps=ones)


def truth(where: Placements) -> Floats:
    """The physical form, but for a jump that no smooth form has."""
    smooth = log_step(USUAL.mean, where, 16.0)[0]
    return np.asarray(smooth + JUMP * (where.gpu_batch > 32))


def rows(nodes: tuple[int, ...]) -> MeasuredRows:
    where = placements(nodes)
    return measured_rows(where, np.exp(truth(where)), None)


MANY_NODES = (1, 2, 3, 4, 6, 8)
MANY_ROWS = placements(MANY_NODES)
MANY = fit_node_type(rows(MANY_NODES))  # 54 of them


def test_with_25_rows_there_may_be_a_forest_and_with_24_there_is_none() -> None:
    where = placements((1, 2, 4)).at(np.arange(25))
    seconds = np.exp(truth(where) + JUMP * (where.gpu_batch > 12))
    enough = fit_node_type(measured_rows(where, seconds, None))
    too_few = fit_node_type(measured_rows(where.at(np.arange(24)), seconds[:24], None))
    assert too_few.forest is None
    assert enough.forest is None or 0 < enough.forest.share <= 1


def test_it_joins_where_a_jump_is_and_does_no_harm_where_the_form_is_right() -> None:
    assert MANY.forest is not None
    smooth = log_step(USUAL.mean, MANY_ROWS, 16.0)[0]
    off: dict[str, list[float]] = {"with": [], "without": []}
    for seed in range(4):
        noise = 0.03 * np.random.default_rng(seed).standard_normal(len(smooth))
        right = fit_node_type(measured_rows(MANY_ROWS, np.exp(smooth + noise), None))
        for name, model in (("with", right), ("without", replace(right, forest=None))):
            off[name].append(float(np.abs(model.log_step(MANY_ROWS)[0] - smooth).mean()))
    # Trees smooth noise more than the correction does, which is why they join here, too.
    assert np.mean(off["with"]) <= np.mean(off["without"]) < 0.02


def test_its_share_is_the_best_blend_of_both() -> None:
    # Errors of +1 and -1: half of each cancels. The same errors gain nothing; opposite ones are better left alone.
    errors = np.array([1.0, -1.0, 1.0, -1.0] * 5)
    assert blend_share(errors, -errors) == pytest.approx(0.5)
    assert blend_share(errors, errors) == 0.0
    assert blend_share(errors, 3 * errors) == 0.0
    assert blend_share(errors, 0 * errors) == pytest.approx(1.0)


def test_a_gain_that_may_be_luck_is_none() -> None:
    # One of twenty rows is better and another worse: a share of 0.2 / 1.64 would gain 0.2 of 20 less 0.2, give or take.
    errors, others = np.ones(20), np.ones(20)
    others[:2] = 0.0, 1.8
    assert blend_share(errors, others) == 0.0


def test_far_from_all_rows_it_says_nothing() -> None:
    assert MANY.forest is not None
    far = placements((1024,), (4096,))
    louder = replace(MANY, forest=replace(MANY.forest, trees=Says(1.0), share=1.0))
    quieter = replace(MANY, forest=replace(MANY.forest, trees=Says(0.0), share=1.0))
    assert louder.log_step(far)[0] == pytest.approx(quieter.log_step(far)[0], abs=0.05)
    near = louder.log_step(MANY_ROWS)[0] - quieter.log_step(MANY_ROWS)[0]
    assert 0.7 < np.median(near) <= 1.0


@dataclass
class Says:
    """Trees that always answer the same."""

    answer: float

    def predict(self, features: Floats) -> Floats:
        return np.full(len(features), self.answer)


def test_a_jump_that_no_smooth_form_has_is_learnt_by_the_forest() -> None:
    between = placements((1, 2, 3, 4), (28, 44))
    jump = {
        name: float(np.mean(np.diff(model.log_step(between)[0].reshape(-1, 2), axis=1)))
        for name, model in (("with", MANY), ("without", replace(MANY, forest=None)))
    }
    real = float(np.mean(np.diff(truth(between).reshape(-1, 2), axis=1)))
    assert abs(jump["with"] - real) < abs(jump["without"] - real)


def test_one_window_on_a_busy_machine_hardly_moves_the_others() -> None:
    seconds = np.exp(truth(MANY_ROWS))
    seconds[4] *= 10
    spoilt = fit_node_type(measured_rows(MANY_ROWS, seconds, None))
    others = np.delete(np.arange(len(MANY_ROWS)), 4)
    moved = spoilt.log_step(MANY_ROWS.at(others))[0] - MANY.log_step(MANY_ROWS.at(others))[0]
    assert np.median(np.abs(moved)) < 0.05


def test_it_is_not_refitted_by_luck() -> None:
    again = fit_node_type(rows(MANY_NODES))
    assert np.array_equal(again.log_step(MANY_ROWS)[0], MANY.log_step(MANY_ROWS)[0])
