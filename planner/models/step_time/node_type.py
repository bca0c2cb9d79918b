"""One job on one node type: the physical posterior, corrected near its probes, with an interval that was checked.

    log step = physical + known · correction + (1 - known) · (plain - physical) / 2

Near probes, where neighbours tell a row's deviation (known = 1), the physical form is corrected by them, and by a
forest as far as it has earned it. Far from all of them the correction vanishes, and the middle is expected of two
forms, with a host and without (plain): a job whose probes were bound by its host, or only then not, tells little of
which of the two its larger batches follow. The doubt there is that of the parameters, of what is between both forms,
and of every doubling outside the probes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from planner.columns import Z95, Flags, Floats, Ints
from planner.models.step_time.correction import Correction, fit_correction
from planner.models.step_time.forest import Forest, fit_forest
from planner.models.step_time.posterior import Posterior, fit_posterior, without_host
from planner.models.step_time.prior import USUAL, Prior
from planner.models.step_time.rows import MeasuredRows, Placements

COVERAGE = 0.9
PLAIN_SHARE = 0.5  # far from probes either form is as likely
# With few placements their scores say little: they are joined by this many that are as wide as they should be.
USUAL_COUNT = 20.0
WIDEST = 3.0
# What nobody has probed is known so much worse, in log seconds: new machines and kernels join with every doubling.
DOUBT_PER_DOUBLING = 0.12


@dataclass(frozen=True, slots=True)
class Span:
    """Fewest and most that were probed along one axis."""

    fewest: int
    most: int

    @classmethod
    def of(cls, column: Ints) -> Self:
        return cls(int(column.min()), int(column.max()))

    def outside(self, column: Ints) -> Flags:
        return np.asarray((column < self.fewest) | (column > self.most))

    def variance(self, column: Ints) -> Floats:
        doublings = np.log2(column / np.clip(column, self.fewest, self.most))
        return np.asarray((DOUBT_PER_DOUBLING * doublings) ** 2)

    def why(self, value: int, unit: str) -> str | None:
        if value > self.most:
            return f"{value} {unit}, probed up to {self.most}"
        return f"{value} {unit}, probed from {self.fewest} on" if value < self.fewest else None


@dataclass(frozen=True, slots=True)
class NodeTypeModel:
    """Fitted: log seconds, and their standard deviation, of any placement on this node type."""

    posterior: Posterior
    plain: Posterior  # without a host
    correction: Correction
    forest: Forest | None
    stretch: float  # of every standard deviation
    nodes: Span
    gpus_per_node: Span
    gpu_batch: Span

    def log_step(self, placements: Placements) -> tuple[Floats, Floats]:
        """Median and standard deviation of the logarithm."""
        physical, known = self.posterior.log_step(placements), self.correction.explained(placements)
        near, variance = self.correction.predict(self.posterior, placements)
        if self.forest is not None:
            near = near + self.forest.share * known * (self.forest.predict(self.posterior, placements) - near)
        plainer = PLAIN_SHARE * (1 - known) * (self.plain.log_step(placements) - physical)
        variance = variance + plainer**2 + self.doubt(placements)
        return physical + near + plainer, self.stretch * np.sqrt(variance)

    def doubt(self, placements: Placements) -> Floats:
        """Variance that comes with distance from the probes: those nearby in one axis say nothing of another."""
        return np.asarray(
            self.nodes.variance(placements.nodes)
            + self.gpus_per_node.variance(placements.most_per_node)
            + self.gpu_batch.variance(placements.gpu_batch)
        )

    def outside(self, placements: Placements) -> Flags:
        """Not between what was probed."""
        return self.nodes.outside(placements.nodes) | self.gpu_batch.outside(placements.gpu_batch)

    def why_extrapolated(self, nodes: int, gpu_batch: int) -> str | None:
        """In words, where a configuration lies outside what was probed."""
        reasons = (self.nodes.why(nodes, "nodes"), self.gpu_batch.why(gpu_batch, "samples per GPU"))
        return "; ".join(reason for reason in reasons if reason) or None


def fit_node_type(rows: MeasuredRows, prior: Prior = USUAL) -> NodeTypeModel:
    posterior = fit_posterior(rows, prior)
    correction = fit_correction(rows, posterior)
    return NodeTypeModel(
        posterior=posterior,
        plain=without_host(rows, prior, posterior),
        correction=correction,
        forest=fit_forest(rows, posterior, correction),
        stretch=conformal_stretch(correction),
        nodes=Span.of(rows.placements.nodes),
        gpus_per_node=Span.of(rows.placements.most_per_node),
        gpu_batch=Span.of(rows.placements.gpu_batch),
    )


def conformal_stretch(correction: Correction) -> float:
    """How much wider standard deviations must be for nine in ten rows to lie inside, their placement left out."""
    placement = np.unique(correction.rows.placements.table()[:, :3], axis=0, return_inverse=True)[1].ravel()
    error, variance = correction.left_out(placement)
    scores = np.abs(error) / np.sqrt(variance)
    found = float(np.quantile(scores, min(1.0, COVERAGE * (1 + 1 / len(scores))))) / Z95
    share = len(scores) / (len(scores) + USUAL_COUNT)
    return float(np.clip(found**share, 1.0, WIDEST))
