"""The random forest among the step-time models: when it joins, how much it says, and that it helps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from planner.columns import Floats
from planner.models.step_time.node_type import NodeTypeModel, fit_node_types
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.models.step_time.step_formula import DEFAULT_PRIORS, log_step

BATCHES = (4, 8, 12, 16, 24, 32, 48, 64, 96)
JUMP = 0.4  # what kernels for more than 32 samples take on top, in logarithms


def placements(nodes: tuple[int, ...], batches: tuple[int, ...] = BATCHES) -> Placements:
    table = [(count, 4 * count, 4, batch) for count in nodes for batch in batches]
    nodes_, workers, most, batch = (np.array(column) for column in zip(*table, strict=True))
    ones = np.ones_like(batch)
    return Placements(nodes=nodes_, workers=workers, most_per_node=most, gpu_batch=batch, accumulation_steps=ones)


def truth(where: Placements) -> Floats:
    """The physical form, but for a jump that no smooth form has."""
    smooth = log_step(DEFAULT_PRIORS[0].mean, where, 16.0, "bus")[0]
    return np.asarray(smooth + JUMP * (where.gpu_batch > 32))


def rows(nodes: tuple[int, ...]) -> MeasuredRows:
    where = placements(nodes)
    return measured_rows(where, np.exp(truth(where)), None)


def fit_node_type(known: MeasuredRows) -> NodeTypeModel:
    """Of a single type, of which nothing is known but its rows."""
    return fit_node_types({"": known}, {"": DEFAULT_PRIORS}, {"": np.zeros(0)})[""]


@dataclass
class Says:
    """A forest that always answers the same."""

    answer: float

    def predict(self, features: Floats) -> Floats:
        return np.full(len(features), self.answer)


def say_of_the_forest(model: NodeTypeModel, where: Placements) -> Floats:
    """How far the prediction moves when the forest's answer moves by one."""
    low, high = (replace(model, forest=Says(answer)).log_step(where)[0] for answer in (0.0, 1.0))
    return np.asarray(high - low)


MANY_ROWS = placements((1, 2, 4))
MANY = fit_node_type(rows((1, 2, 4)))  # 27 of them


def test_with_25_rows_there_is_a_forest_and_with_24_there_is_none() -> None:
    where = placements((1, 2, 4)).at(np.arange(25))
    seconds = np.exp(truth(where))
    enough = fit_node_type(measured_rows(where, seconds, None))
    too_few = fit_node_type(measured_rows(where.at(np.arange(24)), seconds[:24], None))
    assert enough.forest is not None
    assert too_few.forest is None


def test_near_the_probes_it_has_85_percent_of_the_correction_and_far_away_none() -> None:
    near = say_of_the_forest(MANY, MANY_ROWS)
    assert np.median(near) == pytest.approx(0.83, abs=0.02)
    assert near.max() <= 0.85
    assert say_of_the_forest(MANY, placements((1024,), (4096,))) == pytest.approx(0.0, abs=0.05)


def test_a_jump_that_no_smooth_form_has_is_learnt_by_the_forest() -> None:
    between = placements((1, 2, 3, 4), (28, 44))
    jump = {
        name: float(np.mean(np.diff(model.log_step(between)[0].reshape(-1, 2), axis=1)))
        for name, model in (("with", MANY), ("without", replace(MANY, forest=None)))
    }
    real = float(np.mean(np.diff(truth(between).reshape(-1, 2), axis=1)))
    assert abs(jump["with"] - real) < abs(jump["without"] - real)


def test_each_leaf_answers_the_median_of_its_rows() -> None:
    """One window on a busy machine must not move it: of three alike rows and one ten times as slow, not the mean."""
    where = placements((1, 2, 4))
    seconds = np.exp(truth(where))
    seconds[4] *= 10
    spoilt = fit_node_type(measured_rows(where, seconds, None))
    others = np.delete(np.arange(len(where.nodes)), 4)
    moved = spoilt.log_step(where.at(others))[0] - MANY.log_step(where.at(others))[0]
    assert np.median(np.abs(moved)) < 0.05
    leaves = np.concatenate([tree.tree_.value[:, 0, 0] for tree in spoilt.forest.estimators_])
    assert np.quantile(leaves, 0.95) < 1.0


def test_it_is_not_refitted_by_luck() -> None:
    again = fit_node_type(rows((1, 2, 4)))
    assert np.array_equal(again.log_step(MANY_ROWS)[0], MANY.log_step(MANY_ROWS)[0])
