"""Laws of probing: it stops, it pays, it repeats nothing, and the order of measurements does not matter."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from next_probe import (
    MOST_PROBES,
    Belief,
    ProbeSpace,
    best_measured,
    choose,
    next_probe,
    on_the_same_cluster,
    price_usd,
    probe_and_choose,
    proposals,
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


def believe(job_scale: float = 1.0, sd: float = 0.2, error: float = 0.1) -> Belief:
    """Wrong by up to `error`, and knows about that."""
    wave = error * np.sin(np.arange(len(ROWS)))
    usd = job_scale * TRUE_USD * np.exp(wave)
    return Belief(
        log_value=np.log(usd),
        log_sd=np.full(len(ROWS), sd),
        job_usd=usd,
        probe_seconds=SECONDS,
    )


def run(job_scale: float, most: int = MOST_PROBES, believed: Belief | None = None):
    belief = believed or believe(job_scale)
    return probe_and_choose(
        SPACE,
        lambda _: belief,
        lambda row: float(job_scale * TRUE_USD[row]),
        job_usd=float(job_scale * TRUE_USD.min()),
        most=most,
    )


def test_a_large_job_finds_the_best_and_probes_both_types_first():
    outcome = run(1e4)
    assert outcome.chosen == TRUE_USD.argmin()
    assert set(CODE[list(outcome.measured)]) == {0, 1}
    assert len(outcome.measured) <= MOST_PROBES


def test_a_small_job_starts_on_the_cheapest_type_and_a_tiny_one_not_at_all():
    cluster_usd = 4.0 * 180 / 3600
    assert set(CODE[start_plan(SPACE, SECONDS, 10 * cluster_usd)]) == {0}
    assert set(NODES[start_plan(SPACE, SECONDS, 10 * cluster_usd)]) == {1}
    assert start_plan(SPACE, SECONDS, cluster_usd) == []
    assert set(CODE[start_plan(SPACE, SECONDS, 1e6)]) == {0, 1}


def test_slow_steps_thin_the_start_plan():
    job_usd = 10 * 4.0 * 180 / 3600
    quick, slow = (start_plan(SPACE, seconds, job_usd) for seconds in (SECONDS, 60 * SECONDS))
    assert 0 < len(slow) < len(quick)


def test_a_tiny_job_is_chosen_by_the_model_alone():
    belief = believe(1e-6)
    outcome = run(1e-6, believed=belief)
    assert outcome.measured == {}
    assert outcome.chosen == belief.log_value.argmin()


def test_it_stops_when_nothing_can_be_gained():
    certain = believe(sd=0.0, error=0.0)
    best = int(TRUE_USD.argmin())
    assert next_probe(SPACE, certain, {best: float(TRUE_USD[best])}) is None
    everything = {row: float(TRUE_USD[row]) for row in range(len(ROWS))}
    assert next_probe(SPACE, believe(sd=1.0), everything) is None


def test_without_a_usable_measurement_there_is_nothing_to_improve_on():
    assert next_probe(SPACE, believe(), {}) is None
    assert best_measured({3: math.inf}) is None
    assert next_probe(SPACE, believe(), {3: math.inf}) is None


def test_a_probe_must_repay_its_price():
    row = int(TRUE_USD.argmax())
    rich, poor = (next_probe(SPACE, believe(scale), {row: float(scale * TRUE_USD[row])}) for scale in (1e3, 1e-3))
    assert rich is not None
    assert rich.gain_usd > rich.price_usd
    assert poor is None
    top = proposals(SPACE, believe(1e-3), {row: float(1e-3 * TRUE_USD[row])})[0]
    assert 0 < top.gain_usd < top.price_usd  # still said, so that a plan can tell what it would be worth


def test_of_equal_probes_the_cheaper_one_is_taken():
    equal = replace(believe(1e3), log_value=np.zeros(len(ROWS)), job_usd=np.full(len(ROWS), 1e3))
    measured = {len(ROWS) - 1: 1.0}
    proposal = next_probe(SPACE, equal, measured)
    prices = price_usd(SPACE, equal.probe_seconds, measured)
    prices[list(measured)] = np.inf
    assert proposal is not None
    assert proposal.price_usd == prices.min()


def test_a_started_cluster_is_not_paid_for_twice():
    first = int(np.flatnonzero((CODE == 0) & (NODES == 2))[0])
    before, after = price_usd(SPACE, SECONDS, ()), price_usd(SPACE, SECONDS, (first,))
    cheaper = after < before
    assert (cheaper == ((CODE == 0) & (NODES == 2))).all()
    assert after[first] == pytest.approx(8.0 * 5 / 3600)


def test_a_cluster_that_was_ended_is_paid_for_again():
    row = int(TRUE_USD.argmax())
    measured = {row: float(1e3 * TRUE_USD[row])}
    kept, ended = (
        {found.row: found.price_usd for found in proposals(SPACE, believe(1e3), measured, running=running)}
        for running in (None, ())
    )
    same = SPACE.same_cluster(row)
    assert all(ended[other] > kept[other] if same[other] else ended[other] == kept[other] for other in kept)


def test_a_running_cluster_measures_more_batches_on_the_same_gpus():
    slow = int(TRUE_USD.argmax())
    belief, measured = believe(1e4), {slow: float(1e4 * TRUE_USD[slow])}
    first = next_probe(SPACE, belief, measured)
    assert first is not None
    together = on_the_same_cluster(SPACE, belief, measured, first)
    assert together[0] == first
    assert 1 < len({BATCH[row.row] for row in together}) == len(together) <= 3
    assert {(CODE[row.row], NODES[row.row], GPUS[row.row]) for row in together} == {
        (CODE[first.row], NODES[first.row], GPUS[first.row])
    }
    assert sum(row.price_usd for row in together[1:]) < first.price_usd


def test_what_may_not_be_probed_is_never_proposed_but_may_be_chosen():
    only_one_node = replace(SPACE, measurable=NODES == 1)
    belief = believe(1e4)
    assert (NODES[start_plan(only_one_node, SECONDS, 1e6)] == 1).all()
    slow = int(TRUE_USD[NODES == 1].argmax())
    assert all(NODES[row.row] == 1 for row in proposals(only_one_node, belief, {slow: 1e9}))
    better = belief.log_value.copy()
    better[NODES == 4] -= 10.0
    assert NODES[choose(replace(belief, log_value=better), {slow: 1e9})] == 4


def test_an_unmeasured_row_is_chosen_only_when_it_is_surely_better():
    belief = believe(sd=0.5, error=0.0)
    best, second = np.argsort(TRUE_USD)[:2].tolist()
    assert choose(belief, {second: float(TRUE_USD[second])}) == second
    sure = replace(belief, log_sd=np.full(len(ROWS), 1e-6))
    assert choose(sure, {second: float(TRUE_USD[second])}) == best


def test_an_infinite_value_is_neither_proposed_nor_chosen():
    belief = believe(1e4)
    single = GPUS == 1
    belief = replace(belief, log_value=np.where(single, np.inf, belief.log_value))
    whole = int(np.flatnonzero(~single)[0])
    assert not any(single[row.row] for row in proposals(SPACE, belief, {whole: 1e9}))
    assert not single[choose(belief, {})]


@settings(deadline=None, max_examples=50)
@given(st.permutations(range(len(ROWS))), st.integers(1, len(ROWS) - 1), st.floats(0.01, 1.0), st.floats(0.1, 1e5))
def test_the_order_of_measurements_changes_nothing_and_none_is_repeated(order, count, sd, scale):
    belief = believe(scale, sd)
    one = {row: float(scale * TRUE_USD[row]) for row in order[:count]}
    other = dict(sorted(one.items()))
    proposal = next_probe(SPACE, belief, one)
    assert proposal == next_probe(SPACE, belief, other)
    assert choose(belief, one) == choose(belief, other)
    assert proposal is None or proposal.row not in one


@pytest.mark.parametrize("most", [1, 3, 7, 15])
def test_the_limit_is_kept_and_runs_repeat_exactly(most):
    outcome = run(1e4, most)
    assert len(outcome.measured) <= most
    assert outcome == run(1e4, most)
