"""Curves of samples to the target that nobody measured: laws outside those that scav knows, and noisy targets.

power       p between 0.05 and 0.6
noisy       a hyperbola; runs differ by 15 to 35 %
plateau     a rise that ends
falling     p between -0.3 and -0.05
kinked      none up to some batch, then a power law
"""

from __future__ import annotations

import numpy as np
from mlperf import Curve, ReferencePoint

from planner.columns import Floats

KINDS = ("power", "noisy", "plateau", "falling", "kinked")
CURVES_OF_A_KIND = 12
SEED = 14


def synthetic_curves() -> dict[str, Curve]:
    """Four to eight batch sizes over three to eight doublings, three to twenty runs each, misses of up to 8 %."""
    random = np.random.default_rng(SEED)
    return {f"{kind} {i}": _curve(kind, random) for i in range(1, CURVES_OF_A_KIND + 1) for kind in KINDS}


def _curve(kind: str, random: np.random.Generator) -> Curve:
    count, doublings = int(random.integers(4, 9)), random.uniform(3, 8)
    places = np.linspace(0, doublings, count) + random.uniform(-0.3, 0.3, count) * doublings / count
    batches = (2 ** random.uniform(5, 8) * 2 ** (places - places[0])).astype(int)
    log_samples = _law(kind, np.log(batches / batches[0]), random) + random.normal(0, random.uniform(0, 0.08), count)
    scatter = random.uniform(0.15, 0.35) if kind == "noisy" else random.uniform(0.02, 0.1)
    return tuple(
        ReferencePoint(batch=int(batch), runs=tuple(1e6 * np.exp(middle + random.normal(0, scatter, repeats))))
        for batch, middle, repeats in zip(batches, log_samples, random.integers(3, 21, count), strict=True)
    )


def _law(kind: str, log_batch: Floats, random: np.random.Generator) -> Floats:
    bend = random.uniform(0.5, 3)
    rise = {
        "power": random.uniform(0.05, 0.6) * log_batch,
        "noisy": np.logaddexp(0, log_batch - np.log(random.uniform(2, 60))),
        "plateau": random.uniform(0.3, 1.2) / (1 + np.exp(-3 * (log_batch - bend))),
        "falling": -random.uniform(0.05, 0.3) * log_batch,
        "kinked": random.uniform(0.5, 1) * np.maximum(0, log_batch - bend),
    }
    return np.asarray(rise[kind])
