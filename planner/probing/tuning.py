"""What `scav tune` may measure on rented clusters, and what it believes of it: the models' answers as columns.

A row is a type, a number of nodes and a local batch. It stands for every number of micro-steps, of which the best
counts: a step with more of them takes as much longer, so one measurement tells of all. A model that is spread over GPUs
is spread on each type as would be planned there before anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.columns import Z95, Floats, Ints
from planner.inputs import Job, PlanInputs
from planner.models import Configurations, Strategies
from planner.probing.further_probe import MOST_NODES
from planner.probing.next_probe import Belief, ProbeSpace, Visit, start_plan
from planner.probing.probe_clusters import LONGEST_SECONDS, NodePrice, ProbeCluster, cluster_of, node_price, promising
from planner.probing.probe_plan import measuring_seconds, probe_of
from planner.search import Candidate, Survey, Wanted, evaluate, every_split, strategy_table, take_survey


@dataclass(frozen=True, slots=True, kw_only=True)
class RentedSpace:
    """Rows of the space lie type by type, in the order of `offers`; `start` are those to measure first."""

    offers: tuple[Candidate, ...]
    prices: tuple[NodePrice, ...]
    tables: tuple[Configurations, ...]  # of each offer, one micro-step each
    space: ProbeSpace
    start: tuple[int, ...]

    def believe(self, inputs: PlanInputs, survey: Survey) -> Belief:
        """After the measurements of these inputs, with their survey."""
        probes = map(probe_of, inputs.measurements)
        known = {(probe.instance_type, probe.nodes, probe.gpu_batch, probe.strategy) for probe in probes}
        pairs = list(zip(self.offers, self.tables, strict=True))
        each = [_believed(inputs, survey, offer, table) for offer, table in pairs]
        log_value, job_usd = np.log(np.concatenate([one.value for one in each])), [one.usd for one in each]
        kinds = [(offer.instance_type, offer.strategy) for offer, table in pairs for _ in range(len(table))]
        rows = zip(kinds, self.space.nodes.tolist(), self.space.gpu_batch.tolist(), strict=True)
        keys = [(name, nodes, batch, strategy) for (name, strategy), nodes, batch in rows]
        measured = {row: float(np.exp(log_value[row])) for row, key in enumerate(keys) if key in known}
        return Belief(
            log_value=log_value,
            log_sd=np.concatenate([one.log_sd for one in each]),
            job_usd=np.concatenate(job_usd),
            probe_seconds=np.concatenate([one.probe_seconds for one in each]),
            measured=measured,
        )

    def cluster(self, inputs: PlanInputs, survey: Survey, visit: Visit) -> ProbeCluster:
        """What to rent for it."""
        code, nodes = (int(column[visit.rows[0]]) for column in (self.space.instance_type, self.space.nodes))
        batches = tuple(sorted(int(self.space.gpu_batch[row]) for row in visit.rows))
        return cluster_of(inputs, survey, self.offers[code], self.prices[code], nodes, batches)


def rented_space(inputs: PlanInputs, *, spot: bool) -> RentedSpace:
    """The most promising types as they look before anything is measured, so that a resumed search has the same space.

    Types that were measured before come first.
    """
    cold_inputs = replace(inputs, measurements=())
    cold = take_survey(cold_inputs)
    priced = [(offer, node_price(inputs, offer, spot=spot)) for offer in promising(inputs, cold)]
    sold = [(offer, price, _measurable(inputs, cold, offer)) for offer, price in priced if price is not None]
    return space_of(sold, cold_inputs, cold)


def space_of(
    sold: Sequence[tuple[Candidate, NodePrice, Configurations]], inputs: PlanInputs, survey: Survey
) -> RentedSpace:
    """These configurations; the inputs are without measurements, and the survey is theirs."""
    tables = tuple(table for _, _, table in sold)
    counts = [len(table) for table in tables]
    nodes = _joined([table.nodes for table in tables])
    space = ProbeSpace(
        instance_type=np.repeat(np.arange(len(tables)), counts),
        nodes=nodes,
        gpus=_joined([table.gpus for table in tables]),
        gpu_batch=_joined([table.gpu_batch for table in tables]),
        hourly_usd=nodes * np.repeat([price.usd for _, price, _ in sold], counts),
        measurable=nodes <= MOST_NODES,
        startup_seconds=survey.models.overheads.startup_seconds,
    )
    offers, prices = tuple(offer for offer, _, _ in sold), tuple(price for _, price, _ in sold)
    rented = RentedSpace(offers=offers, prices=prices, tables=tables, space=space, start=())
    if not len(space):
        return rented
    belief = rented.believe(inputs, survey)
    in_time = space.startup_seconds + belief.probe_seconds < LONGEST_SECONDS
    space = replace(space, measurable=space.measurable & in_time)
    rented = replace(rented, space=space)
    return replace(rented, start=tuple(start_plan(space, belief.probe_seconds, float(belief.job_usd.min()))))


def _measurable(inputs: PlanInputs, cold: Survey, offer: Candidate) -> Configurations:
    """Every number of nodes with every local batch that needs no micro-steps; where all do, the largest that fits."""
    instance_type = inputs.catalog.instance_type_by_name[offer.instance_type]
    table = _splits(inputs, offer)
    table = table.at(cold.predictors.fits(table))
    at_once = table.accumulation_steps == 1
    largest = np.zeros(1 + table.nodes.max(initial=0), dtype=np.int64)
    np.maximum.at(largest, table.nodes, table.gpu_batch)
    alone = ~np.isin(table.nodes, table.nodes[at_once]) & (table.gpu_batch == largest[table.nodes])
    kept = table.at(at_once | alone)
    pairs = np.unique(np.stack((kept.nodes, kept.gpu_batch)), axis=1)
    same = None if offer.strategy is None else Strategies.repeated(offer.strategy, pairs.shape[1])
    return Configurations.of(inputs.catalog, instance_type, nodes=pairs[0], gpu_batch=pairs[1], strategies=same)


def _splits(inputs: PlanInputs, offer: Candidate) -> Configurations:
    """Of its type, spread as it is."""
    job, instance_type = inputs.job_file.job, inputs.catalog.instance_type_by_name[offer.instance_type]
    nodes, batch, shape = job.constraints.nodes, job.workload.global_batch, job.workload.transformer
    if shape is None or offer.strategy is None:
        return every_split(inputs.catalog, instance_type, nodes, batch)
    wanted = Wanted(global_batch=batch, strategy=offer.strategy)
    options = job.workload.strategies_or_default
    return strategy_table(inputs.catalog, instance_type, nodes, shape, options, wanted).configurations


class _Believed(NamedTuple):
    """Of one type's rows."""

    value: Floats
    usd: Floats
    log_sd: Floats
    probe_seconds: Floats


