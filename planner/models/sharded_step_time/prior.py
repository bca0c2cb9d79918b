"""What other people's trainings say of the form's parameters, before any measurement of this job.

`benchmarks/calibrate_sharded.py` prints it from six public tables, each of which counts as one draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from planner.columns import Floats
from planner.models.sharded_step_time.formula import NAMES, to_theta


@dataclass(frozen=True, slots=True)
class ShardedPrior:
    """Normal in the form's own coordinates: logistic or logarithmic; `noise_sd` is what it misses of single rows."""

    mean: Floats
    sd: Floats
    noise_sd: float

    @classmethod
    def of(cls, noise_sd: float, **values: tuple[float, float]) -> Self:
        """By name: the value in its own unit, and the spread in coordinates."""
        mean, sd = zip(*(values[name] for name in NAMES), strict=True)
        return cls(to_theta(np.array(mean)), np.array(sd), noise_sd)


POOLED = ShardedPrior.of(
    noise_sd=0.093,
    gemm=(0.78, 0.60),
    elementwise=(2.8, 0.67),
    attention=(1.5, 0.30),
    scores=(2.7, 0.36),
    host=(0.0023, 0.44),
    latency=(0.00012, 0.98),
    link=(0.81, 0.79),
    network=(0.69, 0.78),
    overlap=(1, 1.00),
    optimizer=(1.1, 0.39),
    fixed=(0.01, 1.00),
    low_precision=(0.81, 0.70),
)

# Of what is unknown between trainings, the part that differs between the instance types of one job, and between the
# jobs of one user: `benchmarks/reuse.py`.
OWN_SHARE = 0.5


def lent(posterior_mean: Floats, posterior_sd: Floats, prior: ShardedPrior, noise_sd: float) -> ShardedPrior:
    """What some instance types say of another, or some jobs: their parameters, less sure by what is each one's own."""
    sd = np.sqrt(posterior_sd**2 + OWN_SHARE * prior.sd**2)
    return ShardedPrior(posterior_mean, np.minimum(sd, prior.sd), noise_sd)
