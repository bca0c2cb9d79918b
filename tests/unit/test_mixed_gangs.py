"""Gangs of two kinds of machines: equal to loops over all of them, balanced, and only where they win."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import random_jobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_world import catalog, instance_type, job, offer, predictors, sure
from test_search import inputs_of

from planner.columns import Prediction, Quantiles
from planner.inputs.catalog.tables import Catalog
from planner.inputs.job.schema import Job
from planner.models.configurations import Configurations
from planner.search.candidates import batch_shares, offers_by_market
from planner.search.mixed_gangs import MixedGang, best_mixed_gang
from planner.search.pricing import Predictors
from planner.search.survey import take_survey


class Row(NamedTuple):
    """A gang as the loops see it."""

    value: float
    other: float
    names: tuple[str, str]
    nodes: tuple[int, int]
    batches: tuple[int, int]
    step: tuple[float, float, float]


class Loops:
    """The same rules with one number at a time, and nothing left out."""

    def __init__(self, job: Job, catalog: Catalog, predictors: Predictors) -> None:
        self.job, self.catalog, self.predictors = job, catalog, predictors
        self.kinds = {kind.name: kind for kind in catalog.instance_types}
        self.steps = functools.cache(self._steps)
        self.samples = functools.cache(lambda size: predictors.samples(np.array([size])).rows()[0])

    def one(self, name: str, nodes: int, batch: int) -> Configurations:
        return Configurations.of(self.catalog, self.kinds[name], nodes=nodes, gpu_batch=batch)

    def _steps(self, name: str, nodes: int, batch: int) -> Quantiles:
        return self.predictors.step_seconds(self.one(name, nodes, batch)).rows()[0]

    @functools.cache  # noqa: B019 - as long as the test
    def table(self, name: str) -> list[int]:
        most = min(self.predictors.largest_batch(self.kinds[name]), self.job.workload.global_batch.high)
        return batch_shares(1, most) if most >= 1 else []

    def between(self, name: str, batch: int, value: Callable[[int], float]) -> float:
        """Linear between the batches of the table."""
        table = self.table(name)
        if batch in table:
            return value(batch)
        low, high = max(b for b in table if b < batch), min(b for b in table if b > batch)
        return value(low) + (value(high) - value(low)) * (batch - low) / (high - low)

    def computing(self, name: str, batch: int, quantile: int) -> float:
        return self.between(name, batch, lambda at: self.steps(name, 1, at)[quantile])

    def exposed(self, name: str, nodes: int, batch: int, quantile: int) -> float:
        def more(at: int) -> float:
            return max(self.steps(name, nodes, at)[quantile] - self.steps(name, 1, at)[quantile], 0.0)

        return self.between(name, batch, more)

    def fits(self, name: str, nodes: int, batch: int) -> bool:
        held = [at for at in self.table(name) if self.predictors.fits(self.one(name, nodes, at))[0]]
        return batch <= max(held, default=0)

    def most_within(self, name: str, seconds: float) -> int:
        """One sample more at a time."""
        found = 0
        for batch in range(1, self.table(name)[-1] + 1):
            if self.computing(name, batch, 1) <= seconds * (1 + 1e-12):
                found = batch
        return found

    @functools.cache  # noqa: B019
    def balanced(self, one: str, other: str) -> set[tuple[int, int]]:
        found = {(batch, self.most_within(other, self.computing(one, batch, 1))) for batch in self.table(one)}
        found |= {(self.most_within(one, self.computing(other, batch, 1)), batch) for batch in self.table(other)}
        return {pair for pair in found if min(pair) > 0}

    def hourly(self, names: tuple[str, str], nodes: tuple[int, int]) -> float:
        sizes = self.job.workload.checkpoint_bytes_or_default, self.job.run.copied_bytes
        sold = [
            offers_by_market(self.catalog, self.kinds[name], self.job.constraints.regions, *sizes)["on_demand"]
            for name in names
        ]
        costs = [math.inf]
        for first, second in itertools.product(range(len(sold[0])), range(len(sold[1]))):
            if (sold[0].regions[first], sold[0].zones[first]) == (sold[1].regions[second], sold[1].zones[second]):
                parts = zip(sold, (first, second), nodes, strict=True)
                each = sum(count * (at.node_usd[row] + at.volume_usd_per_node[row]) for at, row, count in parts)
                costs.append(float(each + sold[0].checkpoint_usd[first]))
        return min(costs)

    def in_quota(self, names: tuple[str, str], nodes: tuple[int, int]) -> bool:
        used = {"g": 0, "p": 0}
        for name, count in zip(names, nodes, strict=True):
            used[self.kinds[name].quota_class] += count * self.kinds[name].vcpu
        limits = self.job.constraints.quotas.on_demand
        return all(getattr(limits, which) is None or vcpus <= getattr(limits, which) for which, vcpus in used.items())

    def every_gang(self) -> Iterator[Row]:
        constraints, allowed = self.job.constraints, self.job.workload.global_batch
        for names in itertools.combinations(self.kinds, 2):
            if not all(self.table(name) and self.has_units(name) for name in names):
                continue
            most = constraints.nodes.high
            for nodes in itertools.product(range(1, most), repeat=2):
                if not constraints.nodes.low <= sum(nodes) <= most or not self.in_quota(names, nodes):
                    continue
                hourly = self.hourly(names, nodes)
                for batches in self.balanced(*names) if hourly < math.inf else ():
                    parts = list(zip(names, nodes, batches, strict=True))
                    size = sum(self.kinds[name].gpu_count * count * batch for name, count, batch in parts)
                    fits = all(self.fits(name, sum(nodes), batch) for name, _, batch in parts)
                    if allowed.low <= size <= allowed.high and fits:
                        yield self.priced(names, nodes, batches, size, hourly)

    def has_units(self, name: str) -> bool:
        return self.catalog.gpu_of(self.kinds[name]).peak_flops_per_second(self.job.workload.precision) is not None

    def priced(
        self, names: tuple[str, str], nodes: tuple[int, int], batches: tuple[int, int], size: int, hourly: float
    ) -> Row:
        parts = list(zip(names, batches, strict=True))
        step = tuple(
            sorted(
                max(self.computing(name, batch, quantile) for name, batch in parts)
                + max(self.exposed(name, sum(nodes), batch, quantile) for name, batch in parts)
                for quantile in range(3)
            )
        )
        samples, confidence = self.samples(size), self.job.constraints.confidence
        middle = step[1] * samples.p50 / size / 3600
        up = math.exp(math.hypot(math.log(step[2] / step[1]), math.log(samples.p95 / samples.p50)))
        share, startup = 1 + self.predictors.checkpoint_share, self.predictors.startup_seconds / 3600
        p50, p95 = middle * share + startup, middle * up * share + startup
        z = {0.5: 0.0, 0.8: 0.8416212335729143 / 1.6448536269514722, 0.95: 1.0}[confidence]
        hours = p50 * (p95 / p50) ** z
        usd = hours * hourly
        value, other = (hours, usd) if self.job.objective_or_default == "time" else (usd, hours)
        limits = self.job.constraints
        kept = hours <= (limits.deadline_hours or math.inf) and usd <= (limits.budget_usd or math.inf)
        return Row(value if kept else math.inf, other, names, nodes, batches, (step[0], step[1], step[2]))


@pytest.mark.slow
def test_the_best_gang_equals_a_loop_over_all_of_them() -> None:
    found = []

    @settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(random_jobs.jobs(), random_jobs.catalogs())
    def compare(job: Job, catalog: Catalog) -> None:
        found.append(agree(job, catalog))

    compare()
    assert len(found) >= 300
    assert sum(found) >= 75, "many random pools must have a gang, or this shows nothing"


def agree(job: Job, catalog: Catalog) -> bool:
    predictors = take_survey(inputs_of(job, catalog)).predictors
    gang = best_mixed_gang(job, catalog, catalog.instance_types, job.constraints.regions, predictors)
    rows = list(Loops(job, catalog, predictors).every_gang())
    best = min(rows, default=None)
    if best is None or best.value == math.inf:
        assert gang is None
        return False
    assert gang is not None
    by_time = job.objective_or_default == "time"
    assert (gang.hours_limit if by_time else gang.usd_limit) == pytest.approx(best.value, rel=1e-9)
    same = [row for row in rows if (row.names, row.nodes, row.batches) == shape(gang)]
    assert [row.value for row in same] == pytest.approx([best.value], rel=1e-9)
    assert gang.step_seconds == pytest.approx(same[0].step, rel=1e-9)
    return True


def shape(gang: MixedGang) -> tuple[tuple[str, str], tuple[int, int], tuple[int, int]]:
    return gang.instance_types, gang.nodes, gang.gpu_batches


SLOW, FAST = instance_type("g1.slow", 2, 8), instance_type("p1.fast", 4, 8)
POOL = catalog(
    offer("g1.slow", "near", 1.0, {"near-az1": None, "near-az2": None}),
    offer("p1.fast", "near", 4.0, {"near-az2": None}),
    types=(SLOW, FAST),
)
QUOTAS = {"quotas": {"on_demand": {"g": 16, "p": 8}}}  # two of the one, one of the other
SECONDS = {"g1.slow": 0.2, "p1.fast": 0.1}  # per sample


def given_predictors() -> Predictors:
    """Computing is as many samples as there are; more nodes add a second for the slow link, half a one for the fast."""

    def step_seconds(rows: Configurations) -> Prediction:
        name = rows.instance_type.name
        exposed = np.where(rows.nodes > 1, 1.0 if name == "g1.slow" else 0.5, 0.0)
        return sure(*(SECONDS[name] * rows.gpu_batch + exposed))

    return predictors(step_seconds=step_seconds, largest_batch=lambda kind: 10 if kind.name == "g1.slow" else 16)


def best(constraints: dict[str, Any], objective: str, **options: Any) -> MixedGang | None:
    asked = job(constraints, objective, global_batch="4..200")
    return best_mixed_gang(asked, POOL, (SLOW, FAST), ("near", "far"), given_predictors(), **options)


def test_by_hand_where_quotas_leave_too_few_of_either() -> None:
    """At 8 and 16 samples both compute for 1.6 s; the slow link adds one: 96 samples every 2.6 s, 36,000 are needed."""
    gang = best(QUOTAS, "time")
    assert gang is not None
    assert (gang.instance_types, gang.nodes, gang.gpu_batches) == (("g1.slow", "p1.fast"), (2, 1), (8, 16))
    assert (gang.global_batch, gang.zone) == (2 * 2 * 8 + 4 * 16, "near-az2")
    assert gang.step_seconds.p50 == pytest.approx(2.6)
    assert gang.hours_limit == pytest.approx(36_000 / 96 * 2.6 / 3600 * 1.1 + 0.5)
    volumes = gang.hourly_usd - (2 * 1.0 + 4.0)
    assert 0 < volumes < 0.1
    assert gang.usd_limit == pytest.approx(gang.hours_limit * gang.hourly_usd)


def test_only_what_is_better_is_told() -> None:
    gang = best(QUOTAS, "time")
    assert gang is not None
    assert best(QUOTAS, "time", better_than=gang.hours_limit) is None
    assert best(QUOTAS, "time", better_than=gang.hours_limit * 1.001) == gang


@pytest.mark.parametrize(
    "constraints",
    [
        {**QUOTAS, "deadline": "0.6h"},
        {**QUOTAS, "budget": "$1"},
        {"quotas": {"on_demand": {"p": 4}}},
        {"nodes": "1..1"},
    ],
)
def test_limits_and_quotas_are_kept(constraints: dict[str, Any]) -> None:
    assert best(constraints, "time") is None


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 64), st.integers(1, 64), st.integers(0, 2**32))
def test_weighted_gradients_are_those_of_all_samples(one: int, other: int, few: int, many: int, seed: int) -> None:
    """Averaged plainly over processes, as DDP does, they are the mean over samples, whoever took them."""
    gang = best(QUOTAS, "time")
    assert gang is not None
    size = one * few + other * many
    gang = gang._replace(nodes=(one, other), gpus_per_node=(1, 1), gpu_batches=(few, many), global_batch=size)
    gradients = np.random.default_rng(seed).normal(size=size)
    parts = np.split(gradients, np.cumsum([few] * one + [many] * other)[:-1])
    weights = [gang.weights[0]] * one + [gang.weights[1]] * other
    averaged = np.mean([weight * part.mean() for weight, part in zip(weights, parts, strict=True)])
    assert averaged == pytest.approx(gradients.mean(), rel=1e-9, abs=1e-12)
    assert np.mean(weights) == pytest.approx(1.0)
