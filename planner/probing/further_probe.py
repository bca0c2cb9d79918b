"""Which one further probe would help most: its price, and what it is expected to save over the choice as it stands.

A probe pays when it may change the choice: when something else may turn out better, or the choice worse than the next
best. Types that nobody probed share their error among all their configurations, so each has a single candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from planner.columns import Z95, Floats
from planner.inputs import Catalog, Job
from planner.models import JOB_SD, TYPE_SD, FittedModels
from planner.probing.probe_plan import measuring_seconds
from planner.search import Candidate, configuration_of, offers_by_market, preference, stored_sizes

MOST_NODES = 4  # of a cluster that is rented only to measure; more are predicted from it
# How much of a data sheet's error differs between types: what they all miss alike changes no choice.
OWN_SHARE = float(TYPE_SD[0] / np.hypot(JOB_SD[0], TYPE_SD[0]))
# Below this part of the job no probe is worth the waiting, whatever it costs.
LEAST_GAIN = 0.001
# Below this a standard deviation is none: dividing by it would overflow.
_SURE = 1e-12


class FurtherProbe(NamedTuple):
    """One cluster to measure, for about that price."""

    instance_type: str
    nodes: int
    gpu_batch: int
    price_usd: float
    gain_usd: float
    gain: float  # as a share of the choice's dollars, or of its hours
    choice_gain: float | None  # the same of a probe of the choice itself; None where it was measured already
    of_hours: bool  # these are what the job's objective counts; a tenth of them is worth a tenth of the dollars

    @property
    def repays(self) -> bool:
        return self.gain_usd > self.price_usd and self.gain >= LEAST_GAIN


class _Option(NamedTuple):
    """A candidate, and the probe that would say most about it."""

    candidate: Candidate
    probe: tuple[int, int]  # nodes and local batch
    log_value: float
    log_sd: float  # of the step time, as far as the probe would settle it
    probe_seconds: float


def further_probe(
    job: Job, catalog: Catalog, models: FittedModels, finalists: Sequence[Candidate], choice: Candidate
) -> FurtherProbe | None:
    """The one worth most beyond its price, else the one nearest to repaying it; None when nothing can change."""
    options = list(_options(job, catalog, models, finalists, choice))
    if not options:
        return None
    gain = _gains(options, choice, _value(job, choice, 1))
    price = _prices_usd(job, catalog, models, options)
    gain_usd = gain * choice.usd.p50
    if not (gain_usd > 0).any():
        return None
    repaid = np.maximum(gain_usd - price, 0.0)
    best = int(np.lexsort((-gain_usd / price, -repaid))[0])
    name, (nodes, gpu_batch) = options[best].candidate.instance_type, options[best].probe
    return FurtherProbe(
        instance_type=name,
        nodes=nodes,
        gpu_batch=gpu_batch,
        price_usd=float(price[best]),
        gain_usd=float(gain_usd[best]),
        gain=float(gain[best]),
        choice_gain=next(
            (float(gain[row]) for row, option in enumerate(options) if _same(option.candidate, choice)), None
        ),
        of_hours=job.objective_or_default == "time",
    )


def _options(
    job: Job, catalog: Catalog, models: FittedModels, finalists: Sequence[Candidate], choice: Candidate
) -> Iterator[_Option]:
    """The choice, and what may beat it: likely within the limits, and better at the lower end of its interval."""
    objective = job.objective_or_default
    promising = [
        row
        for row in finalists
        if _value(job, row, 0) < _value(job, choice, 1) and _may_be_chosen(job, row) and not _same(row, choice)
    ]
    promising.sort(key=lambda row: preference(row, objective))
    seen: set[tuple[str, object]] = set()
    for row in (choice, *promising):
        nodes, gpu_batch = min(row.nodes, MOST_NODES), row.gpu_batch
        key = (row.instance_type, (nodes, gpu_batch) if row.instance_type in models.probed_types else None)
        if key in seen or _is_known(models, catalog, row, nodes) or not _can_be_spread(row, catalog, nodes):
            continue
        seen.add(key)
        log_sd, seconds = _doubt(catalog, models, row, nodes)
        shared = 1.0 if models.probed_types else OWN_SHARE
        yield _Option(
            candidate=row,
            probe=(nodes, gpu_batch),
            log_value=float(np.log(_value(job, row, 1))),
            log_sd=shared * log_sd,
            probe_seconds=measuring_seconds([seconds]),
        )


def _is_known(models: FittedModels, catalog: Catalog, row: Candidate, nodes: int) -> bool:
    """Whether that was measured; with a strategy, whether it was around."""
    if models.sharded_step_time is not None:
        return models.why_extrapolated(configuration_of(row._replace(nodes=nodes), catalog)) is None
    probed = models.step_time.rows_.get(row.instance_type)
    return probed is not None and [nodes, row.gpu_batch] in probed.placements.table()[:, [0, 3]].tolist()


def _can_be_spread(row: Candidate, catalog: Catalog, nodes: int) -> bool:
    """Whether a copy of the model has its GPUs on so many nodes."""
    gpus = nodes * catalog.instance_type_by_name[row.instance_type].gpu_count
    return row.strategy is None or gpus % (row.strategy.tensor_parallel * row.strategy.pipeline) == 0


def _value(job: Job, row: Candidate, quantile: int) -> float:
    return row.hours[quantile] if job.objective_or_default == "time" else row.usd[quantile]


def _may_be_chosen(job: Job, row: Candidate) -> bool:
    """As likely as not within the limits: a probe may then narrow the interval enough."""
    deadline, budget = job.constraints.deadline_hours, job.constraints.budget_usd
    return not (deadline and row.hours.p50 > deadline) and not (budget and row.usd.p50 > budget)


def _same(row: Candidate, other: Candidate) -> bool:
    return (row.instance_type, row.nodes, row.gpu_batch) == (other.instance_type, other.nodes, other.gpu_batch)


def _doubt(catalog: Catalog, models: FittedModels, row: Candidate, nodes: int) -> tuple[float, float]:
    """Standard deviation of the log time of a micro-step on so many nodes, or on its own if less; and its seconds."""
    one = configuration_of(row._replace(accumulation_steps=1), catalog)
    step = models.step_seconds(replace(one.at(np.array([0, 0])), nodes=np.array([row.nodes, nodes])))
    return float(np.log(step.p95 / step.p50).min()) / Z95, float(step.p50[-1])


def _gains(options: Sequence[_Option], choice: Candidate, now: float) -> Floats:
    """Expected improvement on `now`, what the choice takes, once each is measured; as a share of it."""
    log_value = np.array([option.log_value for option in options])
    log_sd = np.array([option.log_sd for option in options])
    is_choice = np.array([_same(option.candidate, choice) for option in options])
    gain = expected_improvement(log_value, log_sd, now)
    others = log_value[~is_choice]
    if not len(others) or not is_choice.any():
        return np.where(is_choice, 0.0, gain)
    # Should the choice turn out worse than the next best, that one is taken instead: a put, a forward and a strike.
    next_best = max(float(np.exp(others.min())), now)
    put = expected_improvement(log_value, log_sd, next_best) * next_best
    mean = np.exp(log_value + log_sd**2 / 2)
    return np.where(is_choice, np.maximum(put + mean - next_best, 0.0) / now, gain)


def expected_improvement(log_value: Floats, log_sd: Floats, best: float) -> Floats:
    """Of log-normal values below `best`, as a share of it: how much a probe is expected to take off."""
    ahead = np.maximum(np.log(best) - log_value, -50.0)  # an infinite value is far enough behind
    z = np.divide(ahead, log_sd, out=np.where(ahead > 0, np.inf, -np.inf), where=log_sd > _SURE)
    return np.asarray(np.maximum(ndtr(z) - np.exp(log_sd**2 / 2 - ahead) * ndtr(z - log_sd), 0.0))


def _prices_usd(job: Job, catalog: Catalog, models: FittedModels, options: Sequence[_Option]) -> Floats:
    """Each on a cluster of its own: its start, then the probe."""
    hourly_usd = np.array([_hourly_usd(job, catalog, option) for option in options])
    seconds = models.overheads.startup_seconds + np.array([option.probe_seconds for option in options])
    return np.asarray(hourly_usd * seconds / 3600)


def _hourly_usd(job: Job, catalog: Catalog, option: _Option) -> float:
    """On demand, in the candidate's region."""
    instance_type = catalog.instance_type_by_name[option.candidate.instance_type]
    regions = (option.candidate.region,)
    offers = offers_by_market(catalog, instance_type, regions, *stored_sizes(job))["on_demand"]
    nodes = np.array([option.probe[0]])
    return float((offers.base_usd(nodes) + offers.storage_usd(nodes)).min())
