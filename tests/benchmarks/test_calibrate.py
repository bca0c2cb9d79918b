"""The prior that is shipped, and that it is estimated from the groups it is given alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from calibrate import OWN, VAGUE, as_code, calibrate
from step_time import Nested
from step_time_data import Group

from planner.models.step_time import prior
from planner.models.step_time.formula import NAMES, log_step
from planner.models.step_time.prior import USUAL


def group(app: str, pair: float) -> Group:
    """Seconds from the usual form, but for how much slower two nodes are than three."""
    table = [(n, n * g, g, m) for n in (1, 2, 4, 8, 16) for g in (1, 4) for m in (8, 32, 128)]
    nodes, workers, most, batch = (np.array(column) for column in zip(*table, strict=True))
    columns = {"nodes": nodes, "workers": workers, "most_per_node": most, "gpu_batch": batch}
    names = np.array([str(row) for row in table])
    nothing = np.ones(len(nodes))
    empty = Group(app=app, cluster="one", placement=names, step_seconds=nothing, sync_seconds=nothing, **columns)
    theta = USUAL.mean.copy()
    theta[[NAMES.index("pair"), NAMES.index("network")]] = np.log(pair), 0.5
    step, work = log_step(theta, empty.placements(), 32.0)
    seconds = {"step_seconds": np.exp(step), "sync_seconds": np.exp(step) - np.exp(work)}
    return Group(app=app, cluster="one", placement=names, **seconds, **columns)


def test_what_is_shipped_is_what_it_prints() -> None:
    assert as_code(USUAL) in Path(prior.__file__).read_text(encoding="utf-8")


def test_without_any_group_it_is_what_physics_allows() -> None:
    found = calibrate([])
    assert (found.mean.tolist(), found.sd.tolist()) == (VAGUE.mean.tolist(), VAGUE.sd.tolist())


def test_groups_that_agree_pull_the_prior_and_narrow_it_but_not_for_what_is_a_job_s_own() -> None:
    pair = NAMES.index("pair")
    found = calibrate([group("one", 1.8), group("two", 1.8)])
    assert abs(found.mean[pair] - np.log(1.8)) < abs(VAGUE.mean[pair] - np.log(1.8))
    assert found.sd[pair] < VAGUE.sd[pair]
    assert (found.sd <= VAGUE.sd).all()
    assert np.array_equal(found.mean[OWN], VAGUE.mean[OWN])


def test_the_tested_application_has_no_say() -> None:
    calm, wild = group("calm", 0.8), group("wild", 1.8)
    nested = Nested([calm, wild])
    assert nested.prior_without("wild").mean.tolist() == calibrate([calm]).mean.tolist()
    assert nested.prior_without("calm").mean.tolist() == calibrate([wild]).mean.tolist()
    pair = NAMES.index("pair")
    assert nested.prior_without("wild").mean[pair] < nested.prior_without("calm").mean[pair]
