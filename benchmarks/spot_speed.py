"""What interruptions add to scav's own search, and how many runs are simulated a second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from planner.inputs.plan_inputs import PlanInputs, Provenance
from planner.outside.store import load_catalog, load_job
from planner.search.every_candidate import SearchResult, search
from planner.search.survey import take_survey
from planner.spot.rates.pooled import POOLED
from planner.spot.rates.process import SpotProcess
from planner.spot.runs.monte_carlo import simulate
from planner.spot.runs.work import SpotWork

EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50-imagenet"
# About 100,000 on-demand candidates: every instance type of one region.
WIDE = {"nodes": "1..6", "regions": ["us-east-1"], "instance_types": ["*"]}
SEARCHES = 25


def speed_rows() -> list[dict[str, object]]:
    return [*search_rows(), *simulation_rows()]


def search_rows() -> list[dict[str, object]]:
    """The same configurations without spot nodes and with them, in turn, so that a busy moment hits both."""
    searches = [_search("never"), _search("auto")]
    counts = [one().candidate_count for one in searches]
    without, with_mix = (
        statistics.median(times)
        for times in zip(*([_seconds(one) for one in searches] for _ in range(SEARCHES)), strict=True)
    )
    ratio = with_mix / without
    return [
        {"what": f"search of {counts[0]:,} candidates without spot", "seconds": without, "ratio": 1.0},
        {
            "what": f"the same configurations with mix, interval and p95: {counts[1]:,} candidates",
            "seconds": with_mix,
            "ratio": ratio,
        },
        {
            "what": f"{counts[0]:,} candidates with mix, interval and p95, at that pace",
            "seconds": with_mix * counts[0] / counts[1],
            "ratio": ratio * counts[0] / counts[1],
        },
    ]


def simulation_rows() -> list[dict[str, object]]:
    """As a share of the ten seconds allowed."""
    sure = SpotProcess(loss_per_hour=POOLED.loss_per_hour, return_per_hour=POOLED.return_per_hour)
    work = SpotWork(work_hours=100.0, interval_hours=0.25, save_hours=0.005)
    rows: list[dict[str, object]] = []
    for name, process in (("rates known", sure), ("rates uncertain", POOLED)):
        seconds = _seconds(lambda process=process: simulate(work, process, 1_000_000, seed=1))
        rows.append({"what": f"a million runs of 100 h, {name}", "seconds": seconds, "ratio": seconds / 10})
    return rows


def _search(spot: str) -> Callable[[], SearchResult]:
    """Models are fitted before; what it remembers of markets is forgotten each time, as a plan searches once."""
    job_file = load_job(EXAMPLE, WIDE | {"spot": spot})
    catalog, name, digest = load_catalog(None, beside=EXAMPLE)
    provenance = Provenance(
        job_sha256=digest, measurements_sha256=None, catalog_sha256=digest, catalog=name, catalog_date=catalog.date
    )
    survey = take_survey(PlanInputs(job_file=job_file, catalog=catalog, measurements=(), provenance=provenance))
    markets = survey.predictors.spot_markets
    assert markets is not None

    def once() -> SearchResult:
        predictors = replace(survey.predictors, spot_markets=replace(markets, _known={}))
        return search(job_file.job, catalog, survey.instance_types, survey.regions, predictors)

    return once


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
