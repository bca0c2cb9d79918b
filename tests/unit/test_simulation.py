"""Laws of a simulated case: what must hold whatever the market, the mix and the job are."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.columns import Quantiles
from planner.errors import InputError
from planner.inputs.traces import Trace
from planner.models.checkpoints import checkpoint_interval_seconds
from planner.spot.deadline.table import PolicyTable
from planner.spot.deadline.world import ON_DEMAND, SPOT, Policy, World
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import AGES, SpotProcess
from planner.spot.runs.work import SURVIVING_SHARE
from planner.spot.simulation.capacity import Recorded
from planner.spot.simulation.case import Case
from planner.spot.simulation.case_runs import CaseRuns, Seeds, decided_runs, simulate_case, with_policy
from planner.spot.simulation.policies import compare

KNOWN = replace(POOLED, log_sd=0.0, own_loss_log_sd=0.0)
NEVER_LOST, SAVE_HOURS = KNOWN.scaled(loss=0.0), 30 / 3600
DAY = Case(
    work_hours=Quantiles(22.0, 24.0, 27.0),
    startup_hours=0.1,
    save_hours=SAVE_HOURS,
    restart_hours=0.12,
    interval_hours=0.25,
    uses_notice=False,
    nodes=4,
    on_demand_count=1,
    process=POOLED,
    node_on_demand_usd=3.0,
    node_spot_usd=1.1,
    storage_hourly_usd=0.1,
    price_age_days=10.0,
    deadline_hours=36.0,
)
TABLE = DAY.policy_table()
RUNS = 4000
seeds = st.integers(0, 2**31)
few_examples = settings(max_examples=settings.default.max_examples // 8, deadline=None)


def usd_p50(case: Case, seed: int, policy: PolicyTable | None = None) -> float:
    return simulate_case(case, policy=policy, runs=RUNS, seed=seed).usd_quantiles.p50


def same(one: CaseRuns, other: CaseRuns) -> bool:
    return all(getattr(one, field.name).tobytes() == getattr(other, field.name).tobytes() for field in fields(CaseRuns))


def always_spot(_world: World) -> Policy:
    return lambda moment: np.full(len(moment.up), SPOT)


def recording(ups: list[int], hours: float = 400.0, **more: object) -> Trace:
    counts = np.resize(np.array(ups), round(hours * 6))
    return Trace(name="zone.json", tick_seconds=600.0, counts=counts, **more)


@given(st.floats(0.5, 200.0), st.floats(1.0, 1.5), st.integers(1, 32), st.floats(0.01, 9.0), st.booleans(), seeds)
@few_examples
def test_without_losses_spot_costs_its_hours_at_the_spot_price(work, wide, nodes, price, decided, seed):
    spread = Quantiles(work / wide, work, work * wide)
    job = replace(DAY, work_hours=spread, process=NEVER_LOST, deadline_hours=3 + 4 * work)
    case = replace(
        job,
        nodes=nodes,
        on_demand_count=0,
        node_spot_usd=price,
        node_on_demand_usd=10.0,
        storage_hourly_usd=0.0,
        price_age_days=0.0,
    )
    policy = case.policy_table() if decided else None
    runs = simulate_case(case, policy=policy, runs=50, seed=seed)
    assert runs.usd == pytest.approx(runs.hours * nodes * price)
    assert not runs.losses.any()
    assert not runs.waiting_hours.any()
    assert runs.rework_hours == pytest.approx(0, abs=1e-6)


@given(st.floats(0.5, 500.0), st.integers(1, 64), st.floats(0, 1), st.floats(0, 0.1), seeds)
@few_examples
def test_on_demand_only_is_the_closed_form(work, nodes, startup, save, seed):
    job = replace(DAY, work_hours=Quantiles(work, work, work), startup_hours=startup, save_hours=save)
    case = replace(job, nodes=nodes, on_demand_count=nodes, process=None, deadline_hours=None)
    runs = simulate_case(case, policy=None, runs=3, seed=seed)
    assert runs.hours == pytest.approx(startup + work + work / 0.25 * save)
    assert runs.usd == pytest.approx(runs.hours * (nodes * 3.0 + 0.1))


@given(st.integers(0, 3), st.integers(1, 4), st.floats(0.4, 2.0), st.floats(1.05, 2.0), st.booleans(), seeds)
@few_examples
def test_more_on_demand_never_raises_the_chance_of_missing_the_deadline(base, more, loss, factor, decided, seed):
    case = replace(DAY, process=POOLED.scaled(loss=loss), deadline_hours=24.0 * factor)
    few, many = (case.with_base(count) for count in (base, min(base + more, 4)))
    late = [
        simulate_case(mix, policy=mix.policy_table() if decided else None, runs=1000, seed=seed).missed
        for mix in (few, many)
    ]
    as_told = case.work_draws(1000, Seeds.of(seed).work) <= case.work_hours.p95
    if decided:  # who decides knows nothing of runs that are longer than told: there it is a matter of luck
        assert late[1][as_told].mean() <= late[0][as_told].mean()
    left_to_chance = (~as_told).mean() if decided else 1.0
    noise = 0.0 if many.spot_count == 0 else 3 * (0.5 * left_to_chance / 1000) ** 0.5
    assert late[1].mean() <= late[0].mean() + noise


@given(st.floats(0.1, 2.0), st.floats(1.3, 3.0), st.booleans(), seeds)
@few_examples
def test_a_higher_loss_rate_never_lowers_the_median_cost_of_the_same_mix(loss, more, decided, seed):
    few, many = (
        usd_p50(replace(DAY, process=KNOWN.scaled(loss=rate)), seed, TABLE if decided else None)
        for rate in (loss, loss * more)
    )
    assert many >= few * 0.99


@given(st.sampled_from([5.0, 30.0, 300.0]), st.floats(0.8, 1.5), st.integers(0, 1000))
@few_examples
def test_the_chosen_interval_beats_half_and_double_of_it(save, loss, seed):
    process = KNOWN.scaled(loss=loss)
    chosen = checkpoint_interval_seconds(save, process.mean_up_hours)
    case = replace(DAY, process=process, save_hours=save / 3600, on_demand_count=0, price_age_days=0.0)
    half, best, double = (
        simulate_case(
            replace(case, interval_hours=chosen * factor / 3600), policy=None, runs=3 * RUNS, seed=seed
        ).usd.mean()
        for factor in (0.5, 1.0, 2.0)
    )
    assert best <= min(half, double) * 1.003  # docs/models.md: 0.8 %, where hardly any node is lost


@given(st.floats(0.5, 60.0), st.floats(1.1, 2.5), st.floats(0.3, 3.0), seeds)
@few_examples
def test_of_runs_not_longer_than_told_only_those_are_late_whom_on_demand_is_late_for_too(work, factor, loss, seed):
    spread = Quantiles(work * 0.8, work, work * 1.3)
    case = replace(DAY, work_hours=spread, process=POOLED.scaled(loss=loss), deadline_hours=factor * (work + 0.5))
    table = case.policy_table()
    assert table is not None
    runs = simulate_case(case, policy=table, runs=300, seed=seed)
    on_demand = simulate_case(case.with_base(4), policy=None, runs=300, seed=seed)
    as_told = case.work_draws(300, Seeds.of(seed).work) <= case.work_hours.p95
    assert (runs.missed == on_demand.missed)[as_told].all()
    assert as_told.mean() > 0.9


@pytest.mark.parametrize("policy", [None, TABLE], ids=["waiting", "decided"])
def test_same_seed_same_bytes(policy):
    one, again, other = (simulate_case(DAY, policy=policy, runs=500, seed=seed) for seed in (7, 7, 8))
    assert same(one, again)
    assert not same(one, other)


def test_work_price_and_market_are_drawn_apart():
    runs = simulate_case(replace(DAY, process=NEVER_LOST), policy=None, runs=RUNS, seed=3)
    price = runs.usd / runs.hours
    assert abs(np.corrcoef(runs.hours, price)[0, 1]) < 0.05


def test_a_spot_node_never_costs_more_than_on_demand():
    dear = replace(DAY, node_spot_usd=2.9, price_age_days=90.0)
    assert dear.spot_usd_draws(1000, seed=1).max() == 3.0


@pytest.mark.parametrize(("nodes", "waiting"), [(2, 0.0), (4, SURVIVING_SHARE)])
@pytest.mark.parametrize("decided", [True, False])
def test_the_base_is_paid_while_it_waits_and_of_the_spot_nodes_those_that_wait_too(nodes, waiting, decided):
    case = replace(DAY, nodes=nodes, price_age_days=0.0, deadline_hours=300.0)
    runs = with_policy(case, always_spot, 500, 1) if decided else simulate_case(case, policy=None, runs=500, seed=1)
    running = runs.hours - runs.waiting_hours
    expected = runs.hours * 3.1 + (running + waiting * runs.waiting_hours) * (nodes - 1) * 1.1
    in_time = ~runs.missed
    assert runs.usd[in_time] == pytest.approx(expected[in_time])
    assert case.waiting_hourly_usd == pytest.approx(3.1 + waiting * (nodes - 1) * 1.1)


def test_a_recording_says_how_many_nodes_wait_for_the_others():
    """Half the time all three spot nodes are there, half the time two of them."""
    case = replace(DAY, interval_hours=0.05, save_hours=0.0, price_age_days=0.0, deadline_hours=200.0)
    recorded = Recorded(recording([4] * 60 + [2] * 60), runs=60, seed=1)
    for runs in (recorded.waiting(case), recorded.decided(case, always_spot)):
        assert not runs.missed.any()
        assert runs.waiting_hours.min() > 10
        spot_usd = runs.usd - 3.1 * runs.hours
        paid = (runs.hours - runs.waiting_hours) + 2 / 3 * runs.waiting_hours
        assert spot_usd == pytest.approx(paid * 3 * 1.1, rel=0.02)


def test_who_decides_is_told_the_p95_of_the_work_and_the_run_is_done_when_it_is_done():
    told = []

    def watching(world):
        assert world.work_hours == DAY.assumed_work_hours == pytest.approx(DAY.world(27.0).work_hours)
        return lambda moment: told.append(moment.work_left) or np.full(len(moment.up), ON_DEMAND)

    done = with_policy(DAY, watching, 200, 0).hours
    assert done == pytest.approx(simulate_case(DAY.with_base(4), policy=None, runs=200, seed=0).hours, abs=0.03)
    assert (told[0] == DAY.assumed_work_hours).all()
    assert np.min(told) == DAY.step_hours


@pytest.mark.parametrize("base", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_far_from_the_deadline_fewer_runs_are_decided_and_the_table_still_beats_those_without_a_model(base):
    long = replace(DAY, work_hours=Quantiles(1900.0, 2000.0, 2150.0), deadline_hours=4000.0).with_base(base)
    runs = {result.name: result.runs for result in compare(long, runs=RUNS, seed=0)}
    assert runs["this plan"].usd.mean() < min(runs[name].usd.mean() for name in ("greedy", "uniform progress"))
    assert (runs["this plan"].count, runs["all spot"].count) == (750, RUNS)
    assert [decided_runs(replace(DAY, deadline_hours=hours), RUNS) for hours in (36.0, 1e5)] == [RUNS, 500]


def test_a_table_keeps_time_for_replacing_spot_nodes_and_none_for_what_cannot_be_lost():
    assert TABLE.margin_hours == pytest.approx(3 * 0.12)  # whatever the base: more of it must not mean less time
    assert replace(DAY, nodes=64).margin_hours == pytest.approx(12 * 0.12)
    short = replace(DAY, work_hours=Quantiles(0.2, 0.2, 0.2), interval_hours=1.0, deadline_hours=2.0)
    assert short.policy_table().rollback_hours == pytest.approx(short.assumed_work_hours)
    assert short.simulated_world(np.array([0.2])).interval_hours > 1.0


@pytest.mark.parametrize("work", [0.5, 24.0, 2000.0])
def test_a_table_is_small_whatever_the_job(work):
    case = replace(DAY, work_hours=Quantiles(0.9 * work, work, 1.1 * work), deadline_hours=1.5 * work)
    table = case.policy_table()
    assert table is not None
    assert len(table.work_left_hours) <= 26
    assert table.work_left_hours[-1] >= 1.1 * work
    assert len(table.model_dump_json()) < 12_000


@pytest.mark.parametrize("base", [0, 1, 3])
@pytest.mark.parametrize(("work", "factor"), [(1.0, 2.0), (24.0, 1.2), (24.0, 4.0), (24.0, 40.0), (300.0, 3.0)])
def test_who_may_rent_on_demand_at_any_time_is_not_dearer_than_it_on_average(work, factor, base):
    """Also where most of the cluster is paid for while it waits, and far from the deadline."""
    job = replace(DAY, work_hours=Quantiles(work * 0.97, work, work * 1.03), deadline_hours=factor * work)
    case = job.with_base(base)
    mixed = simulate_case(case, policy=case.policy_table(), runs=500, seed=0)
    on_demand = simulate_case(case.with_base(4), policy=None, runs=500, seed=0)
    assert mixed.usd.mean() < on_demand.usd.mean() * 1.001


def test_there_is_no_table_where_nothing_can_be_decided():
    assert replace(DAY, deadline_hours=None).policy_table() is None
    assert replace(DAY, deadline_hours=20.0).policy_table() is None
    assert DAY.with_base(4).policy_table() is None


def test_policies_are_compared_in_one_order_and_the_limit_is_the_cheapest_that_keeps_the_deadline():
    results = {result.name: result for result in compare(DAY, runs=1000, seed=0)}
    assert list(results) == [
        *("all on-demand", "all spot", "this plan", "DeepVM", "greedy", "uniform progress", "omniscient"),
    ]
    mean = {name: result.runs.usd.mean() for name, result in results.items()}
    assert mean["omniscient"] < mean["this plan"] < min(mean["greedy"], mean["uniform progress"])
    assert mean["this plan"] < mean["all on-demand"]
    assert results["this plan"].runs.missed.mean() < 0.01 < results["DeepVM"].runs.missed.mean()


@pytest.mark.parametrize("work", [24.0, 300.0])
def test_whoever_decides_by_the_deadline_keeps_it_whatever_the_step(work):
    job = replace(DAY, work_hours=Quantiles(work * 0.95, work, work * 1.05), deadline_hours=1.5 * work)
    late = {result.name: result.runs.missed.mean() for result in compare(job, runs=300, seed=0)}
    assert late["this plan"] < 0.02  # one in twenty is longer than anyone was told
    assert max(late["greedy"], late["uniform progress"]) < 0.06
    assert late["all spot"] > 0.2


def test_without_a_deadline_nobody_decides_by_one():
    names = [result.name for result in compare(replace(DAY, deadline_hours=None), runs=200, seed=0)]
    assert names == ["all on-demand", "all spot", "this plan", "DeepVM"]


def test_a_mix_that_does_not_count_on_its_table_stands_beside_itself_with_it():
    results = {result.name: result.runs for result in compare(DAY, runs=500, seed=0, fallback=False)}
    assert results["with fallback"].missed.mean() <= 0.01 < results["this plan"].missed.mean()
    assert same(results["this plan"], simulate_case(DAY, policy=None, runs=500, seed=0))
    assert same(results["with fallback"], simulate_case(DAY, policy=TABLE, runs=500, seed=0))


def test_a_plan_without_spot_nodes_cannot_lose_any():
    [only] = compare(DAY.with_base(4), runs=200, seed=0)
    assert (only.name, only.note) == ("all on-demand", "no spot nodes: nothing can be lost")


def test_a_deadline_that_on_demand_cannot_keep_is_said():
    results = compare(replace(DAY, deadline_hours=20.0), runs=100, seed=0)
    assert "on-demand cannot keep the deadline" in results[2].note
    assert results[0].runs.missed.all()


def test_capacity_that_is_always_there_replays_as_never_lost():
    case = replace(DAY, process=NEVER_LOST, price_age_days=0.0)
    replayed = compare(case, runs=50, seed=1, trace=recording([4]))
    modelled = compare(case, runs=50, seed=1)
    for one, other in zip(replayed[:3], modelled[:3], strict=True):
        assert not one.runs.losses.any()
        assert one.runs.usd.mean() == pytest.approx(other.runs.usd.mean(), rel=0.05)


def test_recorded_prices_move_around_the_plans_own():
    counts = np.resize([4], 2400)
    dear_half = np.where(np.arange(2400) < 1200, 0.5, 1.5)
    trace = Trace(name="zone.json", tick_seconds=600.0, counts=counts, prices=dear_half)
    case = replace(DAY, on_demand_count=0, storage_hourly_usd=0.0, deadline_hours=None)
    runs = compare(case, runs=400, seed=1, trace=trace)[2].runs
    price = runs.usd / runs.hours / 4
    assert (price.min(), price.max()) == (pytest.approx(0.55), pytest.approx(1.65))
    decided = compare(replace(case, deadline_hours=60.0), runs=400, seed=1, trace=trace)[2].runs
    price = decided.usd / decided.hours / 4
    assert (price.min(), price.max()) == (pytest.approx(0.55), pytest.approx(1.65))


def test_a_trace_with_fewer_nodes_than_the_plan_is_said():
    results = compare(DAY, runs=50, seed=0, trace=recording([2] * 50 + [0] * 5))
    assert "the trace is of 2 nodes, taken for all 3 spot nodes at once" in results[2].note


def test_runs_that_outlast_the_recording_are_counted():
    case = replace(DAY, deadline_hours=None)
    results = compare(case, runs=100, seed=0, trace=recording([4] + [0] * 20))
    assert results[2].note == "100 of 100 runs outlast the recording and count only until its end"
    assert not results[2].runs.finished.any()


def test_who_is_given_up_after_a_year_is_late_however_far_the_deadline_is():
    hardly_there = replace(DAY, process=KNOWN.scaled(loss=30.0, returns=0.01), deadline_hours=9000.0)
    runs = simulate_case(hardly_there, policy=None, runs=50, seed=0)
    assert not runs.finished.all()
    assert (runs.missed == ~runs.finished).all()


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"work_hours": Quantiles(0.9, 1.0, 1.1), "deadline_hours": 3.0}, "the job is shorter than 20 steps of 6 min"),
        ({"restart_hours": 0.02}, "a restart is far shorter than a step of 7 min"),
        ({"deadline_hours": 20.0}, "nobody can keep this deadline"),
    ],
)
def test_a_limit_that_rounding_would_lift_is_left_out(job, why):
    last = compare(replace(DAY, **job), runs=100, seed=0)[-1]
    assert last.name == "uniform progress"
    assert f"no omniscient limit beside it: {why}" in last.note


@pytest.mark.parametrize("process", [POOLED, NEVER_LOST], ids=["lost", "never lost"])
@pytest.mark.parametrize("wide", [1.05, 2.5])
def test_the_limit_is_not_above_the_plan(process, wide):
    case = replace(DAY, work_hours=Quantiles(12 / wide, 12.0, 12 * wide), process=process, deadline_hours=24.0)
    mean = {result.name: result.runs.usd.mean() for result in compare(case, runs=800, seed=0)}
    assert mean["omniscient"] <= mean["this plan"] * 1.01


def test_a_save_longer_than_the_notice_is_not_saved_by_it():
    slow = replace(DAY, save_hours=0.05, deadline_hours=None)
    with_notice = replace(slow, uses_notice=True)
    assert same(*(simulate_case(case, policy=None, runs=200, seed=1) for case in (slow, with_notice)))
    quick = replace(DAY, deadline_hours=None)
    assert usd_p50(replace(quick, uses_notice=True), 1) < usd_p50(quick, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"process": SpotProcess(loss_per_hour=np.ones(AGES), return_per_hour=np.zeros(AGES))}, "availability is zero"),
        ({"process": None}, "nothing is known of when these spot nodes are lost"),
        ({"node_spot_usd": -1.0}, r"a price of -1\.0 \$/h cannot be"),
        ({"node_on_demand_usd": float("nan")}, r"a price of nan \$/h cannot be"),
        ({"interval_hours": 0.0}, "need a job that saves checkpoints"),
        ({"save_hours": -0.1}, "less than no time"),
        ({"on_demand_count": 5}, "5 of 4 nodes cannot be on-demand"),
        ({"work_hours": Quantiles(0.0, 1.0, 2.0)}, "cannot be simulated"),
        ({"deadline_hours": 0.0}, "cannot be met"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wrong, message):
    with pytest.raises(InputError, match=message) as error:
        replace(DAY, **wrong)
    assert "\n" not in str(error.value)
