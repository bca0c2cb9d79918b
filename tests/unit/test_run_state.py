"""What `scav watch` makes of what it sees: phases, progress, hours and dollars beside the plan's band.

`pytest tests/unit/test_run_state.py --update-golden` rewrites tests/golden/watch/.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.outside import store
from planner.plan import NodeLife, Seen, run_state, run_text
from planner.plan.run_state import Printed, printed

GOLDEN = Path(__file__).parents[1] / "golden" / "watch"
BEGAN = 1_000_000.0
HOUR = 3600.0


@pytest.fixture
def plan(workspace):
    return store.load_plan(workspace)


def life(name, **more):
    return NodeLife(instance_id=name, began=BEGAN, **more)


def beat(name, phase="running", said=None, time=BEGAN + 60):
    return {"instance_id": name, "phase": phase, "time": time, "said": said}


def all_nodes(plan, **more):
    return [life(f"i-{number}", **more) for number in range(plan.choice.node_count)]


def running(plan, *, hours=1.0, said="step 80000: loss 0.5", **more):
    nodes = all_nodes(plan)
    beats = [beat(node.instance_id, said=said) for node in nodes]
    seen = {"nodes": nodes, "heartbeats": beats, "marks": {"_STARTED": BEGAN + 300}, "capacity": len(nodes)}
    return Seen(now=BEGAN + hours * HOUR, **(seen | more))


def test_before_any_node_is_up(plan, update_golden):
    seen = Seen(now=BEGAN, capacity=plan.choice.node_count, refusals=["We currently do not have sufficient capacity"])
    state = run_state(plan, seen)
    assert (state.phase, state.hours.so_far, state.usd.so_far, state.nodes.up) == ("waiting for nodes", 0, 0, 0)
    assert "sufficient capacity" in state.reason
    golden("before", run_text(state), update_golden)


def test_while_it_runs(plan, update_golden):
    checkpoints = {"epoch-1.pt": BEGAN + 1800, "epoch-2.pt": BEGAN + 3300}
    state = run_state(plan, running(plan, checkpoints=checkpoints))
    assert state.phase == "running"
    assert state.training.step == 80000
    assert state.training.samples == 80000 * plan.choice.global_batch
    assert state.training.loss == 0.5
    assert state.hours.so_far == pytest.approx(1.0)
    assert state.usd.so_far == pytest.approx(plan.choice.hourly_usd)
    assert state.hours_at_this_pace == pytest.approx(1.0 / state.training.share)
    assert state.checkpoint.newest == "epoch-2.pt"
    interval = plan.choice.checkpoint_interval_seconds
    assert state.checkpoint.next_in_seconds == (pytest.approx(interval - 300) if interval else None)
    golden("running", run_text(state), update_golden)


def test_after_its_success(plan, update_golden):
    end = BEGAN + 2 * HOUR
    nodes = all_nodes(plan, ended=end + 60)
    beats = [beat(node.instance_id, "done", "step 450000: loss 0.1") for node in nodes]
    seen = Seen(
        now=end + 9 * HOUR,
        capacity=0,
        nodes=nodes,
        heartbeats=beats,
        marks={"_STARTED": BEGAN, "_SUCCESS": end},
        checkpoints={"model.pt": end},
    )
    state = run_state(plan, seen)
    assert (state.phase, state.over, state.nodes.lost, state.nodes.up) == ("succeeded", True, 0, 0)
    assert state.hours.so_far == pytest.approx(2.0)
    assert state.checkpoint.next_in_seconds is None
    golden("succeeded", run_text(state), update_golden)


def test_after_its_failure_the_reason_is_there(plan, update_golden):
    seen = Seen(
        now=BEGAN + HOUR,
        capacity=0,
        nodes=all_nodes(plan, ended=BEGAN + HOUR),
        marks={"_FAILED": BEGAN + HOUR},
        reason="5 failures without a new checkpoint, the last one: torchrun ended with code 1: CUDA out of memory",
    )
    state = run_state(plan, seen)
    assert state.phase == "failed"
    assert state.reason.endswith("CUDA out of memory")
    golden("failed", run_text(state), update_golden)


def test_a_group_without_capacity_and_without_a_mark_was_stopped(plan):
    state = run_state(plan, Seen(now=BEGAN + 5 * HOUR, capacity=0, nodes=all_nodes(plan, ended=BEGAN + HOUR)))
    assert state.phase == "stopped"
    assert state.hours.so_far == pytest.approx(1.0)


def test_nodes_that_have_not_all_come_do_not_run(plan):
    seen = running(plan, nodes=[life("i-0")], heartbeats=[beat("i-0", "waiting")])
    assert run_state(plan, seen).phase == "starting"


def test_who_is_gone_while_it_goes_on_was_lost(plan):
    nodes = [*all_nodes(plan), life("i-lost", ended=BEGAN + 600)]
    state = run_state(plan, running(plan, nodes=nodes))
    assert state.nodes.lost == 1
    assert "1 node lost" in run_text(state)


@pytest.mark.parametrize("hours", [0.0, 1.0, 1000.0])
def test_beyond_the_p95_it_says_so(plan, hours):
    state = run_state(plan, running(plan, hours=hours))
    expected = "beyond the plan's p95" if hours > plan.estimate.hours.p95 else "within the plan"
    assert state.hours.standing == expected


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 1200: loss 0.4312", Printed(1200, None, 0.4312)),
        ("{'loss': 1.25, 'grad_norm': 0.3, 'epoch': 0.5}", Printed(None, None, 1.25)),
        ("global_step=7,000 train_loss=2e-3", Printed(7000, None, 0.002)),
        ("samples: 15_360 loss: nan", Printed(None, 15360.0, None)),
        ("Iteration [  40/ 100]", Printed(40, None, None)),
        ("300 samples/s", Printed(None, None, None)),
        ("stepped over 3 stones", Printed(None, None, None)),
    ],
)
def test_what_jobs_print_is_read(line, found):
    assert printed(line) == found


@given(st.text(max_size=700))
def test_any_line_may_be_printed(line):
    printed(line)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=6), st.floats(0, 2e6))
def test_hours_and_dollars_never_fall(planned_once, spans, more):
    plan = store.load_plan(planned_once)
    nodes = [
        NodeLife(instance_id=f"i-{number}", began=BEGAN + start, ended=BEGAN + start + length)
        for number, (start, length) in enumerate(spans)
    ] + [life("i-there")]
    now = BEGAN + 2.1e6
    early, late = (run_state(plan, Seen(now=at, capacity=1, nodes=nodes)) for at in (now, now + more))
    assert late.hours.so_far >= early.hours.so_far
    assert late.usd.so_far >= early.usd.so_far


def golden(name, text, update):
    assert all(len(line) <= 80 for line in text.splitlines())
    file = GOLDEN / f"{name}.txt"
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
