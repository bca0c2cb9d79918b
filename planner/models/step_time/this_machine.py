"""Step times on the machine at hand, or on containers that stand for nodes: no data sheet knows it, so probes speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from planner.columns import Ints, Prediction
from planner.inputs import Measurement
from planner.models.step_time.model import measured_by_type
from planner.models.step_time.node_type import fit_node_type
from planner.models.step_time.rows import Placements


class MachineStepTime:
    """Predicts the step of so many workers with so large a batch each."""

    def fit(self, measurements: Sequence[Measurement]) -> Self:
        """At least one, all of one machine."""
        (rows,) = measured_by_type(measurements).values()
        self.model_ = fit_node_type(rows)
        return self

    def predict(self, nodes: Ints, workers: Ints, gpu_batch: Ints) -> Prediction:
        """`workers` are those of all nodes, spread evenly."""
        placements = Placements(
            nodes=nodes,
            workers=workers,
            most_per_node=workers // nodes,
            gpu_batch=gpu_batch,
            accumulation_steps=np.ones_like(nodes),
        )
        median, sd = self.model_.log_step(placements)
        return Prediction.log_normal(np.exp(median), sd, self.model_.outside(placements))
