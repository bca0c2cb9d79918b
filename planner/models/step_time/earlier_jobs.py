"""What earlier jobs say of a new one before anything of it is measured, as a prior of its log-multipliers.

Every earlier job measured some types, and so knows the multipliers of the data sheet's terms there (`unprobed_types`).
Of two jobs, what is common to a job is taken as correlated by how alike they are, and what differs by type as
correlated at least by what the machine itself does: a slow network is slow for everybody. With that the new job's
multipliers are jointly normal with theirs, and follow from them.

    likeness         = MOST_ALIKE exp(-distance / REACH)
    cov(job effect)  = JOB_SD^2 likeness
    cov(type effect) = TYPE_SD^2 (machine + (1 - machine) likeness), on the same type; 0 between types

Jobs of one team on one cluster share much of what their machines do, those of strangers little, and a handful of jobs
does not tell which they are. So the answer is the mean over shares from nothing to nearly all, and how far these lie
apart is doubt, too.

What an earlier job says of work is the less sure, the more releases of PyTorch lie between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.columns import Floats
from planner.inputs import Workload
from planner.models.step_time.data_sheet import TERMS
from planner.models.step_time.posterior import Posterior
from planner.models.step_time.unprobed_types import (
    ANY_JOB,
    ANY_TYPE,
    JOB_SD,
    TYPE_SD,
    Believed,
    Multipliers,
    TypedRows,
    fit_multipliers,
)

# Work of the same training on the same machines from one release of the software to the next, in log seconds:
# Megatron-Bridge's releases of two months moved 62 configurations by 0.096, and PyTorch's take three months.
RELEASE_SD = 0.12
SOFTWARE = np.array([term in ("compute", "launch") for term in TERMS], dtype=float)  # what it moves


MACHINE_SHARES = (0.0, 0.3, 0.6, 0.9)  # of what differs by type: what is the machine's, whatever runs on it
MOST_ALIKE = 0.9  # assumed: two jobs of the same size still have scripts of their own
REACH = 0.5  # doublings, over which likeness falls by e: other jobs of about the same size need not be alike at all


def likeness(one: Workload, other: Workload) -> float:
    """Of two jobs' multipliers: it falls with every doubling between their sizes."""
    sizes = [
        np.log2([each.flops_per_sample, each.parameters, each.activation_bytes_per_sample]) for each in (one, other)
    ]
    return MOST_ALIKE * float(np.exp(-np.sqrt(np.mean((sizes[0] - sizes[1]) ** 2)) / REACH))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """An earlier job's multipliers on the types that it measured: what its measurements alone say of them."""

    workload: Workload
    release: float | None  # of PyTorch, as a number of minor releases
    names: tuple[str, ...]
    told: Floats  # precision, of all terms of all types
    pull: Floats  # precision times value


@dataclass(frozen=True, slots=True)
class History:
    """Other jobs: their multipliers, and by instance type how each one's steps grew with nodes and GPUs."""

    jobs: tuple[KnownJob, ...] = ()
    shapes: Mapping[str, Sequence[Posterior]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def newest(self) -> float | None:
        """The release of the newest of them: a new job is taken to run the same."""
        return max((job.release for job in self.jobs if job.release is not None), default=None)


NO_HISTORY = History()


def known_job(workload: Workload, release: float | None, names: Sequence[str], rows: TypedRows) -> KnownJob:
    """`rows.type_index` counts `names`."""
    count, terms = len(names), len(TERMS)
    mean, covariance = fit_multipliers(rows, [ANY_JOB, *[ANY_TYPE] * count])
    whole = np.hstack((np.tile(np.eye(terms), (count, 1)), np.eye(count * terms)))  # job and type effect make one
    before = np.concatenate((JOB_SD, np.tile(TYPE_SD, count))) ** 2
    posterior = np.linalg.inv(whole @ covariance @ whole.T)
    told = _without_negative(np.asarray(posterior - np.linalg.inv((whole * before) @ whole.T)))
    return KnownJob(workload=workload, release=release, names=tuple(names), told=told, pull=posterior @ whole @ mean)


def believed(workload: Workload, history: History, names: Sequence[str]) -> Believed:
    """What other jobs say of a new one on these types."""
    if not history.jobs:
        return Believed()
    each = [_sharing(machine, workload, history, names) for machine in MACHINE_SHARES]
    return Believed(
        job=_mean([one.job for one in each]),
        types={name: _mean([one.types[name] for one in each]) for name in names},
    )


def _mean(found: Sequence[Multipliers]) -> Multipliers:
    """Of answers that are as probable."""
    means, variances = (
        np.array(column) for column in zip(*[(one.mean, np.diag(one.covariance)) for one in found], strict=True)
    )
    return Multipliers(means.mean(axis=0), np.diag(variances.mean(axis=0) + means.var(axis=0)))


def _sharing(machine: float, workload: Workload, history: History, names: Sequence[str]) -> Believed:
    """`machine`: the share that is the machine's."""
    from scipy.linalg import block_diag

    jobs = history.jobs
    at = [(number, name) for number, job in enumerate(jobs) for name in job.names]
    owner = np.array([number for number, _ in at])
    loads = [job.workload for job in jobs]
    alike = np.array([[likeness(one, other) for other in loads] for one in loads])
    np.fill_diagonal(alike, 1.0)
    to_new = np.array([likeness(workload, other) for other in loads])[owner]
    between, on_type = alike[np.ix_(owner, owner)], [[one == other for _, other in at] for _, one in at]
    drift = np.array([_drift(job.release, history.newest) for job in jobs])[owner]
    prior = (
        np.kron(between, np.diag(JOB_SD**2))
        + np.kron(on_type * _on_one_type(machine, between), np.diag(TYPE_SD**2))
        + np.kron((owner[:, None] == owner) * drift, np.diag(SOFTWARE))
    )
    told, pull = block_diag(*(job.told for job in jobs)), np.concatenate([job.pull for job in jobs])
    shrunk = np.linalg.inv(np.eye(len(pull)) + prior @ told)  # their posterior covariance is shrunk @ prior

    def given(share: Floats, sd: Floats) -> Multipliers:
        """An effect on the new job that shares so much with each job's on each type."""
        cross = np.kron(share, np.diag(sd**2))
        variance = sd**2 - np.diag(cross @ told @ shrunk @ cross.T)
        return Multipliers(cross @ shrunk.T @ pull, np.diag(np.maximum(variance, 0.0)))

    shared = _on_one_type(machine, to_new)
    return Believed(
        job=given(to_new, JOB_SD),
        types={name: given(np.where([other == name for _, other in at], shared, 0.0), TYPE_SD) for name in names},
    )


def _on_one_type(machine: float, alike: Floats) -> Floats:
    """Likeness of what differs by type, where both measured it."""
    return machine + (1 - machine) * alike


def _drift(release: float | None, now: float | None) -> float:
    """Variance that releases of the software between two jobs add; one that nobody knows is taken for today's."""
    return 0.0 if release is None or now is None else RELEASE_SD**2 * abs(now - release)


def _without_negative(precision: Floats) -> Floats:
    """What numbers leave below zero, where measurements say nothing."""
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
