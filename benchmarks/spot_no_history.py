"""A zone that nobody has recorded: hours and dollars of 24 h of work, forecast from the recordings of other regions.

For every recording its whole region is left out, constants included. Three forecasts: scav's prior, the pool that scav
had before (with its exponents of the gang's size, 0.25 and -0.05), and the other regions' recordings replayed.
A recording is replayed round and round, so that late and long runs count too. Dollars: spot nodes at 0.4 of on demand,
and beside several of them one on-demand node, as plans have it. Every zone weighs the same. The pinball loss is that of
log hours and log dollars at 5, 50 and 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from spot_pooling import SHORTEST_HOURS, region_of, zone_prior

from planner.columns import Floats
from planner.inputs import Trace
from planner.spot.rates.history import ages_lived
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.monte_carlo import simulate
from planner.spot.runs.replay import replay, replayed_usd
from planner.spot.runs.work import SURVIVING_SHARE, SpotWork

WORK = SpotWork(work_hours=24.0, interval_hours=0.25, restart_hours=0.1)
GANGS = (1, 4, 16)
SPOT_SHARE, STEP_HOURS, STARTS, RUNS = 0.4, 3.0, 200, 8_000
LONGEST_HOURS = 1_200.0  # of a run: recordings are repeated until they are as long
QUANTILES = np.array([0.05, 0.5, 0.95])

Outcome = tuple[Floats, Floats]  # hours and dollars of many runs
Forecaster = Callable[[Sequence[Trace], int], Outcome]


def no_history_rows(traces: Sequence[Trace]) -> Iterator[dict[str, object]]:
    """A row per gang, forecast and zone; "all" is the mean over zones."""
    usable = [trace for trace in traces if trace.hours >= SHORTEST_HOURS]
    for nodes in GANGS:
        for name, forecaster in FORECASTERS.items():
            known: dict[str, Outcome] = {}
            rows = []
            for trace in (trace for trace in usable if trace.size >= nodes):
                region = region_of(trace)
                if region not in known:
                    others = [other for other in usable if region_of(other) != region]
                    hours, usd = forecaster(others, nodes)
                    known[region] = np.quantile(hours, QUANTILES), np.quantile(usd, QUANTILES)
                starts = np.arange(0.0, trace.hours, STEP_HOURS)
                rows.append(_row(nodes, name, trace.name, known[region], replayed(trace, nodes, nodes, starts)))
            if rows:
                yield {**_mean(rows), "zones": len(rows), "trace": "all"}
                yield from rows


def _row(nodes: int, name: str, trace: str, forecast: Outcome, actual: Outcome) -> dict[str, object]:
    row: dict[str, object] = {"nodes": nodes, "forecast": name, "trace": trace}
    for what, quantiles, values in zip(("hours", "usd"), forecast, actual, strict=True):
        low, _, high = quantiles
        row[f"covered90_{what}"] = float(((values >= low - 1e-9) & (values <= high + 1e-9)).mean())
        row[f"width_{what}"] = float(high / low)
        off = np.log(values)[:, None] - np.log(quantiles)
        row[f"pinball_{what}"] = float(np.maximum(QUANTILES * off, (QUANTILES - 1) * off).mean())
    return row


def _mean(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    first = rows[0]
    return {key: fmean(row[key] for row in rows) if isinstance(first[key], float) else first[key] for key in first}


def replayed(trace: Trace, seen: int, nodes: int, starts: Floats) -> Outcome:
    """`nodes` on what `seen` of them did."""
    times = math.ceil(LONGEST_HOURS / trace.hours) + 2
    endless = replace(trace, counts=np.tile(trace.counts, times), prices=np.ones(times * len(trace.counts)))
    runs = replay(WORK, endless.stretches(seen), starts)
    node_hours = replayed_usd(endless, runs, starts, seen, SURVIVING_SHARE if nodes > 1 else 0.0)
    return runs.hours, _usd(nodes, runs.hours, node_hours)


def _usd(nodes: int, hours: Floats, node_hours: Floats) -> Floats:
    return nodes * SPOT_SHARE * node_hours + (hours if nodes > 1 else 0.0)


def simulated(process: SpotProcess, nodes: int) -> Outcome:
    runs = simulate(WORK, process, RUNS, seed=3)
    surviving = SURVIVING_SHARE if nodes > 1 else 0.0
    return runs.hours, _usd(nodes, runs.hours, runs.paid_hours + surviving * (runs.hours - runs.paid_hours))


def prior(others: Sequence[Trace], nodes: int) -> Outcome:
    return simulated(zone_prior(others).gang(nodes), nodes)


def pool_before(others: Sequence[Trace], nodes: int) -> Outcome:
    """Whole gangs pooled, each zone weighing the same; and 0.6 of the spread of their levels."""
    lived = [[ages_lived(trace.stretches(), up, 0.0, trace.hours) for up in (True, False)] for trace in others]
    zones = [(np.array([h for h, _ in both]), np.array([e for _, e in both])) for both in lived]
    zones = [(hours, events) for hours, events in zones if events.sum(axis=1).min() >= 5]
    hours = sum(hours / events.sum(axis=1, keepdims=True) for hours, events in zones)
    rates = sum(events / events.sum(axis=1, keepdims=True) for _, events in zones) / np.maximum(hours, 1e-9)
    levels = [np.log(events.sum(axis=1) / (hours * rates).sum(axis=1)) for hours, events in zones]
    spread = 0.6 * float(np.std(levels, axis=0).mean())
    process = SpotProcess(
        loss_per_hour=rates[0] * nodes**0.25,
        return_per_hour=rates[1] * nodes**-0.05,
        log_sd=spread,
        own_loss_log_sd=math.hypot(spread, 0.2 * math.log(nodes)),
    )
    return simulated(process, nodes)


def replay_of_others(others: Sequence[Trace], nodes: int) -> Outcome:
    """As large a gang as each recording has."""
    parts = [
        replayed(trace, min(nodes, trace.size), nodes, np.linspace(0.0, trace.hours, STARTS, endpoint=False))
        for trace in others
    ]
    hours, usd = zip(*parts, strict=True)
    return np.concatenate(hours), np.concatenate(usd)


FORECASTERS: dict[str, Forecaster] = {
    "scav": prior,
    "pool before": pool_before,
    "replay of other regions": replay_of_others,
}
