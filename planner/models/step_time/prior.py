"""What the parameters of the physical form usually are, before anything of a job was measured.

USUAL is what `benchmarks/calibrate.py` prints: what the physics of each term allows, narrowed where jobs on all kinds
of node types agree. Nothing else of the step-time model is estimated from other jobs. Seconds are relative to the work
at the reference batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from planner.columns import Floats
from planner.models.step_time.formula import NAMES, SECONDS


@dataclass(frozen=True, slots=True)
class Prior:
    """Independent normals: means and standard deviations in the order of NAMES."""

    mean: Floats
    sd: Floats

    @classmethod
    def of(cls, **parameters: tuple[float, float]) -> Self:
        mean, sd = np.array([parameters[name] for name in NAMES], dtype=float).T
        return cls(mean.copy(), sd.copy())

    def shifted(self, log_seconds: float) -> Prior:
        """Of a job whose work takes that long: what is in seconds scales with it."""
        mean = self.mean.copy()
        mean[SECONDS] += log_seconds
        return replace(self, mean=mean)


USUAL = Prior.of(
    scale=(0.00, 1.00),
    fixed=(0.00, 5.00),
    floor=(-1.00, 1.00),
    link=(-1.59, 1.10),
    network=(-0.77, 1.06),
    batch_power=(0.00, 0.10),
    link_power=(0.52, 0.51),
    pair=(0.18, 0.37),
    width_power=(-0.07, 0.37),
    overlap=(-1.97, 0.66),
    pair_alone=(0.11, 0.23),
    balance_power=(0.40, 0.35),
    wait=(-3.35, 1.50),
)
