"""What other jobs teach about a new one, as priors of the physical form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.columns import Floats
from planner.models.step_time.formula import SECONDS, positions
from planner.models.step_time.posterior import Posterior
from planner.models.step_time.prior import Prior

# Properties of the node type: how communication grows with nodes and GPUs. The rest is the network's and the script's.
SHAPES = positions("link_power", "pair", "width_power", "pair_alone")
# Spread between jobs that is assumed even where their estimates agree.
LEAST_SPREAD = 0.15


def pooled_prior(history: Sequence[Posterior], prior: Prior) -> Prior:
    """What other jobs on the same node type say about shapes: how sync grows with nodes and GPUs, and pairs of nodes.

    A job counts as far as its measurements said more than the prior; where jobs disagree, the pooled prior is as wide
    as their disagreement.
    """
    mean, sd = prior.mean.copy(), prior.sd.copy()
    for index in SHAPES if history else ():
        value, variance, told = estimates(history, prior, index)
        between = LEAST_SPREAD**2
        own = 1 / prior.sd[index] ** 2
        for _ in range(10):
            weight = told / (variance + between)
            centre = (weight @ value) / (weight.sum() + 1e-9)
            disagreement = weight @ ((value - centre) ** 2 - variance)
            between = max(LEAST_SPREAD**2, float(disagreement / (weight.sum() + own / 2)))
        total = weight.sum() + own
        mean[index] = (weight @ value + own * prior.mean[index]) / total
        sd[index] = min(prior.sd[index], float(np.sqrt(between + 1 / total)))
    return Prior(mean, sd)


def estimates(history: Sequence[Posterior], prior: Prior, index: int) -> tuple[Floats, Floats, Floats]:
    """Each job's value, its variance, and how much of it came from measurements rather than from the prior."""
    seconds = np.array([posterior.reference_log_seconds for posterior in history])
    value = np.array([posterior.theta[index] for posterior in history]) - (seconds if index in SECONDS else 0.0)
    variance = np.array([posterior.covariance[index, index] for posterior in history])
    return value, variance, np.clip(1 - variance / prior.sd[index] ** 2, 0.0, 1.0)
