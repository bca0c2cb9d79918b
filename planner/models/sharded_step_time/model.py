"""Step times of a transformer under any strategy, on the catalogue's instance types.

no measurement        the form (`form`) with what other people's trainings say of its parameters (`prior`)
an unprobed type      the same, narrowed by what the job's other types measured
a probed type         a posterior of its own (`posterior`), and a forest on what it misses where rows abound (`forest`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from planner.columns import Z95, Floats, Ints, Prediction
from planner.inputs import Catalog, InstanceType, Measurement, Training, Workload
from planner.models.configurations import Configurations
from planner.models.sharded_step_time.distinct import distinct_rows
from planner.models.sharded_step_time.fitted_steps import FittedSteps
from planner.models.sharded_step_time.fitted_types import fit_types
from planner.models.sharded_step_time.formula import seconds
from planner.models.sharded_step_time.job_layout import Placed, Trained, hardware_of, layout_of
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.measured import Probed, measured_placements
from planner.models.sharded_step_time.posterior import StepRows, without_rows
from planner.models.sharded_step_time.prior import POOLED, ShardedPrior
from planner.models.step_time.screening import screen
from planner.models.step_time.trust import trust
from planner.models.strategies import Strategies

COLD = FittedSteps(without_rows(POOLED))
DISAGREEING = 0.2  # share of a type's rows outside the data sheet's interval, from which it is said


class ShardedStepTimeModel:
    """Predicts the step time of a transformer however it is spread, and how sure it is."""

    def __init__(
        self,
        workload: Workload,
        catalog: Catalog,
        *,
        training: Training = "full",
        lora_rank: int = 8,
        prior: ShardedPrior = POOLED,
    ) -> None:
        self.workload = workload
        self.catalog = catalog
        self.trained = Trained(training=training, lora_rank=lora_rank)
        self.probed_: dict[str, Probed] = {}
        self.prior = prior
        self.fitted_ = fit_types({}, prior)
        self.warnings_: tuple[str, ...] = ()

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """In any order. What cannot be true, and what the data sheet did not expect, is named in `warnings_`."""
        rows = self.take(measurements)
        if not rows:
            return self
        from threadpoolctl import threadpool_limits

        # Matrices this small only lose time to threads, and their number would show in the last digits.
        with threadpool_limits(1):
            self.fitted_ = fit_types(rows, self.prior)
        return self

    def take(self, measurements: Sequence[Measurement]) -> dict[str, StepRows]:
        """What can be believed of them, by instance type."""
        known = sorted(measurements, key=_order)
        screened = screen(known, self._cold_seconds(known))
        names = sorted({row.instance_type for row in screened.rows})
        own = {name: [row for row in screened.rows if row.instance_type == name] for name in names}
        rows = {name: self._rows(name, each) for name, each in own.items()}
        self.probed_ = {name: Probed.of(each) for name, each in own.items()}
        self.warnings_ = (*screened.warnings, *(said for name in names for said in _disagreement(name, rows[name])))
        return rows

    def is_probed(self, instance_type: InstanceType) -> bool:
        return instance_type.name in self.fitted_.probed

    def predict(self, configurations: Configurations) -> Prediction:
        name, count = configurations.instance_type.name, len(configurations)
        if not count:
            return Prediction.log_normal(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
        layout, kind = self._kinds(configurations)
        micro_steps = configurations.accumulation_steps.astype(float)
        fitted = self.fitted_.of(name)
        median, sd = fitted.predict_kinds(layout, self._hardware(name), kind, micro_steps)
        probed = self.probed_.get(name)
        if probed is None:
            return Prediction.log_normal(np.exp(median), sd, np.ones(count, dtype=bool))
        strategies = _strategies(configurations)
        sd = np.sqrt(sd**2 + probed.doubt(strategies))
        return Prediction.log_normal(np.exp(median), sd, probed.outside(configurations, strategies))

    def median_seconds(self, configurations: Configurations) -> Floats:
        """The middle of `predict`, without its interval."""
        fitted = self.fitted_.of(configurations.instance_type.name)
        if fitted.forest is not None or not len(configurations):
            return self.predict(configurations).p50
        layout, kind = self._kinds(configurations)
        at = seconds(fitted.posterior.theta, layout, self._hardware(configurations.instance_type.name))
        again, once = np.asarray(at.again.value), np.asarray(at.once.value)
        return np.asarray((configurations.accumulation_steps - 1.0) * again[kind] + once[kind])

    def parallel_efficiency(self, configurations: Configurations) -> Floats:
        """How much of the GPUs' time the step spends on work rather than on waiting for each other."""
        name = configurations.instance_type.name
        layout = self._layout(Placed.of(configurations, _strategies(configurations)), configurations.instance_type)
        return self.fitted_.of(name).work_share(layout, self._hardware(name))

    def why_extrapolated(
        self, instance_type: str, nodes: int, gpu_batch: int, strategies: Strategies | None = None
    ) -> str | None:
        """In words: "16 nodes, probed up to 4". None where it was probed around; `strategies` has one row."""
        if instance_type not in self.probed_:
            return f"{instance_type} was never probed"
        return self.probed_[instance_type].why(nodes, gpu_batch, strategies)

    def _kinds(self, configurations: Configurations) -> tuple[Layout, Ints]:
        """The layouts that differ in more than micro-steps, and which of them every row is."""
        strategies = _strategies(configurations)
        first, kind = distinct_rows(
            (
                configurations.nodes,
                configurations.gpu_batch,
                strategies.sharding,
                strategies.tensor_parallel,
                strategies.pipeline,
                strategies.recompute,
            )
        )
        placed = Placed.of(configurations.at(first), strategies.at(first))
        return self._layout(placed, configurations.instance_type), kind

    def _layout(self, placed: Placed, instance_type: InstanceType) -> Layout:
        return layout_of(self.workload, self.trained, placed, instance_type.gpu_count)

    def _hardware(self, name: str) -> Hardware:
        instance_type = self.catalog.instance_type_by_name[name]
        return hardware_of(instance_type, self.catalog.gpu_of(instance_type), self.workload)

    def _rows(self, name: str, own: Sequence[Measurement]) -> StepRows:
        placed = measured_placements(own)
        return StepRows(
            layout=self._layout(placed, self.catalog.instance_type_by_name[name]),
            hardware=self._hardware(name),
            log_step=np.log(np.array([row.step_seconds for row in own])),
            weight=trust(own),
        )

    def _cold_seconds(self, rows: Sequence[Measurement]) -> Floats:
        found = np.ones(len(rows))
        for name in sorted({row.instance_type for row in rows}):
            here = [index for index, row in enumerate(rows) if row.instance_type == name]
            own = self._rows(name, [rows[index] for index in here])
            found[here] = np.exp(COLD.predict(own.layout, own.hardware)[0])
        return found


def _strategies(configurations: Configurations) -> Strategies:
    if configurations.strategies is None:
        raise ValueError("configurations without strategies have a step-time model of their own")
    return configurations.strategies


def _disagreement(name: str, rows: StepRows) -> list[str]:
    """A sentence where measurements lie outside what the data sheet allows."""
    median, sd = COLD.predict(rows.layout, rows.hardware)
    off = rows.log_step - median
    outside = np.abs(off) > Z95 * sd
    if outside.mean() <= DISAGREEING:
        return []
    far = off[outside][np.argmax(np.abs(off[outside]))]
    bound = np.exp(Z95 * sd[outside].max())
    said = (
        f"{outside.sum()} of {len(off)} measurements on {name} are outside what its data sheet allows: up to "
        f"{np.exp(abs(far)):.1f} times {'slower' if far > 0 else 'faster'}, where {bound:.1f} times was to be expected "
        "at most: is the GPU shared or throttled, or does the script train another model?"
    )
    return [said]


def _order(row: Measurement) -> tuple[str, int, int, int, int, float]:
    return row.instance_type, row.nodes, row.gpus_per_node, row.gpu_batch, row.accumulation_steps, row.step_seconds
