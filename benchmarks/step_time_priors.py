"""Priors of the physical form as they would be without one application: scav's own were chosen with it in view."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.models.step_time.pooling import estimates
from planner.models.step_time.posterior import Posterior
from planner.models.step_time.step_formula import DEFAULT_PRIORS, NAMES, Prior

# No prior becomes narrower than this share of what it was.
LEAST_SHARE = 0.4
# Properties of the job's own network and script: other jobs say nothing about them.
OWN = [NAMES.index(name) for name in ("scale", "fixed", "floor", "batch_power")]

# Before any job was seen: what the physics of each term allows. For the terms in OWN that is scav's prior.
_VAGUE = {
    "contention": (-4.0, 1.5),
    "link": (-2.0, 2.0),
    "network": (-1.5, 2.0),
    "contention_power": (0.0, 0.4),
    "link_power": (0.0, 0.6),
    "growth": (-1.5, 1.0),
    "pair": (0.0, 0.6),
    "width_power": (0.0, 0.5),
    "overlap": (-2.0, 1.5),
    "pair_alone": (0.0, 0.5),
    "balance_power": (0.0, 0.6),
    "wait": (-4.0, 1.5),
    "host_growth": (0.05, 0.1),
}


def _vague(prior: Prior, **parameters: tuple[float, float]) -> Prior:
    mean, sd = prior.mean.copy(), prior.sd.copy()
    for name, (middle, spread) in parameters.items():
        mean[NAMES.index(name)], sd[NAMES.index(name)] = middle, spread
    return Prior(prior.law, mean, sd)


VAGUE_PRIORS = (
    _vague(DEFAULT_PRIORS[0], **_VAGUE),
    _vague(DEFAULT_PRIORS[1], **{**_VAGUE, "link_power": (0.0, 0.3), "width_power": (0.0, 0.15)}),
)


def population_priors(history: Sequence[Posterior], priors: Sequence[Prior]) -> tuple[Prior, ...]:
    """What jobs on all kinds of node types say about a job on one that none of them used: robust means and spreads."""
    return tuple(_of_population(history, prior) for prior in priors) if history else tuple(priors)


def _of_population(history: Sequence[Posterior], prior: Prior) -> Prior:
    mean, sd = prior.mean.copy(), prior.sd.copy()
    for index in range(len(NAMES)):
        if index in OWN:
            continue
        value, _, told = estimates(history, prior, index)
        centre = prior.mean[index]
        for _ in range(20):
            weight = told / np.maximum(1.0, 2 * np.abs(value - centre) / prior.sd[index])
            centre = (weight @ value + prior.mean[index]) / (weight.sum() + 1)  # the prior counts as one more job
        square = (weight @ (value - centre) ** 2 + prior.sd[index] ** 2) / (weight.sum() + 1)
        mean[index] = centre
        sd[index] = np.clip(np.sqrt(square), LEAST_SHARE * prior.sd[index], prior.sd[index])
    return Prior(prior.law, mean, sd)
