"""How DeepVM discounts a large cluster: speed-up as a sigmoid of the nodes, against its steepest tangent.

S(n) = c / (1 + e^(-a(n-b))), L(n) = S'(b)(n-b) + S(b), K(n) = 1 up to the inflection b and S(n)/L(n) beyond. Below b
nothing is discounted, however badly two nodes do against one: that is the method's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import curve_fit
from scipy.special import expit

from planner.columns import Floats, Ints
from planner.errors import InputError

_FEWEST_POINTS = 4  # three parameters, and one point to contradict them
_MOST_EVALUATIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The sigmoid's parameters, in the paper's letters a, b and c."""

    steepness: float
    inflection_nodes: float
    ceiling: float

    def __post_init__(self) -> None:
        values = (self.steepness, self.inflection_nodes, self.ceiling)
        if not all(map(math.isfinite, values)) or self.steepness <= 0 or self.ceiling <= 0:
            raise InputError("scaling needs finite numbers, steepness and ceiling above 0")

    def speedup(self, nodes: Ints) -> Floats:
        """S(n)."""
        return np.asarray(self.ceiling * expit(self.steepness * (nodes - self.inflection_nodes)))

    def tangent(self, nodes: Ints) -> Floats:
        """L(n), the growth that the inflection promises."""
        slope = self.ceiling * self.steepness / 4
        return np.asarray(slope * (nodes - self.inflection_nodes) + self.ceiling / 2)

    def factor(self, nodes: Ints) -> Floats:
        """K(n), the share of that growth which is kept."""
        beyond = np.maximum(nodes, self.inflection_nodes)  # the tangent reaches 0 only before the inflection
        return np.asarray(np.where(nodes > self.inflection_nodes, self.speedup(nodes) / self.tangent(beyond), 1.0))


def fit_scaling(nodes: Sequence[int], speedups: Sequence[float]) -> Scaling:
    """Least squares through measured or predicted speed-ups over one node."""
    count, speedup = np.asarray(nodes, dtype=float), np.asarray(speedups, dtype=float)
    if len(np.unique(count)) < _FEWEST_POINTS or not np.all(np.isfinite(speedup)) or np.any(speedup <= 0):
        raise InputError(f"scaling needs speed-ups above 0 at {_FEWEST_POINTS} or more different node counts")
    start = (4 / np.ptp(count), float(np.median(count)), float(speedup.max()))
    bounds = ((1e-6, -float(count.max()), 1e-6), (10.0, 4 * float(count.max()), 100 * float(speedup.max())))
    found, _ = curve_fit(_sigmoid, count, speedup, p0=start, bounds=bounds, max_nfev=_MOST_EVALUATIONS)
    steepness, inflection, ceiling = map(float, found)
    return Scaling(steepness=steepness, inflection_nodes=inflection, ceiling=ceiling)


def _sigmoid(nodes: Floats, steepness: float, inflection: float, ceiling: float) -> Floats:
    return np.asarray(ceiling * expit(steepness * (nodes - inflection)))
