"""What the data sheets say of a job on each instance type, corrected by what was measured on any of them.

Every term of the data-sheet form has a log-multiplier, the sum of one shared by the whole job and one of the instance
type. Without measurements both are zero give or take their prior: that is the cold start. Measurements of one type
narrow its own multipliers most and everybody's a little: that is how a type nobody has probed learns from the others,
and why its interval stays wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.columns import Floats, Ints
from planner.models.step_time.data_sheet import TERMS, StepTerms

# Standard deviations of the log-multipliers, in the order of TERMS: what is common to a job, what differs by type.
# For compute both together make the factor of 1.7 by which a roofline misses unknown networks.
JOB_SD = np.array([0.26, 0.5, 0.35, 0.40])
TYPE_SD = np.array([0.19, 0.3, 0.35, 0.45])
# The data-sheet form misses even what it was fitted to by about this much.
RESIDUAL_SD = 0.10


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Data-sheet terms and measurements; `type_index[i]` numbers the instance types of the job."""

    terms: StepTerms
    type_index: Ints
    log_step: Floats
    log_work: Floats  # NaN where exposed communication was not measured apart
    weight: Floats

    def without(self, type_index: int) -> TypedRows:
        rows = self.type_index != type_index
        return TypedRows(
            StepTerms(self.terms.seconds[rows]),
            self.type_index[rows],
            self.log_step[rows],
            self.log_work[rows],
            self.weight[rows],
        )


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Log-multipliers of the terms: of a job, of a type beside it, or of both together."""

    mean: Floats
    covariance: Floats

    def __add__(self, other: Multipliers) -> Multipliers:
        return Multipliers(self.mean + other.mean, self.covariance + other.covariance)


ANY_JOB = Multipliers(np.zeros(len(TERMS)), np.diag(JOB_SD**2))
ANY_TYPE = Multipliers(np.zeros(len(TERMS)), np.diag(TYPE_SD**2))
COLD_START = ANY_JOB + ANY_TYPE


@dataclass(frozen=True, slots=True)
class Believed:
    """What is believed of a job's multipliers: what all types share, and what each adds where that is known."""

    job: Multipliers = ANY_JOB
    types: Mapping[str, Multipliers] = field(default_factory=dict)

    def on(self, name: str) -> Multipliers:
        return self.job + self.types.get(name, ANY_TYPE)

    def given(self, rows: TypedRows, names: Sequence[str]) -> Believed:
        """With what the job measured; `rows.type_index` counts `names`. Other types follow by what they share."""
        if not len(rows.log_step):
            return self
        terms = len(TERMS)
        mean, covariance = fit_multipliers(rows, [self.job, *(self.types.get(name, ANY_TYPE) for name in names)])
        return Believed(Multipliers(mean[:terms], covariance[:terms, :terms]), self.types)


def fit_multipliers(rows: TypedRows, before: Sequence[Multipliers]) -> tuple[Floats, Floats]:
    """The most probable multipliers and their covariance: first the job's, then each type's, as `before`."""
    from scipy.optimize import least_squares

    terms, type_count = len(TERMS), len(before) - 1
    prior_mean = np.concatenate([each.mean for each in before])
    prior_sd = np.concatenate([np.sqrt(np.diag(each.covariance)) for each in before])
    has_work = np.isfinite(rows.log_work)
    type_index = np.concatenate((rows.type_index, rows.type_index[has_work]))
    target = np.concatenate((rows.log_step, rows.log_work[has_work]))
    scale = RESIDUAL_SD / np.sqrt(np.concatenate((rows.weight, rows.weight[has_work])))

    def model(parameters: Floats) -> tuple[Floats, Floats]:
        own = parameters[terms:].reshape(type_count, terms)
        step, step_slope = rows.terms.step(parameters[:terms] + own[rows.type_index])
        work, work_slope = rows.terms.work(parameters[:terms] + own[rows.type_index])
        values = np.log(np.concatenate((step, work[has_work])))
        return values, np.concatenate((step_slope, work_slope[has_work]))

    def residuals(parameters: Floats) -> Floats:
        return np.concatenate(((model(parameters)[0] - target) / scale, (parameters - prior_mean) / prior_sd))

    def jacobian(parameters: Floats) -> Floats:
        slope = model(parameters)[1] / scale[:, None]
        own = np.where(type_index[:, None, None] == np.arange(type_count)[:, None], slope[:, None, :], 0.0)
        return np.concatenate((np.hstack((slope, own.reshape(len(type_index), -1))), np.diag(1 / prior_sd)))

    # soft_l1: one window taken while the machine was busy must not bend the whole fit.
    found = least_squares(residuals, prior_mean, jac=jacobian, loss="soft_l1", f_scale=2.0)
    curvature = jacobian(found.x)
    return np.asarray(found.x), np.asarray(np.linalg.inv(curvature.T @ curvature))
