"""Deadline policies on recorded capacity: dollars over the omniscient optimum, and deadlines missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from spot_pooling import region_of, zone_prior

from planner.inputs.traces import Trace
from planner.spot.deadline.baselines import greedy, uniform_progress
from planner.spot.deadline.dynamic_program import solve
from planner.spot.deadline.omniscient import omniscient_cost
from planner.spot.deadline.table import PolicyTable, decide_each
from planner.spot.deadline.world import ON_DEMAND, Moment, Policy, PolicyOutcome, World, act
from planner.spot.rates.history import process_from_trace

WORLD = World(work_hours=24.0, spot_share=0.4)
DEADLINE_FACTORS = (1.2, 1.5, 2.0)
LONGEST_HOURS = WORLD.work_hours * max(DEADLINE_FACTORS)
WINDOWS = 48  # starts per trace, spread over its second half
ALL_ON_DEMAND, GREEDY, UNIFORM = "all on-demand", "greedy", "uniform progress"
SCAV, OTHERS = "scav", "scav, other regions only"


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of one recording, each as long as the longest deadline."""

    starts: np.ndarray
    up: np.ndarray
    age_hours: np.ndarray
    prices: np.ndarray | None


def policy_rows(traces: Sequence[Trace]) -> list[dict[str, object]]:
    """A row per policy, deadline and trace; "all" is the mean over traces."""
    usable = [(trace, windows) for trace in traces if (windows := windows_of(trace)) is not None]
    if not usable:
        return []
    found: dict[tuple[str, float], list[dict[str, object]]] = {}
    for trace, windows in usable:
        rest = [other for other, _ in usable if region_of(other) != region_of(trace)]
        tables = _tables(trace, windows, rest)
        for factor in DEADLINE_FACTORS:
            deadline = factor * WORLD.work_hours
            limit = omniscient_cost(WORLD, windows.up, deadline, windows.prices)
            for name, policy in _policies(tables, deadline).items():
                outcome = act(WORLD, policy, windows.up, windows.age_hours, deadline, seed=1, prices=windows.prices)
                found.setdefault((name, factor), []).append(_row(name, factor, trace.name, outcome, limit))
    summary = [_mean_row(name, factor, rows) for (name, factor), rows in found.items()]
    return summary + [row for rows in found.values() for row in rows]


def windows_of(trace: Trace) -> Windows | None:
    """From the second half, so that whoever calibrates on the first has not seen them."""
    last = trace.hours - LONGEST_HOURS - WORLD.step_hours
    if last <= trace.hours / 2:
        return None
    starts = np.linspace(trace.hours / 2, last, WINDOWS)
    up, length = trace.stepped(WORLD.step_hours), round(LONGEST_HOURS / WORLD.step_hours)
    first = np.round(starts / WORLD.step_hours).astype(np.int64)
    runs = trace.stretches()
    ages = starts - runs.begin_hours[np.minimum(np.searchsorted(runs.end_hours, starts, "right"), len(runs.up) - 1)]
    rows = np.minimum(first[:, None] + np.arange(length), len(up) - 1)
    return Windows(starts, up[rows], ages, _prices(trace, rows))


def _prices(trace: Trace, rows: np.ndarray) -> np.ndarray | None:
    """As recorded, with the same mean share of on-demand as where no price was recorded."""
    if trace.prices is None:
        return None
    ticks = np.minimum(rows * WORLD.step_hours * 3600 / trace.tick_seconds, len(trace.prices) - 1).astype(np.int64)
    return WORLD.spot_share * trace.prices[ticks] / trace.prices.mean()


def _tables(trace: Trace, windows: Windows, others: Sequence[Trace]) -> dict[str, tuple[list[PolicyTable], np.ndarray]]:
    """For each day of starts one table from the seven days before it; and one from the other zones alone."""
    days, which = np.unique(np.floor((windows.starts - windows.starts[0]) / 24), return_inverse=True)
    known = [windows.starts[0] + 24 * day for day in days]
    recent = [solve(WORLD, process_from_trace(trace, until_hours=float(hours)), LONGEST_HOURS) for hours in known]
    tables = {SCAV: (recent, which)}
    if others:
        alone = solve(WORLD, zone_prior(others).process, LONGEST_HOURS)
        tables[OTHERS] = ([alone], np.zeros(len(which), dtype=np.int64))
    return tables


def _policies(tables: dict[str, tuple[list[PolicyTable], np.ndarray]], deadline: float) -> dict[str, Policy]:
    policies: dict[str, Policy] = {
        ALL_ON_DEMAND: on_demand_only,
        GREEDY: greedy(WORLD),
        UNIFORM: uniform_progress(WORLD, deadline),
    }
    for name, (choices, which) in tables.items():
        policies[name] = lambda moment, choices=choices, which=which: decide_each(choices, which, moment)
    return policies


def on_demand_only(moment: Moment) -> np.ndarray:
    return np.full(len(moment.work_left), ON_DEMAND)


def _row(name: str, factor: float, trace: str, outcome: PolicyOutcome, limit: np.ndarray) -> dict[str, object]:
    return {
        "policy": name,
        "deadline_factor": factor,
        "trace": trace,
        "cost_ratio_to_omniscient": float((outcome.cost / limit).mean()),
        "misses": float(outcome.missed.mean()),
        "saved_against_on_demand": float(1 - outcome.cost.mean() / (WORLD.work_hours + WORLD.restart_hours)),
        "losses": float(outcome.losses.mean()),
    }


def _mean_row(name: str, factor: float, rows: Sequence[dict[str, object]]) -> dict[str, object]:
    columns = ("cost_ratio_to_omniscient", "misses", "saved_against_on_demand", "losses")
    means = {column: math.fsum(row[column] for row in rows) / len(rows) for column in columns}
    worst = max(row["cost_ratio_to_omniscient"] for row in rows)
    return {"policy": name, "deadline_factor": factor, "trace": "all", **means, "worst_trace": worst}
