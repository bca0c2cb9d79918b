"""The shapes that samples to the target can take as the batch grows, and what is believed of them before any run.

    hyperbola   S(B) = S_min * (1 + B / B_crit): small batches make every sample count, large ones repeat themselves
    power       S(B) ~ B^p, which may fall as well: fine-tuning with few sizes, and Scavenger's ResNet18 on CIFAR-10

Each law has one parameter, known as weights over a grid, so that knowing little shows as a wide interval and nothing
else. Samples that do not depend on the batch are the edge of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.columns import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """What is known of a job's samples before its first run: printed by `benchmarks/calibrate_samples.py`.

    Largest marginal likelihood over MLPerf's reference convergence points, but for `miss_log_sd`, which is as large
    as puts 90 % of the runs of benchmarks left out into their interval.
    """

    critical_ratio: float = 18.0  # B_crit over the smallest batch in use
    critical_log_sd: float = 1.1
    hyperbola: float = 0.83  # chance that it is the better law: benchmarks that follow it, and half a one more
    run_log_sd: float = 0.045  # between runs with other seeds
    miss_log_sd: float = 0.058  # what the law misses at a batch
    miss_log_range: float = 0.41  # log distance of batches over which it does so alike


BELIEFS = Beliefs()
# One stage of training's gradient noise scale against the critical batch that runs show, on the jobs of Sia; printed
# by `benchmarks/calibrate_samples.py`. It adds to what is believed anyway, and counts for less than that.
NOISE_SCALE_LOG_SD = 1.5
# Between samples that fall with the root of the batch and such that rise with it, nearly. Half or twice as wide changes
# no error by more than 0.1.
EXPONENT_SD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One family of curves, a curve for each value of its parameter."""

    name: str
    belief: float
    parameter: Floats
    log_prior: Floats
    shape: Callable[[Floats, Floats], Floats]

    def curves(self, log_batch: Floats) -> Floats:
        """Log samples but for their height, shape (batches, parameters); `log_batch` is 0 at the smallest tried."""
        return self.shape(log_batch[:, None], self.parameter)


def hyperbola(log_batch: Floats, log_critical: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, log_batch - log_critical))


def plain_hyperbola(known: Floats, log_samples: Floats, asked: Floats) -> Floats:
    """Log samples at `asked` by least squares, whatever is usual; positions are 0 at the smallest batch."""
    log_critical = np.linspace(-6.0, known[-1] + 10.0, 2000)
    height = log_samples[:, None] - hyperbola(known[:, None], log_critical)
    best = int(height.var(axis=0).argmin())
    return np.asarray(height[:, best].mean() + hyperbola(asked, log_critical[best : best + 1]))


def power(log_batch: Floats, exponent: Floats) -> Floats:
    return log_batch * exponent


def laws(
    smallest: float,
    largest: float,
    noise_scale: float | None,
    noise_log_sd: float = NOISE_SCALE_LOG_SD,
    beliefs: Beliefs = BELIEFS,
) -> tuple[Law, ...]:
    """Both laws for runs between these batches; a noise scale says more of where the critical batch lies."""
    centre, sd = np.log(beliefs.critical_ratio), beliefs.critical_log_sd
    if noise_scale is not None:
        centre, sd = _both(centre, sd, np.log(noise_scale / smallest), noise_log_sd)
    low, high = min(centre - 5 * sd, -7.0), max(centre + 5 * sd, np.log(largest / smallest) + 7.0)
    return (
        _law("hyperbola", beliefs.hyperbola, hyperbola, np.linspace(low, high, 256), centre, sd),
        _law("power", 1 - beliefs.hyperbola, power, np.linspace(-1.0, 1.2, 89), 0.0, EXPONENT_SD),
    )


def _both(centre: float, sd: float, other: float, other_sd: float) -> tuple[float, float]:
    """Two independent estimates as one, weighted by how sure each is."""
    share = sd**2 / (sd**2 + other_sd**2)
    return centre + share * (other - centre), sd * (1 - share) ** 0.5


def _law(
    name: str, belief: float, shape: Callable[[Floats, Floats], Floats], parameter: Floats, centre: float, sd: float
) -> Law:
    log_weight = -(((parameter - centre) / sd) ** 2) / 2
    log_prior = log_weight - np.logaddexp.reduce(log_weight)
    return Law(name=name, belief=belief, parameter=parameter, log_prior=log_prior, shape=shape)
