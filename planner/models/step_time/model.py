"""Step times of one job on the catalogue's instance types: cold start, probed types, and types that learn from them.

no measurement        the data sheet (`data_sheet`), with its prior as the interval
an unprobed type      the same, corrected by what the job's other types measured (`unprobed_types`)
a probed type         a posterior of its own (`node_type`), whose prior is what the other two would have said
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Self

import numpy as np

from planner.columns import Floats, Prediction
from planner.inputs import Catalog, InstanceType, Workload
from planner.models.configurations import Configurations
from planner.models.step_time.catalogue_prior import catalogue_prior
from planner.models.step_time.data_sheet import UNMEASURED, Links, StepTerms, step_terms
from planner.models.step_time.earlier_jobs import NO_HISTORY, History, believed
from planner.models.step_time.measured_links import measured_links
from planner.models.step_time.node_type import NodeTypeModel, fit_node_type
from planner.models.step_time.pooling import pooled_prior
from planner.models.step_time.prior import USUAL
from planner.models.step_time.rows import MeasuredRows, Placements, measured_rows
from planner.models.step_time.screening import screen
from planner.models.step_time.table import tabulated
from planner.models.step_time.trust import trust
from planner.models.step_time.unprobed_types import COLD_START, RESIDUAL_SD, Believed, TypedRows

if TYPE_CHECKING:
    from planner.inputs import Measurement


class StepTimeModel:
    """Predicts the step time of clusters nobody has probed, and how sure it is.

    `history`: what other jobs say (`fit_history`): of its multipliers, and of shapes on the types that it measured.
    """

    def __init__(self, workload: Workload, catalog: Catalog, history: History = NO_HISTORY) -> None:
        self.workload = workload
        self.catalog = catalog
        self.history = history
        self.rows_: dict[str, MeasuredRows] = {}
        self.types_: dict[str, NodeTypeModel] = {}
        self.before = believed(workload, history, [each.name for each in catalog.instance_types])
        self.believed_ = self.before
        self.links_: dict[str, Links] = {}
        self.lent_: dict[str, Believed] = {}  # what the other types say of each
        self.warnings_: tuple[str, ...] = ()

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """In any order; repeating a measurement only adds its weight. What cannot be true is named in `warnings_`."""
        self.take(measurements)
        names = sorted(self.rows_)
        if not names:
            return self
        from threadpoolctl import threadpool_limits

        # Matrices this small only lose time to threads, and their number would show in the last digits.
        with threadpool_limits(1):
            self._fit_types(names)
        return self

    def take(self, measurements: Sequence[Measurement]) -> None:
        self.links_ = {}  # measurements are held against the data sheet alone
        screened = screen(measurements, self._data_sheet_seconds(measurements))
        self.warnings_ = screened.warnings
        self._measure_links(screened.rows)
        self.rows_ = measured_by_type(screened.rows)

    def _fit_types(self, names: Sequence[str]) -> None:
        typed = self.typed_rows()
        self.believed_ = self.before.given(typed, names)
        self.lent_ = {name: self.before.given(typed.without(index), names) for index, name in enumerate(names)}
        self.types_ = {name: self._fitted(name, rows) for name, rows in self.rows_.items()}

    def _fitted(self, name: str, rows: MeasuredRows) -> NodeTypeModel:
        """With a prior from the other types, the catalogue and other jobs."""
        instance_type, links = self.catalog.instance_type_by_name[name], self.links_[name]
        lent = self.lent_[name].on(name)
        prior = catalogue_prior(USUAL, rows, self.catalog, instance_type, self.workload, lent, links)
        return fit_node_type(rows, pooled_prior(self.history.shapes.get(name, ()), prior))

    def with_rows(self, name: str, rows: MeasuredRows) -> Self:
        """This model, fitted, with only these rows of one type. The others only lend it their prior, so they stay."""
        other = copy(self)
        other.rows_ = {**self.rows_, name: rows}
        other.types_ = {known: model for known, model in self.types_.items() if known != name}
        if len(rows):
            other.types_[name] = self._fitted(name, rows)
        else:
            other.believed_ = self.lent_[name]
            other.links_ = {known: links for known, links in self.links_.items() if known != name}
        return other

    def as_if(self, workload: Workload) -> Self:
        """This model, fitted, had the job file said this: probed types stay as they are, the others follow them."""
        other = copy(self)
        other.workload = workload
        if self.rows_:
            other.believed_ = self.before.given(other.typed_rows(), list(self.rows_))
        return other

    def is_probed(self, instance_type: InstanceType) -> bool:
        return instance_type.name in self.types_

    def measured(self, name: str) -> Configurations:
        """The configurations of a type's rows: whole nodes, as they can be rented."""
        return self._rentable(name, self.rows_[name].placements)

    def predict(self, configurations: Configurations) -> Prediction:
        name = configurations.instance_type.name
        if name not in self.types_:
            multipliers = self.believed_.on(name)
            step, slope = self.terms(configurations).step(multipliers.mean)
            variance = np.einsum("ij,jk,ik->i", slope, multipliers.covariance, slope)
            return Prediction.log_normal(step, np.sqrt(variance + RESIDUAL_SD**2), np.ones(len(step), dtype=bool))
        model, placements = self.types_[name], _placements(configurations)
        median, sd = tabulated(model, placements)
        return Prediction.log_normal(np.exp(median), sd, model.outside(placements))

    def median_seconds(self, configurations: Configurations) -> Floats:
        """The middle of `predict`, without its interval."""
        if not self.is_probed(configurations.instance_type):
            return self.terms(configurations).step_seconds(self.believed_.on(configurations.instance_type.name).mean)
        return self.predict(configurations).p50

    def why_extrapolated(self, instance_type: str, nodes: int, gpu_batch: int) -> str | None:
        """In words: "16 nodes, probed up to 4". None where it was probed around."""
        if instance_type not in self.types_:
            return f"{instance_type} was never probed"
        return self.types_[instance_type].why_extrapolated(nodes, gpu_batch)

    def terms(self, configurations: Configurations) -> StepTerms:
        """What the data sheet says, with the links of the instance type as they were measured."""
        links = self.links_.get(configurations.instance_type.name, UNMEASURED)
        return step_terms(configurations, self.workload, links)

    def parallel_efficiency(self, configurations: Configurations) -> Floats:
        """How much of the GPUs' time the step spends on work rather than on waiting for each other."""
        model = self.types_.get(configurations.instance_type.name)
        if model is not None:
            return model.posterior.work_share(_placements(configurations))
        terms, multipliers = self.terms(configurations), self.believed_.on(configurations.instance_type.name)
        return np.minimum(terms.work(multipliers.mean)[0] / terms.step(multipliers.mean)[0], 1.0)

    def _data_sheet_seconds(self, rows: Sequence[Measurement]) -> Floats:
        found = np.ones(len(rows))
        for name in sorted({row.instance_type for row in rows}):
            here = [index for index, row in enumerate(rows) if row.instance_type == name]
            terms = self._terms(name, _columns([rows[index] for index in here]))
            found[here] = terms.step(COLD_START.mean)[0]
        return found

    def typed_rows(self) -> TypedRows:
        groups = list(self.rows_.items())
        return TypedRows(
            terms=StepTerms(np.concatenate([self._terms(name, rows.placements).seconds for name, rows in groups])),
            type_index=np.repeat(np.arange(len(groups)), [len(rows) for _, rows in groups]),
            log_step=np.concatenate([rows.log_step for _, rows in groups]),
            log_work=np.concatenate([rows.log_work for _, rows in groups]),
            weight=np.concatenate([rows.weight for _, rows in groups]),
        )

    def _terms(self, name: str, placements: Placements) -> StepTerms:
        return self.terms(self._rentable(name, placements))

    def _rentable(self, name: str, placements: Placements) -> Configurations:
        return Configurations.of(
            self.catalog,
            self.catalog.instance_type_by_name[name],
            nodes=placements.nodes,
            gpu_batch=placements.gpu_batch,
            accumulation_steps=placements.accumulation_steps,
        )

    def _measure_links(self, rows: Sequence[Measurement]) -> None:
        for name in sorted({row.instance_type for row in rows}):
            own = [row for row in rows if row.instance_type == name]
            instance_type, gradient = self.catalog.instance_type_by_name[name], self.workload.gradient_bytes_or_default
            self.links_[name], warnings = measured_links(own, instance_type, gradient)
            self.warnings_ += tuple(warnings)


