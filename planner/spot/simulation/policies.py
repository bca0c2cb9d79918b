"""The plan's way through interruptions beside others: what each of them takes, costs and misses."""

from __future__ import annotations

from dataclasses import dataclass

from planner.inputs import Trace
from planner.spot.deadline.baselines import greedy, uniform_progress
from planner.spot.simulation.capacity import Capacity, Modelled, Recorded
from planner.spot.simulation.case import Case
from planner.spot.simulation.case_runs import CaseRuns, check_runs

ALL_ON_DEMAND, ALL_SPOT, DEEPVM = "all on-demand", "all spot", "DeepVM"
THIS_PLAN, FALLBACK = "this plan", "with fallback"
GREEDY, UNIFORM, OMNISCIENT = "greedy", "uniform progress", "omniscient"

# The omniscient's work and restarts are rounded to whole steps: below these, by more than knowing all is worth.
_FEWEST_STEPS, _SHORTEST_RESTART_STEPS = 20, 0.25
_NOISE = 0.01  # of a mean, since it is taken over fewer runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """What a policy did, and in `note` what to keep in mind of it."""

    name: str
    runs: CaseRuns
    note: str = ""


def compare(
    case: Case, *, runs: int, seed: int, trace: Trace | None = None, fallback: bool = True
) -> list[PolicyResult]:
    """On the same work, prices and markets; DeepVM is its single anchor: one node on demand, the others spot.

    The policies that decide by a deadline are there only where there is one. A trace replaces the model's markets.
    Without `fallback` the plan waits for spot as long as it takes, and stands beside itself with its policy table.
    """
    check_runs(runs)
    capacity: Capacity = Modelled(runs, seed) if trace is None else Recorded(trace, runs, seed)
    if case.process is None or case.nodes == case.on_demand_count:
        on_demand = Modelled(runs, seed).waiting(case.with_base(case.nodes))
        return [PolicyResult(name=ALL_ON_DEMAND, runs=on_demand, note="no spot nodes: nothing can be lost")]
    results = [
        PolicyResult(name=ALL_ON_DEMAND, runs=capacity.waiting(case.with_base(case.nodes))),
        _waiting(ALL_SPOT, capacity, case.with_base(0), "the rendezvous is lost too" if case.nodes > 1 else ""),
        *(own := _own(capacity, case, fallback)),
    ]
    if case.nodes > 1:
        anchored = "one node on demand, no fallback, as DeepVM's single anchor"
        results.append(_waiting(DEEPVM, capacity, case.with_base(1), anchored))
    results += _by_deadline(capacity, case, case.deadline_hours, own[-1].runs) if case.deadline_hours else []
    return results


def _own(capacity: Capacity, case: Case, fallback: bool) -> list[PolicyResult]:
    table = case.policy_table()
    if table is None:
        too_short = "on-demand cannot keep the deadline either: spot however late" if case.deadline_hours else ""
        return [_waiting(THIS_PLAN, capacity, case, too_short, capacity.note(case))]
    decided, note = capacity.decided(case, lambda _world: table.decide), capacity.note(case)
    executes = "goes on-demand when its policy table says so"
    told = "told only what may be left at most (p95), as greedy and uniform progress are"
    if fallback:
        return [PolicyResult(name=THIS_PLAN, runs=decided, note=_joined(executes, told, note))]
    return [
        _waiting(THIS_PLAN, capacity, case, "waits for spot however late", note),
        PolicyResult(name=FALLBACK, runs=decided, note=_joined(f"this plan that {executes}", told)),
    ]


def _by_deadline(capacity: Capacity, case: Case, deadline_hours: float, own: CaseRuns) -> list[PolicyResult]:
    uniform = capacity.decided(case, lambda world: uniform_progress(world, deadline_hours))
    limit = _limit(capacity, case, own)
    without = f"no omniscient limit beside it: {limit}" if isinstance(limit, str) else ""
    results = [
        PolicyResult(name=GREEDY, runs=capacity.decided(case, greedy), note="spot or waiting until it must hurry"),
        PolicyResult(name=UNIFORM, runs=uniform, note=_joined("never behind an even pace (Can't Be Late)", without)),
    ]
    return results if isinstance(limit, str) else [*results, limit]


def _limit(capacity: Capacity, case: Case, own: CaseRuns) -> PolicyResult | str:
    """Or why there is none."""
    step = case.step_hours
    if not case.on_demand_keeps_deadline:
        return "nobody can keep this deadline"
    if float(case.world().work_hours) < _FEWEST_STEPS * step:
        return f"the job is shorter than {_FEWEST_STEPS} steps of {60 * step:.0f} min, to which it would be rounded"
    if case.restart_hours < _SHORTEST_RESTART_STEPS * step:
        return f"a restart is far shorter than a step of {60 * step:.0f} min, to which it would be rounded"
    runs = capacity.omniscient(case)
    if runs.usd.mean() > (1 + _NOISE) * own.usd.mean():
        return f"rounded to steps of {60 * step:.0f} min, it comes out dearer"
    return PolicyResult(name=OMNISCIENT, runs=runs, note="knows all capacity and work in advance: the limit")


def _waiting(name: str, capacity: Capacity, case: Case, *notes: str) -> PolicyResult:
    runs = capacity.waiting(case)
    unfinished = int((~runs.finished).sum())
    outlasted = f"{unfinished:,} of {runs.count:,} runs outlast {capacity.span} and count only until its end"
    return PolicyResult(name=name, runs=runs, note=_joined(*notes, outlasted if unfinished else ""))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