def _believed(inputs: PlanInputs, survey: Survey, offer: Candidate, table: Configurations) -> _Believed:
    value, usd = np.full(len(table), np.inf), np.full(len(table), np.inf)
    for splits, row in (_as_they_are(table, survey), _in_table(_splits(inputs, offer), table, survey)):
        for candidates in _sold(inputs, survey, splits):
            np.minimum.at(value, row, np.array([_value(inputs.job_file.job, one) for one in candidates]))
            np.minimum.at(usd, row, np.array([one.usd.p50 for one in candidates]))
    step = survey.models.step_seconds(table)
    seconds = [measuring_seconds([one]) for one in step.p50.tolist()]
    return _Believed(value, usd, np.log(step.p95 / step.p50) / Z95, np.array(seconds))


def _as_they_are(table: Configurations, survey: Survey) -> tuple[Configurations, Ints]:
    """The rows that fit, and that row of each: also batches that no plan would split its own into."""
    rows = np.flatnonzero(survey.predictors.fits(table))
    return table.at(rows), rows


def _in_table(splits: Configurations, table: Configurations, survey: Survey) -> tuple[Configurations, Ints]:
    """The splits that fit, with nodes and local batch of a row of the table, and that row of each."""
    splits = splits.at(survey.predictors.fits(splits))
    width = int(max(splits.gpu_batch.max(initial=0), table.gpu_batch.max(initial=0))) + 1
    keys, asked = (each.nodes * width + each.gpu_batch for each in (table, splits))
    row = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)  # the table is sorted by both
    known = keys[row] == asked
    return splits.at(known), row[known]


def _sold(inputs: PlanInputs, survey: Survey, splits: Configurations) -> Iterator[Sequence[Candidate]]:
    """As the job may buy them."""
    job = inputs.job_file.job
    for market in ("on_demand", "spot"):
        if job.constraints.spot == {"on_demand": "always", "spot": "never"}[market]:
            continue
        found = evaluate(job, inputs.catalog, splits, survey.regions, survey.predictors, market)
        if found:
            yield found


def _value(job: Job, row: Candidate) -> float:
    """Infinite where a limit is more likely broken than kept."""
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    if (deadline and row.hours.p50 > deadline) or (budget and row.usd.p50 > budget):
        return float("inf")
    return row.hours.p50 if job.objective_or_default == "time" else row.usd.p50


def _joined(columns: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *columns])