def _placements(configurations: Configurations) -> Placements:
    return Placements(
        nodes=configurations.nodes,
        workers=configurations.gpus,
        most_per_node=np.full_like(configurations.nodes, configurations.instance_type.gpu_count),
        gpu_batch=configurations.gpu_batch,
        accumulation_steps=configurations.accumulation_steps,
    )


def _columns(rows: Sequence[Measurement]) -> Placements:
    return Placements(
        nodes=np.array([row.nodes for row in rows]),
        workers=np.array([row.nodes * row.gpus_per_node for row in rows]),
        most_per_node=np.array([row.gpus_per_node for row in rows]),
        gpu_batch=np.array([row.gpu_batch for row in rows]),
        accumulation_steps=np.array([row.accumulation_steps for row in rows]),
    )


def measured_by_type(rows: Sequence[Measurement]) -> dict[str, MeasuredRows]:
    """Of one job, by instance type."""
    types, counts = np.array([row.instance_type for row in rows]), trust(rows)
    step = np.array([row.step_seconds for row in rows])
    sync = np.array([row.exposed_sync_seconds for row in rows], dtype=float)  # None becomes NaN
    found = {}
    for name in sorted(set(types.tolist())):
        here = types == name
        own = [row for row in rows if row.instance_type == name]
        found[name] = measured_rows(_columns(own), step[here], sync[here], counts[here])
    return found
