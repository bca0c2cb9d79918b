"""The steps of one job on several instance types: each type has parameters of its own, which tell of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.models.sharded_step_time.fitted_steps import FittedSteps, fit_steps
from planner.models.sharded_step_time.posterior import StepRows, fit_posterior, joined_rows, without_rows
from planner.models.sharded_step_time.prior import ShardedPrior, lent


@dataclass(frozen=True, slots=True)
class FittedTypes:
    unprobed: FittedSteps  # what the others, or the prior alone, say of a type without any measurement
    probed: Mapping[str, FittedSteps] = field(default_factory=dict)

    def of(self, name: str) -> FittedSteps:
        return self.probed.get(name, self.unprobed)


def fit_types(rows: Mapping[str, StepRows], prior: ShardedPrior) -> FittedTypes:
    """`rows` by instance type."""
    if not rows:
        return FittedTypes(FittedSteps(without_rows(prior)))
    probed = {name: fit_steps(own, _lent(rows, name, prior)) for name, own in rows.items()}
    return FittedTypes(_unprobed(list(rows.values()), prior), probed)


def _unprobed(groups: Sequence[StepRows], prior: ShardedPrior) -> FittedSteps:
    posterior = fit_posterior(joined_rows(groups), prior)
    between = np.diag(lent(posterior.theta, np.zeros_like(prior.sd), prior, posterior.noise_sd).sd ** 2)
    return FittedSteps(replace(posterior, covariance=posterior.covariance + between))


def _lent(rows: Mapping[str, StepRows], name: str, prior: ShardedPrior) -> ShardedPrior:
    """What the other types of the job say of this one."""
    others = [each for other, each in rows.items() if other != name]
    if not others:
        return prior
    known = fit_posterior(joined_rows(others), prior)
    return lent(known.theta, np.sqrt(np.diag(known.covariance)), prior, known.noise_sd)
