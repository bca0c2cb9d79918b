"""Forecasts of one job's hours on spot nodes, each scored against what the recorded capacity then did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from spot_data import cut_off
from spot_pooling import SHORTEST_HOURS, region_of, zone_prior

from planner.columns import Z95
from planner.inputs.traces import Trace
from planner.spot.rates.history import HISTORY_WEIGHTS, HistoryWeights, process_from_trace
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.monte_carlo import simulate
from planner.spot.runs.replay import replay
from planner.spot.runs.work import SpotWork

WORK = SpotWork(work_hours=24.0, interval_hours=0.25, restart_hours=0.1)
ROLLING_HOURS = 168.0
MARGIN = 3.0  # a start is scored when the recording goes on for this many times the work
STEP_HOURS = 6.0
RUNS = 4_000

Forecast = tuple[float, float, float]
Forecaster = Callable[[Trace, float], Forecast]


@dataclass(frozen=True, slots=True)
class Score:
    """All forecasts of one model on one trace. An unfinished run counts only where it already refutes the forecast."""

    errors: np.ndarray
    covered: np.ndarray
    widths: np.ndarray
    log_bias: np.ndarray

    @classmethod
    def joined(cls, scores: Sequence[Score]) -> Score:
        parts = zip(*((s.errors, s.covered, s.widths, s.log_bias) for s in scores), strict=True)
        return cls(*(np.concatenate(part) for part in parts))

    def row(self, trace: str, model: str) -> dict[str, object]:
        return {
            "trace": trace,
            "model": model,
            "runs": len(self.widths),
            "p50_error": float(np.median(self.errors)) if len(self.errors) else None,
            "mean_error": float(np.mean(self.errors)) if len(self.errors) else None,
            "finished_error": float(np.median(np.abs(np.expm1(self.log_bias)))) if len(self.log_bias) else None,
            "covered90": float(np.mean(self.covered)) if len(self.covered) else None,
            "width": float(np.median(self.widths)),
            "mean_width": float(np.mean(self.widths)),
            "bias": float(math.exp(np.median(self.log_bias)) - 1) if len(self.log_bias) else None,
        }


def origins(trace: Trace, first_hours: float) -> np.ndarray:
    return np.arange(first_hours, trace.hours - MARGIN * WORK.work_hours, STEP_HOURS)


def score(trace: Trace, forecaster: Forecaster, starts: np.ndarray) -> Score:
    actual = replay(WORK, trace.stretches(), starts)
    low, middle, high = np.array([forecaster(trace, start) for start in starts]).reshape(-1, 3).T
    hours, finished = actual.hours, actual.finished
    errors = np.abs(middle - hours) / hours
    covered = (hours >= low) & (hours <= high)
    return Score(
        errors[finished | (middle < hours)],
        covered[finished | (high < hours)] & finished[finished | (high < hours)],
        high / low,
        np.log(middle / hours)[finished],
    )


def rolling(weights: HistoryWeights = HISTORY_WEIGHTS, prior: SpotProcess | None = None) -> Forecaster:
    """Knows the last seven days, as `scav plan --spot-history` does; not what is there at the moment of the start."""

    def forecast(trace: Trace, start: float) -> Forecast:
        more = {} if prior is None else {"prior": prior}
        process = process_from_trace(trace, until_hours=start, weights=weights, history_hours=ROLLING_HOURS, **more)
        return _quantiles(process, start)

    return forecast


def first_half(weights: HistoryWeights = HISTORY_WEIGHTS, prior: SpotProcess | None = None) -> Forecaster:
    """Knows the first half only, however long ago it was."""

    def forecast(trace: Trace, start: float) -> Forecast:
        more = {} if prior is None else {"prior": prior}
        half = trace.hours / 2
        process = process_from_trace(
            trace, until_hours=half, age_hours=start - half, weights=weights, history_hours=half, **more
        )
        return _quantiles(process, start)

    return forecast


def without(traces: Sequence[Trace]) -> Callable[[Trace], SpotProcess]:
    """The prior from every other region: scav's own has seen all of them."""
    priors: dict[str, SpotProcess] = {}

    def prior(trace: Trace) -> SpotProcess:
        region = region_of(trace)
        if region not in priors:
            others = [other for other in traces if region_of(other) != region and other.hours >= SHORTEST_HOURS]
            priors[region] = zone_prior(others).process
        return priors[region]

    return prior


def other_zones(traces: Sequence[Trace]) -> Forecaster:
    """Knows every trace of other regions."""
    pool = without(traces)
    return lambda trace, start: _quantiles(pool(trace), start)


def rolling_without(traces: Sequence[Trace]) -> Forecaster:
    """As `rolling`, where scav's prior has not seen the region."""
    pool = without(traces)
    return lambda trace, start: rolling(prior=pool(trace))(trace, start)


def closed_form(trace: Trace, _: float) -> Forecast:
    """W (1 + lambda (R + C/2)) / availability of the first half; exponential up- and down-times give the interval."""
    runs = cut_off(trace, trace.hours / 2).stretches()
    lengths = runs.end_hours - runs.begin_hours
    up, down = lengths[runs.up], lengths[~runs.up]
    if not len(up) or not len(down):
        return (WORK.work_hours,) * 3
    busy = WORK.work_hours * (1 + (WORK.restart_hours + WORK.interval_hours / 2) / up.mean())
    mean = busy * (1 + down.mean() / up.mean())
    spread = down.mean() * math.sqrt(2 * busy / up.mean())
    return max(mean - Z95 * spread, busy), mean, mean + Z95 * spread


def _quantiles(process: SpotProcess, start: float) -> Forecast:
    hours = simulate(WORK, process, RUNS, seed=round(start)).hours
    low, middle, high = np.quantile(hours, [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)


def rolling_starts(trace: Trace) -> np.ndarray:
    """After seven days of history; a shorter trace serves from its middle on, with what history it has."""
    enough = trace.hours >= ROLLING_HOURS + (MARGIN + 1) * WORK.work_hours
    return origins(trace, ROLLING_HOURS if enough else trace.hours / 2)


def forecast_rows(traces: Sequence[Trace]) -> list[dict[str, object]]:
    models: list[tuple[str, Forecaster, Callable[[Trace], np.ndarray]]] = [
        ("scav, 7 days rolling", rolling(), rolling_starts),
        ("scav, 7 days rolling, prior without the region", rolling_without(traces), rolling_starts),
        ("scav, first half", first_half(), lambda trace: origins(trace, trace.hours / 2)),
        ("scav, other regions only", other_zones(traces), lambda trace: origins(trace, trace.hours / 2)),
        ("closed form, first half", closed_form, lambda trace: origins(trace, trace.hours / 2)),
    ]
    rows = []
    for name, forecaster, starts_of in models:
        scores = {trace.name: score(trace, forecaster, starts_of(trace)) for trace in traces if len(starts_of(trace))}
        rows += [one.row(trace, name) for trace, one in scores.items()]
        if scores:
            rows.append(Score.joined(list(scores.values())).row("all", name))
    return rows
