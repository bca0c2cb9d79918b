"""Laws of probing: it stops, it pays, it repeats nothing, and the order of measurements does not matter."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.probing.next_probe import (
    MOST_PER_VISIT,
    MOST_PROBES,
    Belief,
    ProbeSpace,
    Visit,
    best_measured,
    by_cluster,
    next_visit,
    price_usd,
    probe_in_turn,
    start_plan,
)

# Two types: four GPUs at $4 an hour, eight at $30; one, two or four nodes, three batches, whole nodes or a single GPU.
ROWS = [
    (code, nodes, gpus, batch)
    for code, each in ((0, 4), (1, 8))
    for nodes in (1, 2, 4)
    for gpus in ((1, each) if nodes == 1 else (nodes * each,))
    for batch in (8, 16, 32)
]
CODE, NODES, GPUS, BATCH = np.array(ROWS).T
PRICE = np.array([4.0, 30.0])
SPACE = ProbeSpace(
    instance_type=CODE,
    nodes=NODES,
    gpus=GPUS,
    gpu_batch=BATCH,
    hourly_usd=NODES * PRICE[CODE],
    measurable=np.ones(len(ROWS), dtype=bool),
    startup_seconds=180.0,
)
SECONDS = np.full(len(ROWS), 5.0)
TRUE_STEP = 0.01 * (1 + BATCH / 8) / (1 + CODE) + 0.01 * np.log2(GPUS) + 0.02 * (NODES > 1)
TRUE_USD = 1000 * TRUE_STEP / (GPUS * BATCH) * SPACE.hourly_usd


def believe(job_scale: float = 1.0, sd: float = 0.2, error: float = 0.1, measured: dict[int, float] | None = None):
    """Wrong by up to `error`, and knows about that."""
    wave = error * np.sin(np.arange(len(ROWS)))
    usd = job_scale * TRUE_USD * np.exp(wave)
    return Belief(
        log_value=np.log(usd),
        log_sd=np.full(len(ROWS), sd),
        job_usd=usd,
        probe_seconds=SECONDS,
        measured=measured or {},
    )


def true_values(rows, job_scale: float = 1.0) -> dict[int, float]:
    return {row: float(job_scale * TRUE_USD[row]) for row in rows}


def search(job_scale: float, *, known=(), gives=lambda _row: True, most: int = MOST_PROBES):
    """What is measured in turn, visit by visit, beside what was known."""
    found, visits = true_values(known, job_scale), []

    def measure(visit: Visit) -> bool:
        visits.append(visit)
        found.update(true_values((row for row in visit.rows if gives(row)), job_scale))
        return True

    start = start_plan(SPACE, SECONDS, float(job_scale * TRUE_USD.min()), most=most)
    probe_in_turn(SPACE, start, lambda: believe(job_scale, measured=dict(found)), measure, most=most)
    return found, visits


def test_a_large_job_finds_the_best_and_probes_both_types_first():
    measured, _ = search(1e4)
    assert min(measured, key=measured.get) == TRUE_USD.argmin()
    assert set(CODE[list(measured)]) == {0, 1}
    assert len(measured) <= MOST_PROBES


def test_a_small_job_starts_on_the_cheapest_type_and_a_tiny_one_not_at_all():
    cluster_usd = 4.0 * 180 / 3600
    assert set(CODE[start_plan(SPACE, SECONDS, 10 * cluster_usd)]) == {0}
    assert set(NODES[start_plan(SPACE, SECONDS, 10 * cluster_usd)]) == {1}
    assert start_plan(SPACE, SECONDS, cluster_usd) == []
    assert set(CODE[start_plan(SPACE, SECONDS, 1e6)]) == {0, 1}
    assert search(1e-6) == ({}, [])


def test_slow_steps_thin_the_start_plan():
    job_usd = 10 * 4.0 * 180 / 3600
    quick, slow = (start_plan(SPACE, seconds, job_usd) for seconds in (SECONDS, 60 * SECONDS))
    assert 0 < len(slow) < len(quick)


def test_each_cluster_of_the_start_is_visited_once():
    rows = start_plan(SPACE, SECONDS, 1e6)
    visits = by_cluster(SPACE, rows)
    clusters = [{(CODE[row], NODES[row]) for row in visit.rows} for visit in visits]
    assert all(len(cluster) == 1 for cluster in clusters)
    assert len({next(iter(cluster)) for cluster in clusters}) == len(visits)
    assert sorted(row for visit in visits for row in visit.rows) == sorted(rows)


def test_it_stops_when_nothing_can_be_gained():
    best = int(TRUE_USD.argmin())
    assert next_visit(SPACE, believe(sd=0.0, error=0.0, measured=true_values([best]))) is None
    assert next_visit(SPACE, believe(sd=1.0, measured=true_values(range(len(ROWS))))) is None


def test_without_any_measurement_there_is_nothing_to_improve_on():
    assert next_visit(SPACE, believe()) is None
    assert best_measured({3: math.inf}) is None


def test_where_nothing_measured_can_be_chosen_the_most_promising_is_tried():
    belief = believe(1e4, measured={3: math.inf})
    visit = next_visit(SPACE, belief)
    assert visit is not None
    assert visit.rows == (int(belief.log_value.argmin()),)
    assert next_visit(SPACE, believe(1e-6, measured={3: math.inf})) is None  # it costs more than a first cluster may


def test_a_probe_must_repay_its_price():
    row = int(TRUE_USD.argmax())
    rich, poor = (next_visit(SPACE, believe(scale, measured=true_values([row], scale))) for scale in (1e3, 1e-3))
    assert rich is not None
    assert rich.gain_usd > price_usd(SPACE, SECONDS, ())[rich.rows[0]]
    assert poor is None


def test_of_equal_probes_the_cheaper_one_is_taken():
    last = len(ROWS) - 1
    equal = replace(believe(1e3, measured={last: 1.0}), log_value=np.zeros(len(ROWS)), job_usd=np.full(len(ROWS), 1e3))
    visit = next_visit(SPACE, equal)
    prices = price_usd(SPACE, SECONDS, ())
    assert visit is not None
    assert prices[visit.rows[0]] == np.delete(prices, last).min()


def test_a_started_cluster_is_not_paid_for_twice():
    first = int(np.flatnonzero((CODE == 0) & (NODES == 2))[0])
    before, after = price_usd(SPACE, SECONDS, ()), price_usd(SPACE, SECONDS, (first,))
    cheaper = after < before
    assert (cheaper == ((CODE == 0) & (NODES == 2))).all()
    assert after[first] == pytest.approx(8.0 * 5 / 3600)


def test_a_visit_measures_more_batches_on_the_same_gpus():
    slow = int(TRUE_USD.argmax())
    visit = next_visit(SPACE, believe(1e4, measured=true_values([slow], 1e4)))
    assert visit is not None
    assert 1 < len({BATCH[row] for row in visit.rows}) == len(visit.rows) <= MOST_PER_VISIT
    assert len({(CODE[row], NODES[row], GPUS[row]) for row in visit.rows}) == 1


def test_what_may_not_be_probed_is_learned_from_the_largest_that_may():
    small = replace(SPACE, measurable=NODES <= 2)
    assert (NODES[start_plan(small, SECONDS, 1e6)] <= 2).all()
    slow = int(np.flatnonzero((NODES == 1) & (CODE == 0))[0])
    belief = believe(1e4, measured={slow: 1e9})
    tempting = np.where((NODES == 4) & (CODE == 1) & (BATCH == 16), belief.log_value - 10.0, np.inf)
    visit = next_visit(small, replace(belief, log_value=tempting))
    assert visit is not None
    assert [(CODE[row], NODES[row], BATCH[row]) for row in visit.rows] == [(1, 2, 16)]
    one_node = replace(SPACE, measurable=(NODES == 1) & (CODE == 0))
    assert next_visit(one_node, replace(belief, log_value=tempting)) is None  # nothing of that type may be probed


def test_an_infinite_value_is_not_proposed():
    single = GPUS == 1
    whole = int(np.flatnonzero(~single)[0])
    belief = believe(1e4, measured={whole: 1e9})
    visit = next_visit(SPACE, replace(belief, log_value=np.where(single, np.inf, belief.log_value)))
    assert visit is not None
    assert not single[list(visit.rows)].any()


@settings(deadline=None, max_examples=50)
@given(st.permutations(range(len(ROWS))), st.integers(1, len(ROWS) - 1), st.floats(0.01, 1.0), st.floats(0.1, 1e5))
def test_the_order_of_measurements_changes_nothing_and_none_is_repeated(order, count, sd, scale):
    one = true_values(order[:count], scale)
    visit = next_visit(SPACE, believe(scale, sd, measured=one))
    assert visit == next_visit(SPACE, believe(scale, sd, measured=dict(sorted(one.items()))))
    assert visit is None or not set(visit.rows) & set(one)


@pytest.mark.parametrize("most", [1, 3, 7, 15])
def test_the_limit_is_kept_and_runs_repeat_exactly(most):
    measured, visits = search(1e4, most=most)
    assert len(measured) <= most
    assert (measured, visits) == search(1e4, most=most)


@pytest.mark.parametrize("kept", [0, 1, 3, 6, 9])
def test_an_interrupted_search_goes_on_where_it_was_and_ends_with_the_same(kept):
    whole, _ = search(1e4)
    known = list(whole)[:kept]
    resumed, visits = search(1e4, known=known)
    assert resumed == whole
    assert not {row for visit in visits for row in visit.rows} & set(known)


def test_what_gave_nothing_is_not_asked_again():
    _, visits = search(1e4, gives=lambda row: CODE[row] == 0)
    asked = [row for visit in visits for row in visit.rows]
    assert len(asked) == len(set(asked))
    assert any(CODE[row] == 1 for row in asked)


def test_when_there_is_no_money_left_the_search_ends():
    asked: list[Visit] = []

    def refuse(visit: Visit) -> bool:
        asked.append(visit)
        return False

    start = start_plan(SPACE, SECONDS, 1e6)
    probe_in_turn(SPACE, start, lambda: believe(1e4), refuse)
    assert len(asked) == 1
