"""The shapes that samples to the target can take as the batch grows, and how far each is believed before any run.

    hyperbola   S(B) = S_min * (1 + B / B_crit): small batches make every sample count, large ones repeat themselves
    power       S(B) ~ B^p, as in fine-tuning with few sizes
    scavenger   epochs linear in gradient noise, and that linear in 1 / sqrt(B) (Scavenger, ResNet18 on CIFAR-10)
    constant    samples do not depend on the batch

Only the hyperbola must rise: the power law and Scavenger's may fall as well. Each law has one parameter, known as
weights over a grid, so that knowing little shows as a wide interval and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats

# B_crit over the smallest batch in use, on ten MLPerf benchmarks: median 8, log standard deviation 1.1
# (reference convergence points, MLCommons logging repository).
PRIOR_RATIO = 8.0
PRIOR_LOG_SD = 1.1
# Priors have the long tails of Student's t: Sia's and Pollux's jobs reach ratios of 20 to 300, and runs that need the
# same samples at all batches tried must not prove that they always will.
PRIOR_DEGREES = 4.0
# A gradient noise scale alone gives the order of magnitude.
NOISE_SCALE_LOG_SD = 0.8
# Fourteen MLPerf benchmarks follow the hyperbola, one (LoRA) a power law, Scavenger's data its own law, none is
# constant; half a job is added to each count, because the next may be the first of its kind.
BELIEF = {"hyperbola": 0.81, "power": 0.08, "scavenger": 0.08, "constant": 0.03}
EXPONENT_SD = 0.3
SLOPE_SD = 1.5  # Scavenger's own two curves: 1.4 and 2.8
# A straight line in 1 / sqrt(B) that rises with B reaches zero below the batches tried; samples do not.
SMALLEST_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One family of curves, a curve for each value of its parameter."""

    name: str
    parameter: Floats
    log_prior: Floats
    shape: Callable[[Floats, Floats], Floats]

    def curves(self, log_batch: Floats) -> Floats:
        """Log samples but for their height, shape (batches, parameters); `log_batch` is 0 at the smallest tried."""
        return self.shape(log_batch[:, None], self.parameter)


def hyperbola(log_batch: Floats, log_critical: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, log_batch - log_critical))


def power(log_batch: Floats, exponent: Floats) -> Floats:
    return log_batch * exponent


def scavenger(log_batch: Floats, slope: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(1 + slope * np.exp(-log_batch / 2), SMALLEST_SHARE)))


def constant(log_batch: Floats, nothing: Floats) -> Floats:
    return log_batch * nothing


def laws(smallest: float, largest: float, noise_scale: float | None) -> tuple[Law, ...]:
    """All laws for runs between these batches; a noise scale replaces the prior on the critical batch."""
    centre, sd = np.log(PRIOR_RATIO), PRIOR_LOG_SD
    if noise_scale is not None:
        centre, sd = np.log(noise_scale / smallest), NOISE_SCALE_LOG_SD
    low, high = min(centre - 5 * sd, -7.0), max(centre + 5 * sd, np.log(largest / smallest) + 7.0)
    return (
        _law("hyperbola", hyperbola, np.linspace(low, high, 256), centre, sd),
        _law("power", power, np.linspace(-1.0, 1.2, 89), 0.0, EXPONENT_SD),
        _law("scavenger", scavenger, np.linspace(-0.5, 5.0, 89), 0.0, SLOPE_SD),
        _law("constant", constant, np.zeros(1), 0.0, 1.0),
    )


def _law(name: str, shape: Callable[[Floats, Floats], Floats], parameter: Floats, centre: float, sd: float) -> Law:
    log_weight = -(PRIOR_DEGREES + 1) / 2 * np.log1p(((parameter - centre) / sd) ** 2 / PRIOR_DEGREES)
    return Law(name=name, parameter=parameter, log_prior=log_weight - np.logaddexp.reduce(log_weight), shape=shape)
