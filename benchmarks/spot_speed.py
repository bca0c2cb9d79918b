"""What interruptions add to a search, and how many runs are simulated a second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from planner.models.interruption import SpotBurden, SpotRates, spot_slowdown
from planner.models.interruption.checkpoints import intervals_seconds
from planner.models.interruption.pooled import POOLED
from planner.models.interruption.process import SpotProcess
from planner.models.prediction import Prediction
from planner.models.spot_runs.monte_carlo import simulate
from planner.models.spot_runs.work import SpotWork

CANDIDATES, NODE_COUNTS, OFFERS = 100_000, 64, 8


def speed_rows() -> list[dict[str, object]]:
    without = _seconds(_evaluate)
    with_mix = _seconds(lambda: _evaluate(spot=True))
    sure = SpotProcess(loss_per_hour=POOLED.loss_per_hour, return_per_hour=POOLED.return_per_hour)
    rows: list[dict[str, object]] = [
        {"what": f"{CANDIDATES:,} candidates without spot", "seconds": without, "ratio": 1.0},
        {"what": "the same with mix, interval and p95", "seconds": with_mix, "ratio": with_mix / without},
    ]
    work = SpotWork(work_hours=100.0, interval_hours=0.25, save_hours=0.005)
    for name, process in (("rates known", sure), ("rates uncertain", POOLED)):
        seconds = _seconds(lambda process=process: simulate(work, process, 1_000_000, seed=1), runs=1)
        rows.append({"what": f"a million runs of 100 h, {name}", "seconds": seconds, "ratio": seconds / 10})
    return rows


def _evaluate(spot: bool = False) -> object:
    """A stand-in for what the search does with each candidate; the search itself also predicts steps and memory."""
    generator = np.random.default_rng(0)
    nodes = generator.integers(1, NODE_COUNTS + 1, CANDIDATES)
    step = Prediction.log_normal(generator.random(CANDIDATES) + 0.1, 0.1, np.zeros(CANDIDATES, dtype=bool))
    samples = Prediction.log_normal(generator.random(CANDIDATES) * 1e5 + 1e5, 0.2, np.zeros(CANDIDATES, dtype=bool))
    hours = step.times(samples).scaled(1 / 3600)
    if spot:
        # Rates belong to an offer and a node count, of which there are far fewer than candidates.
        per_offer = SpotRates.of(*(POOLED.scaled(loss=0.5 + 0.1 * offer) for offer in range(OFFERS)))
        offer, count = np.divmod(np.arange(OFFERS * NODE_COUNTS), NODE_COUNTS)
        gangs = per_offer.at(offer).for_gang(np.maximum(count, 1))
        interval = intervals_seconds(30.0, gangs.mean_up_hours) / 3600
        which = generator.integers(0, OFFERS, CANDIDATES) * NODE_COUNTS + nodes - 1
        burden = SpotBurden.of(gangs, interval_hours=interval)
        hours = hours.times(spot_slowdown(hours.p50, burden.at(which)))
    usd = hours.scaled(nodes * 1.0)
    return hours.quantile(0.95), usd.quantile(0.95), usd.probability_at_most(1000.0)


def _seconds(action: Callable[[], object], runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
