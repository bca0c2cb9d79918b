"""The search finds what plain loops find, with every kind of constraint; what models say is invented for both.

The loops import nothing of scav. Prices, hours, quantiles, quotas, bases and falling back are computed twice.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_search
import pytest
import random_jobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_search import Given, Losses, Triple

from planner.columns import Floats, Ints, Prediction
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.search.every_candidate import SearchResult, search
from planner.search.pricing import Candidate, Predictors
from planner.search.ranking import choose, feasible, front
from planner.spot.rates.sources import SpotHistory, SpotSource


def spread(middle: float, below: float, above: float) -> Triple:
    return middle / below, middle, middle * above


def step_seconds(name: str, nodes: int, gpu_batch: int, steps: int) -> Triple:
    """Slower with every node and sample, each type at its own pace; the less sure the more nodes."""
    pace = 0.004 * (1 + sum(map(ord, name)) % 7)
    return spread(steps * (0.01 + pace * gpu_batch) + 0.02 * (nodes - 1), 1.1 + 0.05 * nodes, 1.2 + 0.1 * nodes)


def samples(batch: int) -> Triple:
    return spread(2e6 * (1 + batch / 300), 1.05, 1.1 + batch / 1000)


def slowdown(interruption_class: int | None, spot_nodes: int, busy_hours: float) -> tuple[Triple, Triple]:
    """More for more spot nodes and for shorter jobs; of what is added, two thirds are paid."""
    added = (0.05 + 0.03 * (interruption_class or 0)) * spot_nodes**0.5 + 0.1 / (1 + busy_hours)
    wall = spread(1 + added, 1 + added / 3, 1 + added * 1.5)
    return wall, tuple(1 + 2 / 3 * (value - 1) for value in wall)  # type: ignore[return-value]


def losses(interruption_class: int | None, spot_nodes: int) -> Losses:
    interval = 0.2 / (1 + (interruption_class or 0)) + 0.01 * spot_nodes
    return Losses(interval, 0.004 / interval, lambda busy: slowdown(interruption_class, spot_nodes, busy))


GIVEN = Given(
    fits=lambda name, nodes, gpu_batch: gpu_batch <= 20 - nodes + ord(name[-1]) % 5,
    step_seconds=step_seconds,
    samples=samples,
    losses=losses,
    startup_hours=0.08,
    restart_hours=0.11,
    saving_share=0.03,
    spot_price=(0.7, 1.0, 1.6),
)


def column(rows: list[Triple]) -> Prediction:
    low, middle, high = (np.array([row[side] for row in rows], dtype=float) for side in range(3))
    return Prediction(p05=low, p50=middle, p95=high, extrapolated=np.zeros(len(rows), dtype=bool))


@dataclass(frozen=True)
class GivenTerms:
    interruption_class: int | None
    spot_nodes: list[int]

    @cached_property
    def rows(self) -> list[Losses]:
        return [losses(self.interruption_class, nodes) for nodes in self.spot_nodes]

    @property
    def interval_seconds(self) -> Floats:
        return np.array([row.interval_hours * 3600 for row in self.rows])

    @property
    def save_share(self) -> Floats:
        return np.array([row.save_share for row in self.rows])

    @property
    def burden(self) -> Any:
        return SimpleNamespace(losses_per_hour=np.zeros(len(self.spot_nodes)))

    def slowdown(self, busy_hours: Floats) -> tuple[Prediction, ...]:
        each = [row.slowdown(busy) for row, busy in zip(self.rows, busy_hours.tolist(), strict=True)]
        return tuple(column([both[side] for both in each]) for side in (0, 1))


class GivenMarkets:
    history = SpotHistory()
    restart_seconds = GIVEN.restart_hours * 3600

    def terms(self, source: SpotSource, spot_nodes: Ints) -> GivenTerms:
        return GivenTerms(source.interruption_class, spot_nodes.tolist())


def predictors(job: Job) -> Predictors:
    def step(rows: Configurations) -> Prediction:
        splits = zip(rows.nodes.tolist(), rows.gpu_batch.tolist(), rows.accumulation_steps.tolist(), strict=True)
        return column([step_seconds(rows.instance_type.name, *split) for split in splits])

    def fits(rows: Configurations) -> Any:
        name, pairs = rows.instance_type.name, zip(rows.nodes.tolist(), rows.gpu_batch.tolist(), strict=True)
        return np.array([GIVEN.fits(name, *pair) for pair in pairs], dtype=bool)

    markets: Any = GivenMarkets() if job.workload.checkpoint_bytes_or_default else None
    return Predictors(
        fits=fits,
        largest_batch=lambda *_: 99,
        step_seconds=step,
        samples=lambda batch: column([samples(each) for each in batch.tolist()]),
        startup_seconds=GIVEN.startup_hours * 3600,
        checkpoint_interval_seconds=600.0,
        checkpoint_share=GIVEN.saving_share,
        spot_price=column([GIVEN.spot_price]),
        spot_markets=markets,
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Job, Catalog]:
    """With interruption classes, a base that is asked for, falling back, and jobs without checkpoints."""
    job, catalog = draw(random_jobs.jobs()), draw(random_jobs.catalogs())
    offers = [
        offer.model_copy(update={"interruption_class": draw(st.sampled_from([None, 0, 3]))}) for offer in catalog.offers
    ]
    limits = job.constraints
    changes = {
        "on_demand_fallback": limits.deadline_hours is not None and draw(st.booleans()),
        "on_demand_base": draw(st.sampled_from([None, None, 0, 2])),
    }
    job = job.model_copy(update={"constraints": limits.model_copy(update=changes)})
    if draw(st.integers(0, 9)) == 0:
        job = job.model_copy(update={"workload": job.workload.model_copy(update={"checkpoint_bytes": 0.0})})
    return job, Catalog(**{name: getattr(catalog, name) for name in Catalog.model_fields} | {"offers": tuple(offers)})


def found_by_search(job: Job, catalog: Catalog) -> SearchResult:
    return search(job, catalog, catalog.instance_types, job.constraints.regions, predictors(job))


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_the_search_finds_what_plain_loops_find(world: tuple[Job, Catalog]) -> None:
    job, catalog = world
    rows = list(plain_search.every_candidate(job, catalog, GIVEN))
    found = found_by_search(job, catalog)
    assert found.candidate_count == len(rows)
    curve, expected = front(found.finalists), plain_search.undominated(rows)
    assert [value for row in curve for value in (row.hours_limit, row.usd_limit)] == pytest.approx(
        [value for row in expected for value in (row.hours, row.usd)], rel=1e-9
    )
    by_place = {_place(row): row for row in rows}
    for row in found.finalists:
        same = by_place[_place(row)]
        assert (row.hours_limit, row.usd_limit) == pytest.approx((same.hours, same.usd), rel=1e-9)
    chosen = choose(feasible(found.finalists, job), job.objective_or_default)
    kept = [row for row in rows if plain_search.keeps_limits(row, job)]
    assert (chosen is None) == (not kept)
    if chosen is not None:
        best = plain_search.best(kept, job.objective_or_default)
        assert (chosen.hours_limit, chosen.usd_limit) == pytest.approx((best.hours, best.usd), rel=1e-9)


def _place(row: Candidate | plain_search.Row) -> tuple[object, ...]:
    names = ("instance_type", "zone", "market", "falls_back", "nodes", "on_demand_count")
    return tuple(getattr(row, name) for name in (*names, "gpu_batch", "accumulation_steps"))


def test_the_loops_share_nothing_with_what_they_judge() -> None:
    tree = ast.parse(Path(plain_search.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"__future__", "collections.abc", "dataclasses", "math", "statistics", "typing"}
