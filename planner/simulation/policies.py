"""The plan's way through interruptions beside others: what each of them takes, costs and misses."""

from __future__ import annotations

from dataclasses import dataclass

from planner.models.deadline.baselines import greedy, uniform_progress
from planner.models.interruption.traces import Trace
from planner.simulation.capacity import Capacity, Modelled, Recorded
from planner.simulation.case import Case
from planner.simulation.runs import CaseRuns, check_runs

ALL_ON_DEMAND, ALL_SPOT, DEEPVM = "all on-demand", "all spot", "DeepVM"
SCAV, FALLBACK = "scav's mix", "with fallback"
GREEDY, UNIFORM, OMNISCIENT = "greedy", "uniform progress", "omniscient"


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
    Without `fallback` scav's mix waits for spot as long as it takes, and stands beside itself with its policy table.
    """
    check_runs(runs)
    capacity: Capacity = Modelled(runs, seed) if trace is None else Recorded(trace, runs, seed)
    if case.process is None or case.nodes == case.on_demand_count:
        on_demand = Modelled(runs, seed).waiting(case.with_base(case.nodes))
        return [PolicyResult(name=ALL_ON_DEMAND, runs=on_demand, note="no spot nodes: nothing can be lost")]
    results = [
        PolicyResult(name=ALL_ON_DEMAND, runs=capacity.waiting(case.with_base(case.nodes))),
        _waiting(ALL_SPOT, capacity, case.with_base(0), "the rendezvous is lost too" if case.nodes > 1 else ""),
        *_scav(capacity, case, fallback),
    ]
    if case.nodes > 1:
        results.append(_waiting(DEEPVM, capacity, case.with_base(1), "one node on demand, no fallback"))
    results += _by_deadline(capacity, case, case.deadline_hours) if case.deadline_hours else []
    return results


def _scav(capacity: Capacity, case: Case, fallback: bool) -> list[PolicyResult]:
    table = case.policy_table()
    if table is None:
        too_short = "on-demand cannot keep the deadline either: spot however late" if case.deadline_hours else ""
        return [_waiting(SCAV, capacity, case, too_short, capacity.note(case))]
    decided, note = capacity.decided(case, lambda _world: table.decide), capacity.note(case)
    executes = "goes on-demand when its policy table says so"
    if fallback:
        return [PolicyResult(name=SCAV, runs=decided, note=_joined(executes, note))]
    return [
        _waiting(SCAV, capacity, case, "waits for spot however late", note),
        PolicyResult(name=FALLBACK, runs=decided, note=f"scav's mix that {executes}"),
    ]


def _by_deadline(capacity: Capacity, case: Case, deadline_hours: float) -> list[PolicyResult]:
    uniform = capacity.decided(case, lambda world: uniform_progress(world, deadline_hours))
    return [
        PolicyResult(name=GREEDY, runs=capacity.decided(case, greedy), note="spot or waiting until it must hurry"),
        PolicyResult(name=UNIFORM, runs=uniform, note="never behind an even pace (Can't Be Late)"),
        PolicyResult(name=OMNISCIENT, runs=capacity.omniscient(case), note="knows all capacity in advance: the limit"),
    ]


def _waiting(name: str, capacity: Capacity, case: Case, *notes: str) -> PolicyResult:
    runs = capacity.waiting(case)
    unfinished = int((~runs.finished).sum())
    outlasted = f"{unfinished:,} of {runs.count:,} runs outlast {capacity.span} and count only until its end"
    return PolicyResult(name=name, runs=runs, note=_joined(*notes, outlasted if unfinished else ""))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
