"""The physical form with what was measured: a posterior over how far each of its terms is off.

Every term has a log-multiplier, the sum of one shared by the whole job and one of the instance type. Without
measurements both are zero give or take their prior: that is the cold start. Measurements of one type narrow its own
multipliers most and everybody's a little. Terms that no measurement touches stay at physics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from planner.catalog import Catalog, InstanceType
from planner.job import Workload
from planner.models.configurations import Configurations
from planner.models.prediction import Floats, Prediction
from planner.models.step_time.physical import TERMS, StepTerms, step_terms

if TYPE_CHECKING:
    from planner.measurements import Measurement

# Standard deviations of the log-multipliers, in the order of TERMS: what is common to a job, what differs by type.
# For compute both together make the factor of 1.7 by which a roofline misses unknown networks.
JOB_SD = np.array([0.26, 0.5, 0.35, 0.40])
TYPE_SD = np.array([0.19, 0.3, 0.35, 0.45])
# The physical form misses even what it was fitted to by about this much.
RESIDUAL_SD = 0.10


@dataclass(frozen=True, slots=True)
class _Probed:
    """The region in which an instance type was measured."""

    nodes: int
    gpu_batch: int


class StepTimeModel:
    """Predicts the step time of clusters nobody has probed, and how sure it is."""

    def __init__(self, workload: Workload, catalog: Catalog) -> None:
        self.workload = workload
        self.catalog = catalog
        self.types_: tuple[str, ...] = ()
        self.mean_: Floats = np.zeros(len(TERMS))
        self.covariance_: Floats = np.diag(JOB_SD**2)
        self.probed_: dict[str, _Probed] = {}

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """In any order; repeating a measurement only adds its weight."""
        rows = sorted(measurements, key=lambda row: row.model_dump_json())
        if not rows:
            return self
        from scipy.optimize import least_squares

        self.types_ = tuple(sorted({row.instance_type for row in rows}))
        observations = [self._observe(row) for row in rows]
        prior_sd = np.concatenate((JOB_SD, np.tile(TYPE_SD, len(self.types_))))

        def residuals(parameters: Floats) -> Floats:
            errors = [error for observe in observations for error in observe(parameters)[0]]
            return np.concatenate((np.array(errors) / RESIDUAL_SD, parameters / prior_sd))

        def jacobian(parameters: Floats) -> Floats:
            gradients = [row for observe in observations for row in observe(parameters)[1]]
            return np.concatenate((np.array(gradients) / RESIDUAL_SD, np.diag(1 / prior_sd)))

        # soft_l1: one window taken while the machine was busy must not bend the whole fit.
        found = least_squares(residuals, np.zeros_like(prior_sd), jac=jacobian, loss="soft_l1", f_scale=2.0)
        self.mean_ = found.x
        curvature = jacobian(found.x)
        self.covariance_ = np.asarray(np.linalg.inv(curvature.T @ curvature), dtype=np.float64)
        self.probed_ = {
            name: _Probed(
                nodes=max(row.nodes for row in rows if row.instance_type == name),
                gpu_batch=max(row.gpu_batch for row in rows if row.instance_type == name),
            )
            for name in self.types_
        }
        return self

    def predict(self, configurations: Configurations) -> Prediction:
        mean, covariance = self._multipliers(configurations.instance_type)
        step, gradient = step_terms(configurations, self.workload).step(mean)
        variance = np.einsum("ij,jk,ik->i", gradient, covariance, gradient)
        probed = self.probed_.get(configurations.instance_type.name, _Probed(nodes=0, gpu_batch=0))
        outside = (configurations.nodes > probed.nodes) | (configurations.gpu_batch > probed.gpu_batch)
        return Prediction.log_normal(step, np.sqrt(variance + RESIDUAL_SD**2), outside)

    def parallel_efficiency(self, configurations: Configurations) -> Floats:
        """How much of the GPUs' time the step spends on work rather than on waiting for each other."""
        mean, _ = self._multipliers(configurations.instance_type)
        terms = step_terms(configurations, self.workload)
        return terms.work(mean)[0] / terms.step(mean)[0]

    def _multipliers(self, kind: InstanceType) -> tuple[Floats, Floats]:
        count = len(TERMS)
        if kind.name not in self.types_:
            return self.mean_[:count], self.covariance_[:count, :count] + np.diag(TYPE_SD**2)
        select = self._selector(kind.name)
        return select @ self.mean_, select @ self.covariance_ @ select.T

    def _selector(self, name: str) -> Floats:
        """Adds a type's own parameters to the job's: (4, parameters)."""
        count = len(TERMS)
        select = np.zeros((count, count * (1 + len(self.types_))))
        select[:, :count] = np.eye(count)
        start = count * (1 + self.types_.index(name))
        select[:, start : start + count] = np.eye(count)
        return select

    def _observe(self, row: Measurement) -> _Observation:
        kind = self.catalog.instance_type_by_name[row.instance_type]
        configuration = Configurations(
            instance_type=kind,
            gpu=self.catalog.gpu_of(kind),
            nodes=np.array([row.nodes]),
            gpu_batch=np.array([row.gpu_batch]),
            accumulation_steps=np.array([row.accumulation_steps]),
        )
        terms = step_terms(configuration, self.workload)
        return _Observation(terms, self._selector(row.instance_type), row.step_seconds, _work_seconds(row))


@dataclass(frozen=True, slots=True)
class _Observation:
    """One measurement's errors in log seconds (step, and work where it is known) and their gradients."""

    terms: StepTerms
    select: Floats
    step_seconds: float
    work_seconds: float | None

    def __call__(self, parameters: Floats) -> tuple[list[float], list[Floats]]:
        multipliers = self.select @ parameters
        step, step_gradient = self.terms.step(multipliers)
        errors = [float(np.log(step[0] / self.step_seconds))]
        gradients = [step_gradient[0] @ self.select]
        if self.work_seconds is not None:
            work, work_gradient = self.terms.work(multipliers)
            errors.append(float(np.log(work[0] / self.work_seconds)))
            gradients.append(work_gradient[0] @ self.select)
        return errors, gradients


def _work_seconds(row: Measurement) -> float | None:
    if row.exposed_sync_seconds is None or row.exposed_sync_seconds >= row.step_seconds:
        return None
    return row.step_seconds - row.exposed_sync_seconds
