"""The form, fitted: log seconds of any layout, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from planner.columns import Floats, Ints
from planner.models.sharded_step_time.forest import ResidualForest, fit_forest
from planner.models.sharded_step_time.formula import seconds, slope_table
from planner.models.sharded_step_time.layout import Hardware, Layout
from planner.models.sharded_step_time.posterior import ShardedPosterior, StepRows, fit_posterior, merged_rows, predicted
from planner.models.sharded_step_time.prior import ShardedPrior

# Variance of log seconds that every doubling beyond the rows adds: new kernels and machines join with each of them.
DOUBT_PER_DOUBLING = 0.08**2
_AXES = ("gpus", "micro_batch", "width", "layers", "sequence_length")


@dataclass(frozen=True, slots=True)
class Reach:
    """Between which numbers of each axis there were rows."""

    fewest: Floats
    most: Floats

    @classmethod
    def of(cls, layout: Layout) -> Self:
        columns = [np.asarray(getattr(layout, name)) for name in _AXES]
        return cls(np.array([np.min(each) for each in columns]), np.array([np.max(each) for each in columns]))

    def doubt(self, layout: Layout) -> Floats:
        """Variance of what lies outside."""
        beyond = np.zeros(len(layout))
        for index, name in enumerate(_AXES):
            column = np.asarray(getattr(layout, name), dtype=float)
            beyond += np.abs(np.log2(column / np.clip(column, self.fewest[index], self.most[index])))
        return DOUBT_PER_DOUBLING * beyond


@dataclass(frozen=True, slots=True)
class FittedSteps:
    posterior: ShardedPosterior
    forest: ResidualForest | None = None
    reach: Reach | None = None  # None where the prior alone speaks, whose spread is that between machines

    def predict(self, layout: Layout, hardware: Hardware) -> tuple[Floats, Floats]:
        """Median and standard deviation of log seconds."""
        at = predicted(self.posterior.theta, layout, hardware)
        variance = np.einsum("ij,ij->i", at.slope @ self.posterior.covariance, at.slope)
        if self.reach is not None:
            variance = variance + self.reach.doubt(layout)
        if self.forest is None:
            return at.log_step, np.sqrt(variance + self.posterior.noise_sd**2)
        added, sd = self.forest.correction(layout, at)
        return at.log_step + added, np.sqrt(variance + sd**2)

    def predict_kinds(
        self, layout: Layout, hardware: Hardware, kind: Ints, accumulation: Floats
    ) -> tuple[Floats, Floats]:
        """The same for many rows, `kind[i]` of the layout's with `accumulation[i]` micro-steps.

        Micro-steps enter linearly, so three numbers of a kind make the variance of all its rows.
        """
        if self.forest is not None:
            return self.predict(replace(layout.at(kind), accumulation=accumulation), hardware)
        at = seconds(self.posterior.theta, layout, hardware, slopes=True)
        again, once = (slope_table(each, len(layout)) for each in (at.again, at.once))
        spread_again, spread_once = again @ self.posterior.covariance, once @ self.posterior.covariance
        square, mixed, plain = (
            np.einsum("ij,ij->i", *pair)[kind]
            for pair in ((spread_again, again), (spread_again, once), (spread_once, once))
        )
        more = accumulation - 1.0
        step = more * np.asarray(at.again.value)[kind] + np.asarray(at.once.value)[kind]
        variance = (more * (more * square + 2.0 * mixed) + plain) / step**2
        if self.reach is not None:
            variance = variance + self.reach.doubt(layout)[kind]
        return np.log(step), np.sqrt(variance + self.posterior.noise_sd**2)

    def work_share(self, layout: Layout, hardware: Hardware) -> Floats:
        """Of a step, what one GPU would spend on its part of the work if it never waited for another."""
        at = seconds(self.posterior.theta, layout, hardware)
        more = layout.accumulation - 1.0
        work = more * at.work_again.value + at.work_once.value
        return np.asarray(np.minimum(work / (more * at.again.value + at.once.value), 1.0))


def fit_steps(rows: StepRows, prior: ShardedPrior) -> FittedSteps:
    rows = merged_rows(rows)
    posterior = fit_posterior(rows, prior)
    at = predicted(posterior.theta, rows.layout, rows.hardware)
    return FittedSteps(posterior, fit_forest(rows, at), Reach.of(rows.layout))
